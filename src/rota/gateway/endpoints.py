"""Endpoints of a gateway: calls for one cell (by id, by tenant), for all cells (broadcast), and
its own health.

New jobs, schedules and triggers go to the cell of their tenant, a batch to one cell. Lists are
in `gateway/lists.py`, the stream in `gateway/stream.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.responses import Response

from rota.gateway.cells import Cell, CellDirectory, CellRequest
from rota.gateway.context import CellResponse, GatewayRequest, request_headers
from rota.gateway.forwarding import (
    MissingCell,
    ask_cells,
    merged_response,
    missing_cells,
    partly_done,
    relay,
    request_to,
    usable_responses,
)
from rota.gateway.limits import LONG_ANSWER_S
from rota.gateway.lists import add_up, combine_calendars, combine_queues
from rota.gateway.metrics import METRICS_CONTENT_TYPE
from rota.gateway.problems import retry_later
from rota.wire.formats import encode
from rota.wire.problems import FieldError, ProblemError
from rota.wire.service import Health


async def show_alive(visit: GatewayRequest) -> Response:
    """The process answers."""
    return _healthy()


async def show_ready(visit: GatewayRequest) -> Response:
    """Some cell can accept and schedule."""
    if visit.context.closing.is_set():
        raise ProblemError(503, "unavailable", "the gateway is stopping")
    cells = visit.context.directory.cells.values()
    if not any(cell.ready for cell in cells):
        names = ", ".join(cell.name for cell in cells)
        detail = f"no cell is ready: {names}"
        raise ProblemError(503, "cell_down", detail, headers=retry_later(names))
    return _healthy()


async def show_metrics(visit: GatewayRequest) -> Response:
    """The text that Prometheus reads."""
    desk = visit.context
    text = desk.metrics.expose(desk.directory.cells.values(), desk.streams.taken)
    return Response(text, media_type=METRICS_CONTENT_TYPE)


def _healthy() -> Response:
    return Response(encode(Health("ok")), media_type="application/json")


async def by_id(visit: GatewayRequest) -> Response:
    """To the cell that the id carries; one that carries none is looked for."""
    thing = next(iter(visit.params.values()))
    cell = visit.context.directory.of_id(thing) or await _find(visit)
    return await relay(visit, cell)


async def by_tenant(visit: GatewayRequest) -> Response:
    """To the tenant's own cell."""
    return await relay(visit, visit.context.directory.of_tenant(visit.params["name"]))


async def any_cell(visit: GatewayRequest) -> Response:
    """What all cells answer alike."""
    return await relay(visit, visit.context.directory.any_cell())


async def refuse_for_cell(visit: GatewayRequest) -> Response:
    """What is a cell's own affair."""
    names = ", ".join(visit.context.directory.cells)
    raise ProblemError(
        421,
        "ask_the_cell",
        "a gateway does not take this call: send it to a server of the cell itself. Workers are"
        f" started with `rota worker --server URL` of their cell; the cells here are {names}",
    )


async def file_or_refuse_for_cell(visit: GatewayRequest) -> Response:
    """How much of an upload is there, which workers ask; or a file that is called `upload` itself:
    then the slash before it is a part of its name, and encoded."""
    return await (refuse_for_cell if visit.path.endswith("/upload") else by_id)(visit)


async def _find(visit: GatewayRequest) -> Cell:
    """Asks all cells for an id without a tag: of before its cell had a name, or chosen by a worker.

    Only looks: what was asked for is sent to the one cell that has it.
    """
    fleet = visit.context.directory
    noun = "/".join(visit.path.split("/")[:3])
    tolds = await ask_cells(
        visit.context,
        fleet.cells.values(),
        lambda cell: CellRequest(
            "HEAD", noun, request_headers(visit.scope, visit.headers, cell.name)
        ),
    )
    having = [told.cell for told in tolds if told.good]
    if len(having) > 1:
        names = ", ".join(cell.name for cell in having)
        detail = f"the cells {names} all have one of this id: ask one of them directly"
        raise ProblemError(409, "ambiguous", detail)
    if having:
        return having[0]
    if absent := ", ".join(told.cell.name for told in tolds if told.missing):
        detail = f"no cell that is up has it, and {absent} cannot be asked now"
        raise ProblemError(503, "cell_down", detail, headers=retry_later(absent))
    # Asked again with its own verb, so that the cell's words reach the client.
    return min(tolds, key=lambda told: told.status != 404).cell


DEFAULT_TENANT = "default"


class Template(msgspec.Struct):
    """As much of a job as says where it goes; all else is the cell's to check."""

    tenant: str = DEFAULT_TENANT
    dependencies: Sequence[Any] = ()


