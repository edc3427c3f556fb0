"""Endpoints of a gateway: calls for one cell (by id, by tenant), for all cells (broadcast), and its
own health.

New jobs, schedules and triggers go to the cell of their tenant, a batch to one cell. Lists are in
`gateway/lists.py`, the stream in `gateway/stream.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar
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
from rota.gateway.limits import ANSWER_S, LONG_ANSWER_S
from rota.gateway.lists import add_up, combine_calendars, combine_queues
from rota.gateway.metrics import METRICS_CONTENT_TYPE
from rota.gateway.problems import retry_later
from rota.wire.formats import encode
from rota.wire.problems import FieldError, ProblemError
from rota.wire.service import Health

T = TypeVar("T")
View = dict[str, Any]

# Health


async def show_alive(request: GatewayRequest) -> Response:
    """Answers that the process runs."""
    return _healthy()


async def show_ready(request: GatewayRequest) -> Response:
    """Answers whether some cell can accept and schedule jobs."""
    if request.context.closing.is_set():
        raise ProblemError(503, "unavailable", "the gateway is stopping")
    cells = request.context.directory.cells.values()
    if not any(cell.ready for cell in cells):
        names = ", ".join(cell.name for cell in cells)
        detail = f"no cell is ready: {names}"
        raise ProblemError(503, "cell_down", detail, headers=retry_later(names))
    return _healthy()


async def show_metrics(request: GatewayRequest) -> Response:
    context = request.context
    text = context.metrics.expose(context.directory.cells.values(), context.streams.taken)
    return Response(text, media_type=METRICS_CONTENT_TYPE)


def _healthy() -> Response:
    return Response(encode(Health("ok")), media_type="application/json")


# One cell


async def by_id(request: GatewayRequest) -> Response:
    """Relays to the cell whose tag the id carries; asks all cells for an id without a tag."""
    thing_id = next(iter(request.params.values()))
    cell = request.context.directory.of_id(thing_id) or await _find(request)
    return await relay(request, cell)


async def by_tenant(request: GatewayRequest) -> Response:
    """Relays to the tenant's cell."""
    return await relay(request, request.context.directory.of_tenant(request.params["name"]))


async def any_cell(request: GatewayRequest) -> Response:
    """Relays to any cell: all answer this call alike."""
    return await relay(request, request.context.directory.any_cell())


async def refuse_for_cell(request: GatewayRequest) -> Response:
    """Refuses a call that only a cell itself takes."""
    names = ", ".join(request.context.directory.cells)
    raise ProblemError(
        421,
        "ask_the_cell",
        "a gateway does not take this call: send it to a server of the cell itself. Workers are"
        f" started with `rota worker --server URL` of their cell; the cells here are {names}",
    )


async def file_or_refuse_for_cell(request: GatewayRequest) -> Response:
    """Refuses a worker's question for its upload, but relays a request for a file named `upload`.

    In the path of such a file the slash before `upload` is a part of its name, and encoded.
    """
    return await (refuse_for_cell if request.path.endswith("/upload") else by_id)(request)


async def _find(request: GatewayRequest) -> Cell:
    """Finds the cell of an id without a tag: made before its cell had a name, or by a worker.

    It only looks (HEAD): the request itself goes to the one cell that has it.
    """
    directory = request.context.directory
    path = "/".join(request.path.split("/")[:3])
    responses = await ask_cells(
        request.context,
        directory.cells.values(),
        lambda cell: CellRequest(
            "HEAD", path, request_headers(request.scope, request.headers, cell.name)
        ),
    )
    found = [one.cell for one in responses if one.good]
    if len(found) > 1:
        names = ", ".join(cell.name for cell in found)
        detail = f"the cells {names} all have one of this id: ask one of them directly"
        raise ProblemError(409, "ambiguous", detail)
    if found:
        return found[0]
    if missing := ", ".join(one.cell.name for one in responses if one.missing):
        detail = f"no cell that is up has it, and {missing} cannot be asked now"
        raise ProblemError(503, "cell_down", detail, headers=retry_later(missing))
    # This cell gets the request itself too, so that the client gets the cell's own answer.
    return min(responses, key=lambda one: one.status != 404).cell


# Where new jobs, schedules and triggers go

DEFAULT_TENANT = "default"


class Template(msgspec.Struct):
    """Fields of a job that say where it goes; the cell checks all others."""

    tenant: str = DEFAULT_TENANT
    dependencies: Sequence[Any] = ()


