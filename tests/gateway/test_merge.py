"""Merged pages of several cells: no item is lost or repeated while cells go down and come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.gateway.lists import Part, Positions, add_up, merge_pages, read_cursor, write_cursor

CELLS = ("a", "b", "c")
HELD = st.dictionaries(st.sampled_from(CELLS), st.sets(st.integers(0, 60), max_size=25), min_size=1)


def key(number: int, cell: str) -> str:
    return f"{number:04d}-{cell}"


def page_of(held: Sequence[str], position: str | None, size: int, *, falling: bool) -> Part:
    """Answers as a cell does: with at most so many items after `position`."""
    ordered = sorted(held, reverse=falling)
    left = [
        one
        for one in ordered
        if position is None or (one < position if falling else one > position)
    ]
    rest = left[size - 1] if len(left) > size else None
    return Part("", [(one, one.encode()) for one in left[:size]], rest)


def ask(
    fleet: Mapping[str, Sequence[str]], positions: Positions, size: int, *, falling: bool
) -> list[Part]:
    parts = []
    for cell, position in positions.items():
        part = page_of(fleet[cell], position, size, falling=falling)
        parts.append(Part(cell, part.items, part.rest))
    return parts


@given(HELD, st.integers(1, 7), st.integers(1, 7), st.booleans())
def test_all_pages_together_are_the_whole_sorted_list(
    held: dict[str, set[int]], limit: int, size: int, falling: bool
) -> None:
    fleet = {cell: [key(n, cell) for n in numbers] for cell, numbers in held.items()}
    positions: Positions = dict.fromkeys(fleet)
    seen: list[str] = []
    while positions:
        page = merge_pages(
            ask(fleet, positions, size, falling=falling), positions, limit, falling=falling
        )
        items = [item.decode() for group in page.groups for _, item in group]
        assert len(page.groups) <= limit
        assert items or not page.rest, "a page that brings nothing must be the last"
        seen += items
        cursor = write_cursor(page.rest)
        positions = read_cursor(cursor) if cursor else {}
    assert seen == sorted((one for some in fleet.values() for one in some), reverse=falling)


@given(HELD, st.integers(1, 7), st.lists(st.sets(st.sampled_from(CELLS)), max_size=12))
def test_no_item_is_lost_or_repeated_when_cells_go_down_and_come_back(
    held: dict[str, set[int]], limit: int, outages: list[set[str]]
) -> None:
    fleet = {cell: [key(n, cell) for n in numbers] for cell, numbers in held.items()}
    positions: Positions = dict.fromkeys(fleet)
    seen: list[str] = []
    while positions:
        away = outages.pop() if outages else set()
        there: Positions = {
            cell: position for cell, position in positions.items() if cell not in away
        }
        page = merge_pages(ask(fleet, there, limit, falling=True), there, limit, falling=True)
        seen += [item.decode() for group in page.groups for _, item in group]
        positions = page.rest | {cell: positions[cell] for cell in positions if cell in away}
    assert len(seen) == len(set(seen))
    assert sorted(seen) == sorted(one for some in fleet.values() for one in some)


def searched_page(held: Sequence[str], position: str | None, looks: int, *, falling: bool) -> Part:
    """Answers as a cell that searches so many items and finds only the even ones."""
    part = page_of(held, position, looks, falling=falling)
    return Part("", [one for one in part.items if int(one[0][:4]) % 2 == 0], part.rest)


@given(HELD, st.integers(1, 7), st.integers(1, 4), st.booleans())
def test_cells_whose_pages_end_early_are_asked_until_their_ends(
    held: dict[str, set[int]], limit: int, looks: int, falling: bool
) -> None:
    fleet = {cell: [key(n, cell) for n in numbers] for cell, numbers in held.items()}
    positions: Positions = dict.fromkeys(fleet)
    seen: list[str] = []
    while positions:
        parts = []
        for cell, position in positions.items():
            part = searched_page(fleet[cell], position, looks, falling=falling)
            parts.append(Part(cell, part.items, part.rest))
        page = merge_pages(parts, positions, limit, falling=falling)
        seen += [item.decode() for group in page.groups for _, item in group]
        assert page.rest != positions, "each page goes on"
        positions = page.rest
    wanted = (one for some in fleet.values() for one in some if int(one[:4]) % 2 == 0)
    assert seen == sorted(wanted, reverse=falling)


def test_items_before_the_position_that_an_empty_page_reached_are_shown() -> None:
    parts = [Part("a", [], rest="5"), Part("b", [("9", b"9"), ("4", b"4")], rest=None)]
    page = merge_pages(parts, {"a": None, "b": None}, 10, falling=True)
    assert page.groups == [[("b", b"9")]]
    assert page.rest == {"a": "5", "b": "9"}


def test_items_of_the_same_key_stay_together() -> None:
    parts = [
        Part("a", [("q", b"1"), ("r", b"2")], rest=None),
        Part("b", [("q", b"3")], rest=None),
    ]
    page = merge_pages(parts, {"a": None, "b": None}, 1, falling=False)
    assert page.groups == [[("a", b"1"), ("b", b"3")]]
    assert page.rest == {"a": "q"}


@pytest.mark.parametrize("cursor", ["", "x", "!!!", "WzFd", "MQ", "eyJhIjoxfQ"])
def test_a_cursor_of_another_program_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_cursor(cursor)


def test_numbers_are_added_at_every_depth_and_texts_are_the_first_cells() -> None:
    one = {"jobs": {"queued": 1}, "cpu": {"used": 0.5}, "version": "1", "only": 3}
    other = {"jobs": {"queued": 2, "running": 5}, "cpu": {"used": 1}, "version": "2", "more": 4}
    assert add_up(one, other) == {
        "jobs": {"queued": 3, "running": 5},
        "cpu": {"used": 1.5},
        "version": "1",
        "only": 3,
        "more": 4,
    }
