"""Schedules, triggers and events: made where their tenant is, told to every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from rota.gateway.health import Cell
from rota.gateway.lists import combine_calendars
from rota.gateway.relay import relay, request_to
from rota.gateway.submit import Template, cell_of_jobs
from rota.gateway.told import CellResponse


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