class _Batch(msgspec.Struct):
    jobs: list[Template]


class _WithJob(msgspec.Struct):
    """Fields of a schedule or trigger that say where it goes."""

    job: Template = msgspec.field(default_factory=Template)


class _Deployment(msgspec.Struct):
    schedules: list[_WithJob] = []
    triggers: list[_WithJob] = []


class _EventPreview(msgspec.Struct):
    trigger: _WithJob | None = None
    trigger_id: str | None = None


def _read(request: GatewayRequest, kind: type[T]) -> T | None:
    """Reads the body; None: it is invalid, and a cell answers best what is wrong with it."""
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


async def submit_job(request: GatewayRequest) -> Response:
    """Relays to the cell of the job's tenant."""
    job = _read(request, Template)
    return await _relay_jobs(request, [] if job is None else [job])


async def submit_batch(request: GatewayRequest) -> Response:
    """Relays to the one cell of all tenants in the batch."""
    batch = _read(request, _Batch)
    return await _relay_jobs(request, [] if batch is None else batch.jobs, "jobs[{}].")


async def create_by_tenant(request: GatewayRequest) -> Response:
    """Relays a schedule or trigger to the cell of its job's tenant."""
    made = _read(request, _WithJob)
    return await _relay_jobs(request, [] if made is None else [made.job])


async def _relay_jobs(
    request: GatewayRequest, jobs: Sequence[Template], where: str = ""
) -> Response:
    directory = request.context.directory
    cell = cell_of_jobs(directory, jobs, where) if jobs else directory.any_cell()
    return await relay(request, cell)


def cell_of_jobs(directory: CellDirectory, jobs: Sequence[Template], where: str = "") -> Cell:
    """Returns the cell of all jobs; refuses jobs of two cells."""
    homes = {
        tenant: directory.of_tenant(tenant) for tenant in dict.fromkeys(job.tenant for job in jobs)
    }
    first = jobs[0]
    cell = homes[first.tenant]
    for number, job in enumerate(jobs):
        if homes[job.tenant] is not cell:
            raise _other_cell(
                where.format(number) + "tenant",
                f"tenant {job.tenant!r} is in cell {homes[job.tenant].name} and {first.tenant!r}"
                f" in cell {cell.name}: a batch goes to one cell, so send one for each",
            )
        for place, needed in enumerate(job.dependencies):
            field = f"{where.format(number)}dependencies[{place}]"
            _check_dependency(directory, cell, job, needed, field)
    return cell


def _check_dependency(
    directory: CellDirectory, cell: Cell, job: Template, needed: Any, field: str
) -> None:
    job_id = needed.get("job_id") if isinstance(needed, dict) else needed
    home = directory.of_id(job_id) if isinstance(job_id, str) else None
    if home is not None and home is not cell:
        raise _other_cell(
            field,
            f"job {job_id} is in cell {home.name}, and tenant {job.tenant!r} submits to cell"
            f" {cell.name}: jobs wait only for jobs of their own cell"
            f" (`rota gateway --pin {job.tenant}={home.name}` keeps the tenant there)",
        )


def _other_cell(field: str, message: str) -> ProblemError:
    detail = f"{field}: {message}"
    return ProblemError(422, "other_cell", detail, errors=[FieldError(field, message)])


async def deploy(request: GatewayRequest) -> Response:
    """Relays to the one cell of all its tenants; an empty deployment goes to every cell."""
    asked = _read(request, _Deployment)
    if asked is None:
        return await any_cell(request)
    noun = "schedules" if asked.schedules else "triggers"
    jobs = [one.job for one in asked.schedules or asked.triggers]
    if jobs:
        return await _relay_jobs(request, jobs, f"{noun}[{{}}].job.")
    done = await _do_in_all(request, "it was deployed")
    views = _views(done)
    return merged_response({name: _joined(views, name) for name in views[0]}, [], done[0].status)


async def preview_event(request: GatewayRequest) -> Response:
    """Tests an event against all cells' triggers, or in the cell of the trigger that it names."""
    asked = _read(request, _EventPreview)
    if asked is None:
        return await any_cell(request)
    if asked.trigger is not None:
        return await _relay_jobs(request, [asked.trigger.job])
    home = request.context.directory.of_id(asked.trigger_id or "")
    if home is not None:
        return await relay(request, home)
    responses = await _ask_all(request)
    items = _joined(_views(usable_responses(responses)), "items")
    return merged_response({"items": items}, missing_cells(responses))


# All cells


