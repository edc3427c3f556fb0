"""Which cell a tenant goes to, and how few move when cells come and go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.gateway.ring import TenantRouter

TENANTS = [f"tenant-{number}" for number in range(4000)]
NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True), min_size=2, unique=True)


def ring(*names: str, **weights: float) -> TenantRouter:
    return TenantRouter({**dict.fromkeys(names, 1.0), **weights})


@given(NAMES, st.text())
def test_a_tenant_goes_to_the_same_cell_whatever_order_the_cells_were_named_in(
    names: list[str], tenant: str
) -> None:
    assert ring(*names).cell_of(tenant) == ring(*reversed(names)).cell_of(tenant)


@given(NAMES, st.text())
def test_a_new_cell_takes_tenants_only_to_itself(names: list[str], tenant: str) -> None:
    *before, new = names
    home = ring(*names).cell_of(tenant)
    assert home in (ring(*before).cell_of(tenant), new)


def test_a_fifth_cell_moves_about_a_fifth_of_the_tenants() -> None:
    old, new = ring("a", "b", "c", "d"), ring("a", "b", "c", "d", "e")
    moved = sum(old.cell_of(tenant) != new.cell_of(tenant) for tenant in TENANTS)
    assert 0.15 < moved / len(TENANTS) < 0.25


def test_cells_share_tenants_evenly_and_by_weight() -> None:
    even = Counter(ring("a", "b", "c", "d").cell_of(tenant) for tenant in TENANTS)
    assert all(0.2 < even[cell] / len(TENANTS) < 0.3 for cell in "abcd")
    heavy = Counter(ring("a", b=3.0).cell_of(tenant) for tenant in TENANTS)
    assert 0.7 < heavy["b"] / len(TENANTS) < 0.8


def test_a_cell_of_weight_zero_gets_nothing_but_what_is_pinned_to_it() -> None:
    retiring = TenantRouter({"a": 1.0, "b": 0.0}, {"acme": "b"})
    assert {retiring.cell_of(tenant) for tenant in TENANTS} == {"a"}
    assert retiring.cell_of("acme") == "b"


@pytest.mark.parametrize(
    ("tenant", "cell"), [("default", "south"), ("acme", "north"), ("b", "north")]
)
def test_homes_are_the_same_in_every_release(tenant: str, cell: str) -> None:
    # Another answer here would move tenants of running fleets.
    assert ring("north", "south").cell_of(tenant) == cell
