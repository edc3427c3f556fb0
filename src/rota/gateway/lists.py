"""Merged lists of all cells: pagination of jobs, executions, workers, queues, schedules, triggers
and calendars.

A page begins at a position in each cell. A cell that is down keeps its position: its items come
late, but each comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.responses import Response

from rota.gateway.cells import Cell, CellRequest
from rota.gateway.context import CellResponse, GatewayRequest, request_headers
from rota.gateway.forwarding import (
    ask_cells,
    merged_response,
    missing_cells,
    relay,
    usable_responses,
)
from rota.gateway.limits import CURSOR_CHARS_MAX
from rota.gateway.problems import invalid
from rota.wire.formats import make_cursor, parse_cursor, to_instant
from rota.wire.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX

Positions = dict[str, str | None]
"""Position in each cell: after the item with this key, or (None) at its beginning.

Cells that are not in it have no more items.
"""
Group = list[tuple[str, bytes]]
"""Items of one key: (cell, item)."""
First = Callable[[Sequence[str]], str]
"""Chooses the first of some keys."""


@dataclass(frozen=True, slots=True)
class Part:
    """Page of one cell: items with their sort keys."""

    cell: str
    items: Sequence[tuple[str, bytes]]
    rest: str | None
    """Position of the next page: behind the last item, or further where the cell searched and found
    nothing. None: there is none."""


@dataclass(slots=True)
class Page:
    """Merged page; items of the same key stay together."""

    groups: list[Group] = field(default_factory=list)
    rest: Positions = field(default_factory=dict)


def merge_pages(
    parts: Sequence[Part], positions: Mapping[str, str | None], limit: int, *, falling: bool
) -> Page:
    """Merges the first `limit` items, and returns the next position in each cell.

    The page ends early where a cell's page is used up and the cell has more: its next item may come
    before the remaining ones of the others.
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
            page.rest[part.cell] = part.items[taken - 1][0] if taken else positions[part.cell]
        elif part.rest is not None:
            page.rest[part.cell] = part.rest
    return page


def _next_group(parts: Sequence[Part], used: Mapping[str, int], first: First) -> Group:
    """Returns the items of the next key; none if there is no more, or which is next is unknown."""
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


def write_cursor(positions: Positions) -> str | None:
    """Writes the cursor of a merged list; None at its end."""
    return make_cursor(msgspec.json.encode(positions).decode()) if positions else None


def read_cursor(cursor: str) -> Positions:
    """Reads a cursor; raises ValueError if it is not one of a gateway."""
    try:
        return msgspec.json.decode(parse_cursor(cursor, CURSOR_CHARS_MAX), type=Positions)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def add_up(one: Any, other: Any) -> Any:
    """Adds up documents of two cells: numbers at every depth; else the first one's value stays."""
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


Query = list[tuple[str, str]]


class _Page(msgspec.Struct):
    items: list[msgspec.Raw]
    next_cursor: str | None = None


class _Job(msgspec.Struct):
    job_id: str


class _Execution(msgspec.Struct):
    execution_id: str


class _Worker(msgspec.Struct):
    worker_id: str
    registered_at: datetime


class _Schedule(msgspec.Struct):
    schedule_id: str


class _Trigger(msgspec.Struct):
    trigger_id: str


class _Named(msgspec.Struct):
    name: str


@dataclass(frozen=True, slots=True)
class ListOrder:
    """Sort order of a list: by a key that its cells sort by as well."""

    item: type[Any]
    key: Callable[[Any], str]
    descending: bool = True


JOBS = ListOrder(_Job, lambda job: str(job.job_id))
EXECUTIONS = ListOrder(_Execution, lambda execution: str(execution.execution_id))
WORKERS = ListOrder(
    _Worker, lambda worker: f"{to_instant(worker.registered_at):015d}:{worker.worker_id}"
)
SCHEDULES = ListOrder(_Schedule, lambda schedule: str(schedule.schedule_id))
TRIGGERS = ListOrder(_Trigger, lambda trigger: str(trigger.trigger_id))
QUEUES = ListOrder(_Named, lambda queue: str(queue.name), descending=False)
CALENDARS = ListOrder(_Named, lambda calendar: str(calendar.name), descending=False)


async def list_jobs(request: GatewayRequest) -> Response:
    """Lists jobs, newest first."""
    return await _list(request, JOBS)


async def list_executions(request: GatewayRequest) -> Response:
    """Lists executions, newest first; those of one job are in its cell."""
    return await _list(request, EXECUTIONS)


async def list_workers(request: GatewayRequest) -> Response:
    """Lists workers, the newest registration first."""
    return await _list(request, WORKERS)


async def list_schedules(request: GatewayRequest) -> Response:
    """Lists schedules, newest first."""
    return await _list(request, SCHEDULES)


async def list_triggers(request: GatewayRequest) -> Response:
    """Lists triggers, newest first."""
    return await _list(request, TRIGGERS)