async def _ask_all(request: GatewayRequest, wait_s: float = ANSWER_S) -> list[CellResponse]:
    cells = request.context.directory.cells.values()
    return await ask_cells(request.context, cells, lambda cell: request_to(request, cell, wait_s))


async def _do_in_all(request: GatewayRequest, what: str) -> Sequence[CellResponse]:
    """Does it in every cell; fails if one is missing, so that the client asks again."""
    responses = await _ask_all(request)
    done = usable_responses(responses)
    _check_complete(done, responses, what)
    return done


def _check_complete(
    done: Sequence[CellResponse], responses: Sequence[CellResponse], what: str
) -> None:
    missing = [MissingCell(one.cell.name, one.why) for one in responses if one.missing]
    if missing:
        raise partly_done(done, missing, what)


def _views(responses: Sequence[CellResponse]) -> list[View]:
    return [msgspec.json.decode(one.body) for one in responses]


def _joined(views: Sequence[View], name: str) -> list[Any]:
    return [item for view in views for item in view[name]]


async def show_stats(request: GatewayRequest) -> Response:
    """Adds up the statistics of all cells."""
    return await _show_joined(request, join_stats)


async def show_autoscale(request: GatewayRequest) -> Response:
    """Adds up the workers that each cell needs: those of one do nothing for another."""
    return await _show_joined(request, join_autoscale)


async def show_waste(request: GatewayRequest) -> Response:
    """Joins the reports of all cells."""
    return await _show_joined(request, join_waste)


async def _show_joined(request: GatewayRequest, join: Callable[[list[View]], View]) -> Response:
    responses = await _ask_all(request)
    return merged_response(join(_views(usable_responses(responses))), missing_cells(responses))


def join_stats(views: list[View]) -> View:
    whole: View = reduce(add_up, views)
    # Cells have queues of the same names, so adding would count one several times.
    whole["queues"] = max(view["queues"] for view in views)
    whole["started_at"] = min(view["started_at"] for view in views)
    return whole


def join_autoscale(views: list[View]) -> View:
    """Adds up demand; worker types, and the shapes that refer to them, stay apart by cell."""
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
    """Joins reports; a tenant that was moved may be in two cells."""
    tenants: dict[str, View] = {}
    for one in _joined(views, "tenants"):
        known = tenants.get(one["tenant"])
        tenants[one["tenant"]] = one if known is None else add_up(known, one)
    return {
        "since": min(view["since"] for view in views),
        "sums": reduce(add_up, (view["sums"] for view in views)),
        "tenants": sorted(tenants.values(), key=_wasted_hours, reverse=True),
        "items": sorted(_joined(views, "items"), key=_wasted_hours, reverse=True),
    }


def _wasted_hours(one: View) -> float:
    hours: float = one["sums"]["cpu_hours_wasted"]
    return hours


async def show_queue(request: GatewayRequest) -> Response:
    """Shows one queue, of all cells that have it."""
    responses = await _ask_all(request)
    return merged_response(_combined(usable_responses(responses)), missing_cells(responses))


async def change_queue(request: GatewayRequest) -> Response:
    """Changes a queue in every cell, or in all that have it."""
    responses = await _ask_all(request, LONG_ANSWER_S)
    done = usable_responses(responses)
    _check_complete(done, responses, "the queue was changed")
    return merged_response(_combined(done), missing_cells(responses), done[0].status)


def _combined(done: Sequence[CellResponse]) -> View:
    return combine_queues([(one.cell.name, one.body) for one in done])


class _Filter(msgspec.Struct):
    tenant: str | None = None
    job_ids: list[str] | None = None


class _Bulk(msgspec.Struct):
    filter: _Filter = msgspec.field(default_factory=_Filter)


async def purge_queue(request: GatewayRequest) -> Response:
    """Purges a queue in all cells and adds up the counts."""
    return await _count(request, "the queue was purged", _Filter())


async def bulk_action(request: GatewayRequest) -> Response:
    """Runs a bulk action in all cells, or where the named jobs are, and adds up the counts."""
    asked = _read(request, _Bulk) or _Bulk()
    return await _count(request, "the action was done", asked.filter)


async def _count(request: GatewayRequest, what: str, asked: _Filter) -> Response:
    directory = request.context.directory
    cells = _cells_of(directory, asked.job_ids or ())
    responses = await ask_cells(
        request.context, cells, lambda cell: request_to(request, cell, LONG_ANSWER_S)
    )
    done = usable_responses(responses)
    # A tenant's jobs are in its own cell: if another cell is down, the action is still complete.
    needed = [directory.of_tenant(asked.tenant)] if asked.tenant else cells
    _check_complete(done, [one for one in responses if one.cell in needed], what)
    counts = reduce(add_up, _views(done))
    return merged_response(counts, missing_cells(responses), done[0].status)