class _Batch(msgspec.Struct):
    jobs: list[Template]


async def submit_job(visit: GatewayRequest) -> Response:
    """To the cell of the job's tenant."""
    try:
        job = msgspec.json.decode(visit.body, type=Template)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # What is wrong with it, a cell says best.
        return await relay(visit, visit.context.directory.any_cell())
    return await relay(visit, cell_of_jobs(visit.context.directory, [job]))


async def submit_batch(visit: GatewayRequest) -> Response:
    """To the one cell of all its tenants."""
    try:
        jobs = msgspec.json.decode(visit.body, type=_Batch).jobs
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return await relay(visit, visit.context.directory.any_cell())
    if not jobs:
        return await relay(visit, visit.context.directory.any_cell())
    return await relay(visit, cell_of_jobs(visit.context.directory, jobs, "jobs[{}]."))


def cell_of_jobs(fleet: CellDirectory, jobs: Sequence[Template], where: str = "") -> Cell:
    """The one cell that takes them all; refuses what would need two."""
    homes = {
        tenant: fleet.of_tenant(tenant) for tenant in dict.fromkeys(job.tenant for job in jobs)
    }
    first = jobs[0]
    cell = homes[first.tenant]
    for number, job in enumerate(jobs):
        if homes[job.tenant] is not cell:
            raise _elsewhere(
                where.format(number) + "tenant",
                f"tenant {job.tenant!r} is in cell {homes[job.tenant].name} and {first.tenant!r}"
                f" in cell {cell.name}: a batch goes to one cell, so send one for each",
            )
        for place, needed in enumerate(job.dependencies):
            _check_dependency(
                fleet, cell, job, needed, f"{where.format(number)}dependencies[{place}]"
            )
    return cell


def _check_dependency(
    fleet: CellDirectory, cell: Cell, job: Template, needed: Any, field: str
) -> None:
    job_id = needed.get("job_id") if isinstance(needed, dict) else needed
    there = fleet.of_id(job_id) if isinstance(job_id, str) else None
    if there is not None and there is not cell:
        raise _elsewhere(
            field,
            f"job {job_id} is in cell {there.name}, and tenant {job.tenant!r} submits to cell"
            f" {cell.name}: jobs wait only for jobs of their own cell"
            f" (`rota gateway --pin {job.tenant}={there.name}` keeps the tenant there)",
        )


def _elsewhere(field: str, message: str) -> ProblemError:
    detail = f"{field}: {message}"
    return ProblemError(422, "other_cell", detail, errors=[FieldError(field, message)])


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


class _WithJob(msgspec.Struct):
    """A schedule or trigger, as far as it says where it goes; all else is the cell's to check."""

    job: Template = msgspec.field(default_factory=Template)


class _Deployment(msgspec.Struct):
    schedules: list[_WithJob] = []
    triggers: list[_WithJob] = []


class _EventPreview(msgspec.Struct):
    trigger: _WithJob | None = None
    trigger_id: str | None = None


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What is wrong with such a body, a cell says best."""


async def create_by_tenant(visit: GatewayRequest) -> Response:
    """To the cell of its job's tenant."""
    fleet = visit.context.directory
    try:
        having = msgspec.json.decode(visit.body, type=_WithJob)
    except _UNREADABLE:
        return await relay(visit, fleet.any_cell())
    return await relay(visit, cell_of_jobs(fleet, [having.job]))


async def deploy(visit: GatewayRequest) -> Response:
    """To the one cell of all its tenants; a program that has nothing left has it nowhere."""
    fleet = visit.context.directory
    try:
        asked = msgspec.json.decode(visit.body, type=_Deployment)
    except _UNREADABLE:
        return await relay(visit, fleet.any_cell())
    noun = "schedules" if asked.schedules else "triggers"
    having = asked.schedules or asked.triggers
    if having:
        jobs = [one.job for one in having]
        return await relay(visit, cell_of_jobs(fleet, jobs, f"{noun}[{{}}].job."))
    done = await _do_in_every_cell(visit, "it was deployed")
    answers = [msgspec.json.decode(told.body) for told in done]
    return merged_response(
        {word: _joined(answers, word) for word in answers[0]}, [], done[0].status
    )


async def preview_event(visit: GatewayRequest) -> Response:
    """Against the triggers of all cells, or where the one that is meant is, or would be."""
    fleet = visit.context.directory
    try:
        asked = msgspec.json.decode(visit.body, type=_EventPreview)
    except _UNREADABLE:
        return await relay(visit, fleet.any_cell())
    if asked.trigger is not None:
        return await relay(visit, cell_of_jobs(fleet, [asked.trigger.job]))
    home = fleet.of_id(asked.trigger_id or "")
    if home is not None:
        return await relay(visit, home)
    tolds = await _ask_every_cell(visit)
    answers = [msgspec.json.decode(told.body) for told in usable_responses(tolds)]
    return merged_response({"items": _joined(answers, "items")}, missing_cells(tolds))