async def list_calendars(request: GatewayRequest) -> Response:
    """Lists calendars by name; those of one name in several cells are one."""
    return await _list(request, CALENDARS)


async def list_queues(request: GatewayRequest) -> Response:
    """Lists queues by name; those of one name in several cells are one."""
    return await _list(request, QUEUES)


async def _list(request: GatewayRequest, order: ListOrder) -> Response:
    query = _pairs(request)
    limit = _limit(query)
    if limit is None:
        # A cell answers best what is wrong with it.
        return await relay(request, request.context.directory.any_cell())
    positions = _positions(request, query)
    cells = [request.context.directory.cells[name] for name in positions]
    responses = await ask_cells(
        request.context, cells, lambda cell: _ask(request, query, positions, cell)
    )
    parts = [_part(response, order) for response in usable_responses(responses)]
    page = merge_pages(parts, positions, limit, falling=order.descending)
    rest = page.rest | _positions_of_missing(request, query, positions, responses)
    items = [item for group in page.groups for item in _shown(order, group)]
    return merged_response(
        {"items": items, "next_cursor": write_cursor(rest)}, missing_cells(responses)
    )


def _shown(order: ListOrder, group: Sequence[tuple[str, bytes]]) -> Sequence[Any]:
    """Returns the items of one key: those with a name are one for all cells, ids differ."""
    if order is QUEUES:
        return [combine_queues(group)]
    if order is CALENDARS:
        return [combine_calendars([item for _, item in group])]
    return [msgspec.Raw(item) for _, item in group]


def combine_queues(group: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    """Combines a queue of several cells: adds depths and rates, and shows each cell's own view."""
    views: dict[str, dict[str, Any]] = {cell: msgspec.json.decode(raw) for cell, raw in group}
    first = next(iter(views.values()))
    depth = reduce(add_up, (view.get("depth", {}) for view in views.values()))
    known = [view["rate"] for view in views.values() if view.get("rate") is not None]
    return {**first, "depth": depth, "rate": sum(known) if known else None, "cells": views}


def combine_calendars(bodies: Sequence[bytes]) -> dict[str, Any]:
    """Combines a calendar, which is equal in all cells; adds up the schedules that name it."""
    views = [msgspec.json.decode(body) for body in bodies]
    return {**views[0], "schedules": sum(view["schedules"] for view in views)}


def _pairs(request: GatewayRequest) -> Query:
    text = bytes(request.scope["query_string"]).decode("latin-1")
    return parse_qsl(text, keep_blank_values=True)


def _limit(query: Query) -> int | None:
    given = [value for name, value in query if name == "limit" and value]
    if not given:
        return PAGE_ITEMS_DEFAULT
    # An invalid limit is left to a cell to refuse.
    if len(given) > 1 or not given[0].isascii() or not given[0].isdigit():
        return None
    return int(given[0]) if 1 <= int(given[0][:9]) <= PAGE_ITEMS_MAX else None


def _positions(request: GatewayRequest, query: Query) -> Positions:
    """Returns the position in each cell at which the page begins."""
    directory, given = request.context.directory, dict(query)
    if cursor := given.get("cursor"):
        try:
            positions = read_cursor(cursor)
        except ValueError:
            message = "not a cursor of this gateway: send `next_cursor` of the page before"
            raise invalid("cursor", message) from None
        known: Positions = {
            name: position for name, position in positions.items() if name in directory.cells
        }
        if not known:
            raise invalid("cursor", "its cells are not in this gateway: begin again without it")
        return known
    job = directory.of_id(given.get("job_id", ""))
    return {job.name: None} if job is not None else dict.fromkeys(directory.cells)


def _ask(request: GatewayRequest, query: Query, positions: Positions, cell: Cell) -> CellRequest:
    pairs = [pair for pair in query if pair[0] != "cursor"]
    position = positions[cell.name]
    if position is not None:
        pairs.append(("cursor", make_cursor(position)))
    headers = request_headers(request.scope, request.headers, cell.name)
    target = f"{request.path}?{urlencode(pairs)}" if pairs else request.path
    return CellRequest("GET", target, headers)


def _part(response: CellResponse, order: ListOrder) -> Part:
    page = msgspec.json.decode(response.body, type=_Page)
    items = [
        (order.key(msgspec.json.decode(raw, type=order.item)), bytes(raw)) for raw in page.items
    ]
    rest = None if page.next_cursor is None else parse_cursor(page.next_cursor, CURSOR_CHARS_MAX)
    return Part(response.cell.name, items, rest)


def _positions_of_missing(
    request: GatewayRequest, query: Query, positions: Positions, responses: Sequence[CellResponse]
) -> dict[str, str | None]:
    """Keeps positions of cells that are down: a list must not end as if they had no items.

    A list of one tenant needs only the tenant's cell, so others are left out.
    """
    tenant = dict(query).get("tenant")
    home = request.context.directory.of_tenant(tenant).name if tenant else None
    return {
        response.cell.name: positions[response.cell.name]
        for response in responses
        if response.missing and home in (None, response.cell.name)
    }
