"""Pages of several cells as one: nothing lost, nothing twice, whichever are away meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.gateway.merge import Part, Places, add_up, merge_pages, read_places, write_places

CELLS = ("a", "b", "c")
HELD = st.dictionaries(st.sampled_from(CELLS), st.sets(st.integers(0, 60), max_size=25), min_size=1)


def key(number: int, cell: str) -> str:
    return f"{number:04d}-{cell}"


def page_of(held: Sequence[str], place: str | None, size: int, *, falling: bool) -> Part:
    """What a cell answers: its items after `place`, so many at most."""
    ordered = sorted(held, reverse=falling)
    left = [one for one in ordered if place is None or (one < place if falling else one > place)]
    return Part("", [(one, one.encode()) for one in left[:size]], len(left) > size)


def ask(
    fleet: Mapping[str, Sequence[str]], places: Places, size: int, *, falling: bool
) -> list[Part]:
    parts = []
    for cell, place in places.items():
        part = page_of(fleet[cell], place, size, falling=falling)
        parts.append(Part(cell, part.items, part.more))
    return parts


@given(HELD, st.integers(1, 7), st.integers(1, 7), st.booleans())
def test_pages_put_one_after_the_other_are_the_whole_sorted_list(
    held: dict[str, set[int]], limit: int, size: int, falling: bool
) -> None:
    fleet = {cell: [key(n, cell) for n in numbers] for cell, numbers in held.items()}
    places: Places = dict.fromkeys(fleet)
    seen: list[str] = []
    while places:
        page = merge_pages(
            ask(fleet, places, size, falling=falling), places, limit, falling=falling
        )
        items = [item.decode() for group in page.groups for _, item in group]
        assert len(page.groups) <= limit
        assert items or not page.rest, "a page that brings nothing must be the last"
        seen += items
        cursor = write_places(page.rest)
        places = read_places(cursor) if cursor else {}
    assert seen == sorted((one for some in fleet.values() for one in some), reverse=falling)


@given(HELD, st.integers(1, 7), st.lists(st.sets(st.sampled_from(CELLS)), max_size=12))
def test_cells_that_go_away_and_come_back_lose_nothing_and_double_nothing(
    held: dict[str, set[int]], limit: int, outages: list[set[str]]
) -> None:
    fleet = {cell: [key(n, cell) for n in numbers] for cell, numbers in held.items()}
    places: Places = dict.fromkeys(fleet)
    seen: list[str] = []
    while places:
        away = outages.pop() if outages else set()
        there: Places = {cell: place for cell, place in places.items() if cell not in away}
        page = merge_pages(ask(fleet, there, limit, falling=True), there, limit, falling=True)
        seen += [item.decode() for group in page.groups for _, item in group]
        places = page.rest | {cell: places[cell] for cell in places if cell in away}
    assert len(seen) == len(set(seen))
    assert sorted(seen) == sorted(one for some in fleet.values() for one in some)


def test_items_of_the_same_key_stay_together() -> None:
    parts = [
        Part("a", [("q", b"1"), ("r", b"2")], more=False),
        Part("b", [("q", b"3")], more=False),
    ]
    page = merge_pages(parts, {"a": None, "b": None}, 1, falling=False)
    assert page.groups == [[("a", b"1"), ("b", b"3")]]
    assert page.rest == {"a": "q"}


@pytest.mark.parametrize("cursor", ["", "x", "!!!", "WzFd", "MQ", "eyJhIjoxfQ"])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_places(cursor)


def test_figures_are_added_at_every_depth_and_words_are_the_first_ones() -> None:
    one = {"jobs": {"queued": 1}, "cpu": {"used": 0.5}, "version": "1", "only": 3}
    other = {"jobs": {"queued": 2, "running": 5}, "cpu": {"used": 1}, "version": "2", "more": 4}
    assert add_up(one, other) == {
        "jobs": {"queued": 3, "running": 5},
        "cpu": {"used": 1.5},
        "version": "1",
        "only": 3,
        "more": 4,
    }
