"""Merges pages and figures of several cells; pure.

A list goes on from a place in each cell. A cell that is down keeps its place, so that nothing of it
is lost when it is back: its items then come late, but each comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rota.gateway.limits import CURSOR_CHARS_MAX
from rota.wire.cursors import make_cursor, parse_cursor

Places = dict[str, str | None]
"""Where each cell goes on: after the item with this key, or (None) from its beginning.

Cells that are not in it have nothing more to tell.
"""
Group = list[tuple[str, bytes]]
"""Items of one key: (cell, item)."""
First = Callable[[Sequence[str]], str]
"""Which of some keys comes first."""


@dataclass(frozen=True, slots=True)
class Part:
    """One cell's page: items with the keys they are sorted by."""

    cell: str
    items: Sequence[tuple[str, bytes]]
    rest: str | None
    """Where it goes on: mostly behind its last item, or further where it looked and found nothing.
    None: at its end."""


@dataclass(slots=True)
class Page:
    """A merged page; items of the same key stay together."""

    groups: list[Group] = field(default_factory=list)
    rest: Places = field(default_factory=dict)


def merge_pages(
    parts: Sequence[Part], places: Mapping[str, str | None], limit: int, *, falling: bool
) -> Page:
    """The first `limit` of all, and where each cell goes on.

    It ends early where a cell's page has been used up and that cell has more behind a place: its
    next item may come before all that the others hold from there on.
    """
    page, used = Page(), dict.fromkeys((part.cell for part in parts), 0)
    first: First = max if falling else min
    while len(page.groups) < limit and (group := _next_group(parts, used, first)):
        page.groups.append(group)
        for cell, _ in group:
            used[cell] += 1
    for part in parts:
        taken = used[part.cell]
        if taken < len(part.items):
            page.rest[part.cell] = part.items[taken - 1][0] if taken else places[part.cell]
        elif part.rest is not None:
            page.rest[part.cell] = part.rest
    return page


def _next_group(parts: Sequence[Part], used: Mapping[str, int], first: First) -> Group:
    """The items of the next key; none where there is no more, or none that is surely next."""
    heads = {
        part.cell: part.items[used[part.cell]]
        for part in parts
        if used[part.cell] < len(part.items)
    }
    if not heads:
        return []
    key = first([head[0] for head in heads.values()])
    ends = [part.rest for part in parts if part.rest is not None and part.cell not in heads]
    if any(key != end and first((key, end)) == end for end in ends):
        return []
    return [(cell, head[1]) for cell, head in heads.items() if head[0] == key]


def write_cursor(places: Places) -> str | None:
    """The cursor of a merged list; None at its end."""
    return make_cursor(msgspec.json.encode(places).decode()) if places else None


def read_cursor(cursor: str) -> Places:
    """ValueError if it is not a cursor of a gateway."""
    try:
        return msgspec.json.decode(parse_cursor(cursor, CURSOR_CHARS_MAX), type=Places)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def add_up(one: Any, other: Any) -> Any:
    """Figures of two cells as those of one: numbers are added, at every depth; else the first's."""
    match one, other:
        case bool(), bool():
            return one or other
        case int() | float(), int() | float():
            return one + other
        case dict(), dict():
            names = dict.fromkeys((*one, *other))
            return {
                name: add_up(one[name], other[name])
                if name in one and name in other
                else (one if name in one else other)[name]
                for name in names
            }
        case _:
            return one