def _cells_of(directory: CellDirectory, job_ids: Sequence[str]) -> list[Cell]:
    """Returns the cells in which these jobs may be; all where no job is named."""
    found = [directory.of_id(job_id) for job_id in job_ids]
    cells = [cell for cell in directory.cells.values() if cell in found]
    return cells if cells and None not in found else list(directory.cells.values())


async def share_session(request: GatewayRequest) -> Response:
    """Signs a browser in or out in every cell; each sets a cookie of its own."""
    done = usable_responses(await _ask_all(request))
    response = Response(status_code=done[0].status)
    for one in done:
        response.raw_headers += [pair for pair in one.headers if pair[0] == b"set-cookie"]
    return response


async def send_event(request: GatewayRequest) -> Response:
    """Sends an event to every cell, for triggers of any may wait for it; a repeat does nothing."""
    done = await _do_in_all(request, "the event was accepted")
    views = _views(done)
    if "items" in views[0]:
        same = zip(*(view["items"] for view in views), strict=True)
        return merged_response({"items": [_join_event(each) for each in same]}, [], done[0].status)
    return merged_response(_join_event(views), [], done[0].status)


def _join_event(views: Sequence[View]) -> View:
    return {
        **views[0],
        "duplicate": all(view["duplicate"] for view in views),
        "job_ids": _joined(views, "job_ids"),
        "outcomes": _joined(views, "outcomes"),
    }


async def show_calendar(request: GatewayRequest) -> Response:
    """Shows a calendar, which is equal in all cells, with the number of their schedules."""
    responses = await _ask_all(request)
    calendar = combine_calendars([one.body for one in usable_responses(responses)])
    return merged_response(calendar, missing_cells(responses))


async def change_calendar(request: GatewayRequest) -> Response:
    """Sets or deletes a calendar in every cell."""
    done = await _do_in_all(request, "the calendar was changed")
    if not done[0].body:
        return Response(status_code=done[0].status)
    return merged_response(combine_calendars([one.body for one in done]), [], done[0].status)


async def show_cluster(request: GatewayRequest) -> Response:
    """Shows every cell with its leader; `?tenant=` says to which cell that tenant's jobs go."""
    directory = request.context.directory
    responses = await ask_cells(
        request.context,
        directory.cells.values(),
        lambda cell: CellRequest(
            "GET", request.path, request_headers(request.scope, request.headers, cell.name)
        ),
    )
    views = {one.cell.name: msgspec.json.decode(one.body) for one in usable_responses(responses)}
    missing = missing_cells(responses)
    leaders = [f"{name}: {view['leader']}" for name, view in views.items() if view["leader"]]
    body: View = {
        "leader": ", ".join(leaders) or None,
        "epoch": max(view["epoch"] for view in views.values()),
        "nodes": [{"cell": name, **node} for name, view in views.items() for node in view["nodes"]],
        "durability": ", ".join(dict.fromkeys(view["durability"] for view in views.values())),
        "warnings": _warnings(views, missing),
        "cells": [_cell_view(request, cell, views) for cell in directory.cells.values()],
    }
    query = parse_qs(bytes(request.scope["query_string"]).decode("latin-1"))
    if tenant := query.get("tenant", [""])[0]:
        body["home"] = {"tenant": tenant, "cell": directory.of_tenant(tenant).name}
    return merged_response(body, missing)


def _warnings(views: dict[str, Any], missing: Sequence[MissingCell]) -> list[str]:
    """Lists cells that are missing, and the warnings of the others."""
    own = [f"{name}: {one}" for name, view in views.items() for one in view.get("warnings", ())]
    return [*(f"cell {one.cell} is missing: {one.why}" for one in missing), *own]


def _cell_view(request: GatewayRequest, cell: Cell, views: dict[str, Any]) -> View:
    known = views.get(cell.name, {})
    return {
        "cell": cell.name,
        "tag": cell.tag,
        "up": cell.up,
        "ready": cell.ready,
        "why": cell.why,
        "weight": request.context.directory.router.weights[cell.name],
        "leader": known.get("leader"),
        "epoch": known.get("epoch"),
        "durability": known.get("durability"),
    }
