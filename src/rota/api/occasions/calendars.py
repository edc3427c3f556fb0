"""Calendars: named lists of dates on which schedules do not run, or run later."""

from __future__ import annotations

from typing import Any

from rota.api.customs.paging import PageQuery, page_of
from rota.api.customs.timetables import calendar_of, calendar_view
from rota.api.door.roles import Permission
from rota.api.lookup import is_own, name_in
from rota.api.problems import not_found
from rota.api.recall import expect, post
from rota.api.routes import Call, NoQuery, Operation
from rota.core.commands import AnyInput, DeleteCalendar, Preloaded, SetCalendar
from rota.core.outcome import CalendarAnswer
from rota.core.schedule_model import Calendar, Schedule
from rota.wire.schedules import CalendarPage, CalendarSpec, CalendarView


@Operation(
    "GET",
    "/calendars",
    "List calendars of holidays, by name",
    tag="Schedules",
    permission=Permission.READ,
    query=PageQuery,
    answer=CalendarPage,
    examples={"answer": "list_calendars"},
)
async def list_calendars(call: Call[None, PageQuery]) -> CalendarPage:
    """All calendars, by name."""
    await call.deps.brain.settled()
    items, next_cursor = page_of(call.deps.brain.calendars(), call.query, lambda one: one.name)
    return CalendarPage([_calendar_view(call, one) for one in items], next_cursor)


@Operation(
    "GET",
    "/calendars/{name}",
    "Show a calendar",
    tag="Schedules",
    permission=Permission.READ,
    answer=CalendarView,
    errors=(404,),
    examples={"answer": "calendar"},
)
async def show_calendar(call: Call[None, NoQuery]) -> CalendarView:
    """One calendar."""
    await call.deps.brain.settled()
    name = call.path["name"]
    found = next((one for one in call.deps.brain.calendars() if one.name == name), None)
    if found is None:
        raise not_found("calendar", name[:100])
    return _calendar_view(call, found)


@Operation(
    "PUT",
    "/calendars/{name}",
    "Set a calendar's dates",
    tag="Schedules",
    permission=Permission.OPERATE,
    body=CalendarSpec,
    answer=CalendarView,
    examples={"body": "put_calendar_body", "answer": "calendar"},
)
async def put_calendar(call: Call[CalendarSpec, NoQuery]) -> CalendarView:
    """The calendar has just these dates from now on."""
    calendar = calendar_of(name_in(call), call.body)

    def build(recall: Preloaded | None) -> AnyInput:
        return SetCalendar(calendar=calendar, key=call.key, preloaded=recall)

    return _calendar_view(call, expect(await post(call, build), CalendarAnswer).calendar)


@Operation(
    "DELETE",
    "/calendars/{name}",
    "Remove a calendar that no schedule names",
    tag="Schedules",
    permission=Permission.OPERATE,
    status=204,
    errors=(404, 409),
)
async def delete_calendar(call: Call[None, NoQuery]) -> None:
    """Refused while a schedule names it."""
    name = call.path["name"]

    def build(recall: Preloaded | None) -> AnyInput:
        return DeleteCalendar(name=name, key=call.key, preloaded=recall)

    await post(call, build)


def _calendar_view(call: Call[Any, Any], calendar: Calendar) -> CalendarView:
    def uses(schedule: Schedule) -> bool:
        plan = schedule.definition
        return calendar.name in plan.timetable.calendars and is_own(call, plan.job.terms)

    return calendar_view(calendar, sum(1 for _ in call.deps.brain.schedules(uses)))
