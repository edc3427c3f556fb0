"""Calls that concern every cell: figures, queues, bulk actions, sessions, the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.responses import Response

from rota.gateway.desk import Visit
from rota.gateway.fanout import Lack, ask_each, lacks, merged, partly, settle
from rota.gateway.headers import passed_in
from rota.gateway.health import Cell
from rota.gateway.limits import LONG_ANSWER_S
from rota.gateway.lines import Ask
from rota.gateway.lists import combine_queues
from rota.gateway.merge import add_up
from rota.gateway.relay import ask_of
from rota.gateway.told import Told


async def show_stats(visit: Visit) -> Response:
    """The figures of all cells together."""
    tolds = await _ask_all(visit)
    views = [msgspec.json.decode(told.body) for told in settle(tolds)]
    stats: dict[str, Any] = reduce(add_up, views)
    # Cells have queues of the same names, so adding would count one several times.
    stats["queues"] = max(view["queues"] for view in views)
    stats["started_at"] = min(view["started_at"] for view in views)
    return merged(stats, lacks(tolds))


async def show_queue(visit: Visit) -> Response:
    """One queue, in all cells that have it."""
    tolds = await _ask_all(visit)
    return merged(_combined(settle(tolds)), lacks(tolds))


async def change_queue(visit: Visit) -> Response:
    """The same setting in every cell, or in every one that has the queue."""
    tolds = await _ask_all(visit, LONG_ANSWER_S)
    done = settle(tolds)
    _check_whole(done, tolds, "the queue was changed")
    return merged(_combined(done), lacks(tolds), done[0].status)


async def purge_queue(visit: Visit) -> Response:
    """Counts of all cells, added."""
    return await _count(visit, "the queue was purged")


async def bulk_action(visit: Visit) -> Response:
    """Counts of all cells, added; an action for named jobs goes where they are."""
    try:
        asked = msgspec.json.decode(visit.body, type=_Bulk).filter
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        asked = _Filter()
    return await _count(visit, "the action was done", asked)


class _Filter(msgspec.Struct):
    tenant: str | None = None
    job_ids: list[str] | None = None


class _Bulk(msgspec.Struct):
    filter: _Filter


_ALL = _Filter()


async def _count(visit: Visit, what: str, asked: _Filter = _ALL) -> Response:
    fleet = visit.desk.fleet
    cells = _cells_of(visit, asked.job_ids)
    tolds = await ask_each(visit.desk, cells, lambda cell: ask_of(visit, cell, LONG_ANSWER_S))
    done = settle(tolds)
    # A tenant's jobs are at home, so a cell elsewhere that is down does not make it a failure.
    needed = [fleet.home(asked.tenant)] if asked.tenant else cells
    _check_whole(done, [told for told in tolds if told.cell in needed], what)
    figures = reduce(add_up, (msgspec.json.decode(told.body) for told in done))
    return merged(figures, lacks(tolds), done[0].status)


def _cells_of(visit: Visit, job_ids: Sequence[str] | None) -> list[Cell]:
    """Where these jobs may be."""
    fleet = visit.desk.fleet
    found = {job_id: fleet.of_id(job_id) for job_id in job_ids or ()}
    cells = [cell for cell in fleet.cells.values() if cell in found.values()]
    return cells if cells and None not in found.values() else list(fleet.cells.values())


def _check_whole(done: Sequence[Told], tolds: Sequence[Told], what: str) -> None:
    lacking = [Lack(told.cell.name, told.why) for told in tolds if told.missing]
    if lacking:
        raise partly(done, lacking, what)


async def share_session(visit: Visit) -> Response:
    """Signs a browser in or out in every cell; each sets a cookie of its own."""
    tolds = await _ask_all(visit)
    done = settle(tolds)
    response = Response(status_code=done[0].status)
    for told in done:
        for name, value in told.headers:
            if name == b"set-cookie":
                response.raw_headers.append((name, value))
    return response


async def show_cluster(visit: Visit) -> Response:
    """Every cell with who leads it; `?tenant=` says where that tenant's jobs go."""
    fleet = visit.desk.fleet
    tolds = await ask_each(
        visit.desk,
        fleet.cells.values(),
        lambda cell: Ask("GET", visit.path, passed_in(visit.scope, visit.headers, cell.name)),
    )
    views = {told.cell.name: msgspec.json.decode(told.body) for told in settle(tolds)}
    lacking = lacks(tolds)
    leaders = [f"{name}: {view['leader']}" for name, view in views.items() if view["leader"]]
    body: dict[str, Any] = {
        "leader": ", ".join(leaders) or None,
        "epoch": max(view["epoch"] for view in views.values()),
        "nodes": [{"cell": name, **node} for name, view in views.items() for node in view["nodes"]],
        "durability": ", ".join(dict.fromkeys(view["durability"] for view in views.values())),
        "warnings": _warnings(views, lacking),
        "cells": [_described(visit, cell, views) for cell in fleet.cells.values()],
    }
    query = parse_qs(bytes(visit.scope["query_string"]).decode("latin-1"))
    if tenant := query.get("tenant", [""])[0]:
        body["home"] = {"tenant": tenant, "cell": fleet.home(tenant).name}
    return merged(body, lacking)


def _warnings(views: dict[str, Any], lacking: Sequence[Lack]) -> list[str]:
    """What worries the cells themselves, and which of them are not there."""
    told = [f"{name}: {one}" for name, view in views.items() for one in view.get("warnings", ())]
    return [*(f"cell {lack.cell} is missing: {lack.why}" for lack in lacking), *told]


def _described(visit: Visit, cell: Cell, views: dict[str, Any]) -> dict[str, Any]:
    known = views.get(cell.name, {})
    return {
        "cell": cell.name,
        "tag": cell.tag,
        "up": cell.up,
        "ready": cell.ready,
        "why": cell.why,
        "weight": visit.desk.fleet.ring.weights[cell.name],
        "leader": known.get("leader"),
        "epoch": known.get("epoch"),
        "durability": known.get("durability"),
    }


async def _ask_all(visit: Visit, wait_s: float | None = None) -> list[Told]:
    def ask(cell: Cell) -> Ask:
        return ask_of(visit, cell) if wait_s is None else ask_of(visit, cell, wait_s)

    return await ask_each(visit.desk, visit.desk.fleet.cells.values(), ask)


def _combined(done: Sequence[Told]) -> dict[str, Any]:
    return combine_queues([(told.cell.name, told.body) for told in done])
