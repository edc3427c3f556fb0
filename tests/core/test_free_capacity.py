"""Free capacities are interned, and workers are found by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.entries import FreeCapacities, FreeCapacity
from rota.core.model import Resources
from rota.core.resources import NOTHING, left_of, minus, plus, total

FULL = Resources(cpu_milli=8_000, memory=64, custom=(("seat", 2_000),))
AMOUNTS = (
    Resources(cpu_milli=1_000),
    Resources(cpu_milli=2_000, memory=8),
    Resources(memory=8, custom=(("seat", 1_000),)),
)
walks = st.lists(st.tuples(st.sampled_from(AMOUNTS), st.booleans()), max_size=40)


def walk(free: FreeCapacity, steps: list[tuple[Resources, bool]]) -> list[Resources]:
    seen: list[Resources] = []
    for amount, is_taken in steps:
        free = free.without(amount) if is_taken else free.with_back(amount)
        seen.append(free.free)
    return seen


def computed(steps: list[tuple[Resources, bool]]) -> list[Resources]:
    free, seen = FULL, []
    for amount, is_taken in steps:
        free = minus(free, amount) if is_taken else plus(free, amount)
        seen.append(free)
    return seen


@pytest.mark.parametrize("most", [2, 5, 1_000])
@given(first=walks, second=walks)
def test_pooled_free_capacities_agree_with_arithmetic(
    most: int, first: list[tuple[Resources, bool]], second: list[tuple[Resources, bool]]
) -> None:
    """However few are remembered: what was found before is forgotten or used, never wrong."""
    full = FreeCapacities(most).of(1, FULL)
    assert walk(full, first) == computed(first)
    assert walk(full, second) == computed(second)


_some = st.builds(
    lambda seats, disks: Resources(custom=(("disk", disks), ("seat", seats))),
    st.integers(0, 2),
    st.integers(0, 2),
)


@given(capacity=_some, taken=st.lists(_some, max_size=6), kept=st.integers(0, 6))
def test_an_amount_has_one_form_whatever_was_taken_and_given_back(
    capacity: Resources, taken: list[Resources], kept: int
) -> None:
    """Also where there is nothing of a kind, or was less than what was held."""
    free, used = left_of(capacity, ()), NOTHING
    for amount in taken:
        free, used = minus(free, amount), plus(used, amount)
    for amount in taken[kept:]:
        free, used = plus(free, amount), minus(used, amount)
    assert free == left_of(capacity, taken[:kept])
    assert used == total(taken[:kept])


def test_free_capacities_that_are_not_used_are_not_kept() -> None:
    known = FreeCapacities(3)
    free = full = known.of(1, FULL)
    for _ in range(20):
        free = free.with_back(AMOUNTS[0])
    assert len(known._known) <= 3
    assert not full._after_return


WORKERS = 6
