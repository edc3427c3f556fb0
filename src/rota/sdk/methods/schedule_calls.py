"""Calls about schedules and calendars as values; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rota.sdk.calls import Call, Params, params_of, path_of
from rota.wire.formats import encode
from rota.wire.queues import CountAnswer
from rota.wire.schedules import (
    BackfillAnswer,
    BackfillSpec,
    CalendarPage,
    CalendarView,
    DeployAnswer,
    OccurrencePage,
    OccurrenceView,
    PreviewAnswer,
    PreviewSpec,
    SchedulePage,
    ScheduleSpec,
    ScheduleView,
)

ScheduleLike: TypeAlias = ScheduleSpec | Mapping[str, Any]
"""A schedule to create: the typed record, or a mapping with the API's fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSearch:
    """Filter of a schedule's occurrences; fields that are left out match all. Times are
    RFC 3339.
    """

    outcome: Sequence[str] = ()
    after: str | None = None
    before: str | None = None
    limit: int | None = None
    cursor: str | None = None

    def params(self) -> Params:
        return params_of(
            outcome=",".join(self.outcome) or None,
            after=self.after,
            before=self.before,
            limit=self.limit,
            cursor=self.cursor,
        )


def _path(schedule_id: str, *rest: str) -> str:
    return path_of("schedules", schedule_id, *rest)


def create_schedule(schedule: ScheduleLike) -> Call[ScheduleView]:
    return Call("POST", "/schedules", ScheduleView, body=encode(schedule), keyed=True)


def list_schedules(
    *,
    name: str | None = None,
    tenant: str | None = None,
    owner: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[SchedulePage]:
    params = params_of(name=name, tenant=tenant, owner=owner, limit=limit, cursor=cursor)
    return Call("GET", "/schedules", SchedulePage, params=params)


def get_schedule(schedule_id: str) -> Call[ScheduleView]:
    return Call("GET", _path(schedule_id), ScheduleView)


def update_schedule(schedule_id: str, patch: Mapping[str, Any]) -> Call[ScheduleView]:
    """Changes a schedule, by JSON Merge Patch."""
    media = "application/merge-patch+json"
    path = _path(schedule_id)
    return Call("PATCH", path, ScheduleView, body=encode(patch), media=media, keyed=True)


def delete_schedule(schedule_id: str) -> Call[None]:
    """Removes a schedule; its jobs go on."""
    return Call("DELETE", _path(schedule_id), type(None), keyed=True)


def pause_schedule(schedule_id: str) -> Call[ScheduleView]:
    """Pauses a schedule: it makes no jobs."""
    return Call("POST", _path(schedule_id, "pause"), ScheduleView, keyed=True)


def resume_schedule(schedule_id: str) -> Call[ScheduleView]:
    return Call("POST", _path(schedule_id, "resume"), ScheduleView, keyed=True)


def trigger_schedule(schedule_id: str) -> Call[OccurrenceView]:
    """Runs a schedule's job now."""
    return Call("POST", _path(schedule_id, "trigger"), OccurrenceView, keyed=True)


def preview(
    schedule: PreviewSpec | ScheduleLike, *, count: int | None = None, after: str | None = None
) -> Call[PreviewAnswer]:
    """Asks for the next times of a schedule that does not exist yet."""
    params = params_of(count=count, after=after)
    return Call("POST", "/schedules/preview", PreviewAnswer, params, encode(schedule))


def preview_schedule(
    schedule_id: str, *, count: int | None = None, after: str | None = None
) -> Call[PreviewAnswer]:
    """Asks for the next times of a schedule."""
    params = params_of(count=count, after=after)
    return Call("GET", _path(schedule_id, "preview"), PreviewAnswer, params=params)


def occurrences(schedule_id: str, search: LedgerSearch) -> Call[OccurrencePage]:
    """Lists a schedule's occurrences with their outcomes, newest first; one page."""
    path = _path(schedule_id, "occurrences")
    return Call("GET", path, OccurrencePage, params=search.params())


def backfill(schedule_id: str, spec: BackfillSpec | Mapping[str, Any]) -> Call[BackfillAnswer]:
    """Runs a schedule for a past range."""
    path = _path(schedule_id, "backfill")
    return Call("POST", path, BackfillAnswer, body=encode(spec), keyed=True)


def cancel_backfill(schedule_id: str, backfill_id: str) -> Call[CountAnswer]:
    """Cancels the remaining jobs of a backfill."""
    path = _path(schedule_id, "backfills", backfill_id, "cancel")
    return Call("POST", path, CountAnswer, keyed=True)


def deploy(owner: str, schedules: Sequence[ScheduleLike]) -> Call[DeployAnswer]:
    """Replaces all schedules of an app."""
    body = encode({"owner": owner, "schedules": schedules})
    return Call("POST", "/schedules/deploy", DeployAnswer, body=body, keyed=True)


def list_calendars(*, limit: int | None = None, cursor: str | None = None) -> Call[CalendarPage]:
    return Call("GET", "/calendars", CalendarPage, params=params_of(limit=limit, cursor=cursor))


def get_calendar(name: str) -> Call[CalendarView]:
    return Call("GET", path_of("calendars", name), CalendarView)


def set_calendar(name: str, dates: Sequence[str]) -> Call[CalendarView]:
    """Sets a calendar's dates, each written like 2026-12-25."""
    body = encode({"dates": list(dates)})
    return Call("PUT", path_of("calendars", name), CalendarView, body=body, keyed=True)


def delete_calendar(name: str) -> Call[None]:
    """Removes a calendar that no schedule names."""
    return Call("DELETE", path_of("calendars", name), type(None), keyed=True)
