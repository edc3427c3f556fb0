"""Calls that concern every cell: figures, queues, bulk actions, sessions, the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.responses import Response

from rota.gateway.desk import GatewayRequest
from rota.gateway.fanout import (
    MissingCell,
    ask_cells,
    merged_response,
    missing_cells,
    partly_done,
    usable_responses,
)
from rota.gateway.headers import request_headers
from rota.gateway.health import Cell
from rota.gateway.limits import LONG_ANSWER_S
from rota.gateway.lines import CellRequest
from rota.gateway.lists import combine_queues
from rota.gateway.merge import add_up
from rota.gateway.relay import request_to
from rota.gateway.told import CellResponse


async def show_stats(visit: GatewayRequest) -> Response:
    """The figures of all cells together."""
    tolds = await _ask_all(visit)
    views = [msgspec.json.decode(told.body) for told in usable_responses(tolds)]
    stats: dict[str, Any] = reduce(add_up, views)
    # Cells have queues of the same names, so adding would count one several times.
    stats["queues"] = max(view["queues"] for view in views)
    stats["started_at"] = min(view["started_at"] for view in views)
    return merged_response(stats, missing_cells(tolds))


async def show_queue(visit: GatewayRequest) -> Response:
    """One queue, in all cells that have it."""
    tolds = await _ask_all(visit)
    return merged_response(_combined(usable_responses(tolds)), missing_cells(tolds))


async def change_queue(visit: GatewayRequest) -> Response:
    """The same setting in every cell, or in every one that has the queue."""
    tolds = await _ask_all(visit, LONG_ANSWER_S)
    done = usable_responses(tolds)
    _check_complete(done, tolds, "the queue was changed")
    return merged_response(_combined(done), missing_cells(tolds), done[0].status)


async def purge_queue(visit: GatewayRequest) -> Response:
    """Counts of all cells, added."""
    return await _count(visit, "the queue was purged")


async def bulk_action(visit: GatewayRequest) -> Response:
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


async def _count(visit: GatewayRequest, what: str, asked: _Filter = _ALL) -> Response:
    fleet = visit.context.directory
    cells = _cells_of(visit, asked.job_ids)
    tolds = await ask_cells(
        visit.context, cells, lambda cell: request_to(visit, cell, LONG_ANSWER_S)
    )
    done = usable_responses(tolds)
    # A tenant's jobs are at home, so a cell elsewhere that is down does not make it a failure.
    needed = [fleet.of_tenant(asked.tenant)] if asked.tenant else cells
    _check_complete(done, [told for told in tolds if told.cell in needed], what)
    figures = reduce(add_up, (msgspec.json.decode(told.body) for told in done))
    return merged_response(figures, missing_cells(tolds), done[0].status)


def _cells_of(visit: GatewayRequest, job_ids: Sequence[str] | None) -> list[Cell]:
    """Where these jobs may be."""
    fleet = visit.context.directory
    found = {job_id: fleet.of_id(job_id) for job_id in job_ids or ()}
    cells = [cell for cell in fleet.cells.values() if cell in found.values()]
    return cells if cells and None not in found.values() else list(fleet.cells.values())


def _check_complete(done: Sequence[CellResponse], tolds: Sequence[CellResponse], what: str) -> None:
    lacking = [MissingCell(told.cell.name, told.why) for told in tolds if told.missing]
    if lacking:
        raise partly_done(done, lacking, what)


async def share_session(visit: GatewayRequest) -> Response:
    """Signs a browser in or out in every cell; each sets a cookie of its own."""
    tolds = await _ask_all(visit)
    done = usable_responses(tolds)
    response = Response(status_code=done[0].status)
    for told in done:
        for name, value in told.headers:
            if name == b"set-cookie":
                response.raw_headers.append((name, value))
    return response


async def show_cluster(visit: GatewayRequest) -> Response:
    """Every cell with who leads it; `?tenant=` says where that tenant's jobs go."""
    fleet = visit.context.directory
    tolds = await ask_cells(
        visit.context,
        fleet.cells.values(),
        lambda cell: CellRequest(
            "GET", visit.path, request_headers(visit.scope, visit.headers, cell.name)
        ),
    )
    views = {told.cell.name: msgspec.json.decode(told.body) for told in usable_responses(tolds)}
    lacking = missing_cells(tolds)
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
        body["home"] = {"tenant": tenant, "cell": fleet.of_tenant(tenant).name}
    return merged_response(body, lacking)


def _warnings(views: dict[str, Any], lacking: Sequence[MissingCell]) -> list[str]:
    """What worries the cells themselves, and which of them are not there."""
    told = [f"{name}: {one}" for name, view in views.items() for one in view.get("warnings", ())]
    return [*(f"cell {lack.cell} is missing: {lack.why}" for lack in lacking), *told]


def _described(visit: GatewayRequest, cell: Cell, views: dict[str, Any]) -> dict[str, Any]:
    known = views.get(cell.name, {})
    return {
        "cell": cell.name,
        "tag": cell.tag,
        "up": cell.up,
        "ready": cell.ready,
        "why": cell.why,
        "weight": visit.context.directory.router.weights[cell.name],
        "leader": known.get("leader"),
        "epoch": known.get("epoch"),
        "durability": known.get("durability"),
    }


async def _ask_all(visit: GatewayRequest, wait_s: float | None = None) -> list[CellResponse]:
    def ask(cell: Cell) -> CellRequest:
        return request_to(visit, cell) if wait_s is None else request_to(visit, cell, wait_s)

    return await ask_cells(visit.context, visit.context.directory.cells.values(), ask)


def _combined(done: Sequence[CellResponse]) -> dict[str, Any]:
    return combine_queues([(told.cell.name, told.body) for told in done])
