"""Configuration of a gateway: options it refuses, and a tenant's cell, which seldom changes when
cells are added or removed.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.gateway.config import ConfigError, TenantRouter, make_config
from rota.wire.formats import cell_tag

A, B = ("a", "http://127.0.0.1:1"), ("b", "https://b.example:7070/")


def two_names_of_one_tag() -> tuple[str, str]:
    """Finds two names of cells whose ids have the same tag."""
    seen: dict[str, str] = {}
    for number in itertools.count():
        name = f"cell-{number}"
        if (other := seen.setdefault(cell_tag(name), name)) != name:
            return other, name
    raise AssertionError


def test_cells_have_servers_weights_and_pins() -> None:
    plan = make_config([A, B, ("a", "http://127.0.0.1:2")], [("b", "2.5")], [("acme", "a")])
    assert plan.cells == {
        "a": ["http://127.0.0.1:1", "http://127.0.0.1:2"],
        "b": ["https://b.example:7070"],
    }
    assert plan.router.weights == {"a": 1.0, "b": 2.5}
    assert plan.router.cell_of("acme") == "a"


def test_two_cells_of_one_tag_are_refused() -> None:
    one, other = two_names_of_one_tag()
    with pytest.raises(ConfigError, match=f"{one} and {other} have the same tag"):
        make_config([(one, A[1]), (other, A[1])])


@pytest.mark.parametrize(
    ("cells", "weights", "pins", "words"),
    [
        ([], [], [], "at least one cell"),
        ([("A", A[1])], [], [], "small letters"),
        ([("a", "127.0.0.1:7070")], [], [], "https://host:7070"),
        ([("a", "http://u:p@host")], [], [], "has only"),
        ([("a", "http://host/api")], [], [], "has only"),
        ([A], [("b", "1")], [], "no cell 'b'"),
        ([A], [("a", "much")], [], "a number"),
        ([A], [("a", "-1")], [], "from 0"),
        ([A], [("a", "0")], [], "nothing could be submitted"),
        ([A], [], [("acme", "b")], "no cell 'b'"),
    ],
)
def test_invalid_options_are_refused_with_an_explanation(
    cells: list[tuple[str, str]],
    weights: list[tuple[str, str]],
    pins: list[tuple[str, str]],
    words: str,
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_config(cells, weights, pins)


TENANTS = [f"tenant-{number}" for number in range(4000)]
NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True), min_size=2, unique=True)


def router(*names: str, **weights: float) -> TenantRouter:
    return TenantRouter({**dict.fromkeys(names, 1.0), **weights})


@given(NAMES, st.text())
def test_a_tenant_goes_to_the_same_cell_whatever_the_order_of_the_options(
    names: list[str], tenant: str
) -> None:
    assert router(*names).cell_of(tenant) == router(*reversed(names)).cell_of(tenant)


@given(NAMES, st.text())
def test_a_new_cell_takes_tenants_only_to_itself(names: list[str], tenant: str) -> None:
    *before, new = names
    home = router(*names).cell_of(tenant)
    assert home in (router(*before).cell_of(tenant), new)


def test_a_fifth_cell_moves_about_a_fifth_of_the_tenants() -> None:
    old, new = router("a", "b", "c", "d"), router("a", "b", "c", "d", "e")
    moved = sum(old.cell_of(tenant) != new.cell_of(tenant) for tenant in TENANTS)
    assert 0.15 < moved / len(TENANTS) < 0.25


def test_cells_share_tenants_evenly_and_by_weight() -> None:
    even = Counter(router("a", "b", "c", "d").cell_of(tenant) for tenant in TENANTS)
    assert all(0.2 < even[cell] / len(TENANTS) < 0.3 for cell in "abcd")
    heavy = Counter(router("a", b=3.0).cell_of(tenant) for tenant in TENANTS)
    assert 0.7 < heavy["b"] / len(TENANTS) < 0.8


def test_a_cell_of_weight_zero_gets_only_tenants_pinned_to_it() -> None:
    retiring = TenantRouter({"a": 1.0, "b": 0.0}, {"acme": "b"})
    assert {retiring.cell_of(tenant) for tenant in TENANTS} == {"a"}
    assert retiring.cell_of("acme") == "b"


@pytest.mark.parametrize(
    ("tenant", "cell"), [("default", "south"), ("acme", "north"), ("b", "north")]
)
def test_a_tenants_cell_is_the_same_in_every_release(tenant: str, cell: str) -> None:
    # Another answer here would move tenants of running fleets.
    assert router("north", "south").cell_of(tenant) == cell