async def send_event(visit: GatewayRequest) -> Response:
    """To every cell, for triggers of any may wait for it; a repeat has no effect where it was."""
    done = await _do_in_every_cell(visit, "the event was taken")
    answers = [msgspec.json.decode(told.body) for told in done]
    if "items" in answers[0]:
        same = zip(*(answer["items"] for answer in answers), strict=True)
        return merged_response({"items": [_one_event(views) for views in same]}, [], done[0].status)
    return merged_response(_one_event(answers), [], done[0].status)


def _one_event(views: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all cells made of it."""
    return {
        **views[0],
        "duplicate": all(view["duplicate"] for view in views),
        "job_ids": _joined(views, "job_ids"),
        "outcomes": _joined(views, "outcomes"),
    }


async def show_calendar(visit: GatewayRequest) -> Response:
    """One of those that are alike in all cells, with the schedules of all that name it."""
    tolds = await _ask_every_cell(visit)
    return merged_response(
        combine_calendars([told.body for told in usable_responses(tolds)]), missing_cells(tolds)
    )


async def change_calendar(visit: GatewayRequest) -> Response:
    """The same dates in every cell, or in none any more."""
    done = await _do_in_every_cell(visit, "the calendar was changed")
    if not done[0].body:
        return Response(status_code=done[0].status)
    return merged_response(combine_calendars([told.body for told in done]), [], done[0].status)


async def _do_in_every_cell(visit: GatewayRequest, what: str) -> Sequence[CellResponse]:
    """Whole, or a failure: whoever asked can ask again."""
    tolds = await _ask_every_cell(visit)
    done = usable_responses(tolds)
    lacking = [MissingCell(told.cell.name, told.why) for told in tolds if told.missing]
    if lacking:
        raise partly_done(done, lacking, what)
    return done


async def _ask_every_cell(visit: GatewayRequest) -> list[CellResponse]:
    def ask(cell: Cell) -> Any:
        return request_to(visit, cell)

    return await ask_cells(visit.context, visit.context.directory.cells.values(), ask)


def _joined(views: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [item for view in views for item in view[name]]


View = dict[str, Any]


async def show_autoscale(visit: GatewayRequest) -> Response:
    """Workers of one cell do nothing for another: what each needs is added up."""
    return await _together(visit, join_autoscale)


async def show_waste(visit: GatewayRequest) -> Response:
    """The reports of all cells as one."""
    return await _together(visit, join_waste)


async def _together(visit: GatewayRequest, join: Callable[[list[View]], View]) -> Response:
    cells = visit.context.directory.cells.values()
    tolds = await ask_cells(visit.context, cells, lambda cell: request_to(visit, cell))
    return merged_response(
        join([msgspec.json.decode(told.body) for told in usable_responses(tolds)]),
        missing_cells(tolds),
    )


def join_autoscale(views: list[View]) -> View:
    """Kinds of workers stay apart by cell, and shapes of jobs with them."""
    kinds: list[View] = []
    shapes: dict[str, list[View]] = {}
    for view in views:
        for name, queue in view["queues"].items():
            for shape in queue["shapes"]:
                if shape["kind"] is not None:
                    shape["kind"] += len(kinds)
                shapes.setdefault(name, []).append(shape)
        kinds += view["kinds"]
    whole: View = reduce(add_up, views)
    whole["at"], whole["target"] = views[0]["at"], views[0]["target"]
    whole["kinds"] = kinds
    for name, queue in whole["queues"].items():
        queue["shapes"] = shapes.get(name, [])
    return whole


def join_waste(views: list[View]) -> View:
    """A tenant that has moved may be in two cells."""
    tenants: dict[str, View] = {}
    for one in (one for view in views for one in view["tenants"]):
        known = tenants.get(one["tenant"])
        tenants[one["tenant"]] = one if known is None else add_up(known, one)
    return {
        "since": min(view["since"] for view in views),
        "sums": reduce(add_up, (view["sums"] for view in views)),
        "tenants": sorted(tenants.values(), key=_wasted, reverse=True),
        "items": sorted((i for view in views for i in view["items"]), key=_wasted, reverse=True),
    }


def _wasted(one: View) -> float:
    hours: float = one["sums"]["cpu_hours_wasted"]
    return hours
