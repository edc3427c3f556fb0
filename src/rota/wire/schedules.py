"""Schedules (cron, interval, once), their occurrences, backfills and previews, deployment, and
calendars of holidays.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.formats import PLAIN, WORD, Duration, SomeTime
from rota.wire.jobs import JobSpec, Moment, Name, Priority, Time
from rota.wire.limits import (
    BACKFILL_PARALLEL_MAX,
    CALENDAR_DATES_MAX,
    CALENDARS_PER_SCHEDULE_MAX,
    CONCURRENCY_MAX,
    CRON_CHARS_MAX,
    DEPLOYED_SCHEDULES_MAX,
    NAME_CHARS_MAX,
    PREVIEW_ITEMS_MAX,
    ZONE_CHARS_MAX,
)

CronText: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=CRON_CHARS_MAX,
        pattern=PLAIN,
        description="five fields, or six with seconds first; or a word such as @daily",
        examples=["0 9 * * MON-FRI"],
    ),
]
ZoneName: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=ZONE_CHARS_MAX,
        pattern=PLAIN,
        description="an IANA time zone",
        examples=["Europe/Berlin"],
    ),
]
CatchUp: TypeAlias = Literal["none", "latest", "all"]
Overlap: TypeAlias = Literal["allow", "skip", "queue", "replace"]
OnHoliday: TypeAlias = Literal["skip", "shift"]
From: TypeAlias = Literal["start", "finish"]
Outcome: TypeAlias = Literal["fired", "late", "caught_up", "skipped"]
CalendarName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=WORD)
]
OwnerName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=PLAIN, examples=["shop.jobs:app"])
]


class DstSpec(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of local times that a clock change leaves out, or repeats."""

    gap: Literal["jump", "skip", "shift"] = "jump"
    overlap: Literal["first", "second", "both"] = "first"


class ScheduleFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """When, and under which rules; exactly one of `cron`, `interval` and `at`."""

    cron: CronText | None = None
    interval: SomeTime | None = None
    at: Moment | None = None
    timezone: ZoneName = "UTC"
    origin: From = msgspec.field(name="from", default="start")
    """What an interval counts from: `starts_at`, or the finish of the last run."""
    starts_at: Moment | None = None
    ends_at: Moment | None = None
    dst: DstSpec = msgspec.field(default_factory=DstSpec)
    jitter: Duration = msgspec.field(default_factory=lambda: Duration(0))
    calendars: Annotated[list[CalendarName], Meta(max_length=CALENDARS_PER_SCHEDULE_MAX)] = []
    on_holiday: OnHoliday = "skip"
    catch_up: CatchUp = "latest"
    catch_up_window: Duration = msgspec.field(default_factory=lambda: Duration(604_800_000))
    overlap: Overlap = "allow"
    max_concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] = 1
    paused: bool = False

    def __post_init__(self) -> None:
        if self.interval is not None and self.interval.ms == 0:
            raise ValueError("interval must be more than 0")


class ScheduleSpec(ScheduleFields, kw_only=True, forbid_unknown_fields=True):
    """A schedule to make; slots such as `{{scheduled_at}}` in its job are filled in each run."""

    name: Name
    job: JobSpec


class PreviewSpec(ScheduleFields, kw_only=True, forbid_unknown_fields=True):
    """A schedule that is only to be looked at: name and job may be left out."""

    name: Name | None = None
    job: JobSpec | None = None


class LastView(msgspec.Struct):
    """The newest instant that was decided."""

    at: Time
    outcome: Outcome
    job_id: str | None
    """The newest job, of this instant or an earlier one."""


class DstView(msgspec.Struct):
    """The rules for clock changes in force."""

    gap: Literal["jump", "skip", "shift"]
    overlap: Literal["first", "second", "both"]


class ScheduleView(msgspec.Struct):
    """A schedule: all that was asked, and how far it has come. Durations in seconds."""

    schedule_id: str
    name: str
    cron: str | None
    interval: float | int | None
    at: Time | None
    timezone: str
    origin: From = msgspec.field(name="from")
    starts_at: Time | None
    ends_at: Time | None
    dst: DstView
    jitter: float | int
    calendars: list[str]
    on_holiday: OnHoliday
    catch_up: CatchUp
    catch_up_window: float | int
    overlap: Overlap
    max_concurrency: int
    paused: bool
    job: dict[str, Any]
    status: Literal["active", "paused", "ended"]
    next_at: Time | None
    """The next instant; null while it is paused, over, or waits for a run to finish."""
    last: LastView | None
    running: list[str]
    """Its jobs that have not ended, the oldest first, a hundred at most."""
    owner: str | None
    """The program that deployed it."""
    trouble: str | None
    """Why it cannot run, though it is neither paused nor over."""
    revision: int
    created_at: Time
    updated_at: Time


class SchedulePage(msgspec.Struct):
    """A page of schedules, newest first."""

    items: list[ScheduleView]
    next_cursor: str | None


class ForeseenView(msgspec.Struct):
    """One instant to come."""

    at: Time
    local: str
    note: str | None = None
    """What a clock change or a holiday has to do with it."""


class PreviewAnswer(msgspec.Struct):
    """The next instants, in order."""

    items: list[ForeseenView]


class OccurrenceView(msgspec.Struct):
    """What became of one instant of a schedule."""

    schedule_id: str
    at: Time
    outcome: Outcome
    reason: str | None
    """Why it was skipped, in a word."""
    message: str | None
    """The same in a sentence."""
    job_id: str | None
    cause: Literal["schedule", "trigger", "backfill"]
    decided_at: Time
    late: float | int
    """Seconds after it was due that it was decided."""
    until: Time | None
    """The record stands for all instants up to this one."""
    revision: int


class OccurrencePage(msgspec.Struct):
    """A page of a schedule's ledger, newest instant first."""

    items: list[OccurrenceView]
    next_cursor: str | None


class BackfillSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Runs for a past range, both ends included; instants that have a job already are left out."""

    start: Moment = msgspec.field(name="from")
    end: Moment = msgspec.field(name="to")
    max_parallel: Annotated[int, Meta(ge=1, le=BACKFILL_PARALLEL_MAX)] = 1
    priority: Priority | None = None
    """Left out: 100 below the schedule's own runs."""
    dry_run: bool = False
    """Says what would be run, and runs nothing."""


class BackfillAnswer(msgspec.Struct):
    """What is run, or would be."""

    backfill_id: str | None
    count: int
    already: int
    """Instants of the range that have a job already."""
    job_ids: list[str]
    items: list[ForeseenView]
    """The instants, in order, a hundred at most."""
    dry_run: bool = False


class DeploySpec(msgspec.Struct, forbid_unknown_fields=True):
    """All schedules that a program has; those it had before and are not here are retired."""

    owner: OwnerName
    schedules: Annotated[list[ScheduleSpec], Meta(max_length=DEPLOYED_SCHEDULES_MAX)]


class DeployAnswer(msgspec.Struct):
    """Names of schedules, by what was done to them."""

    created: list[str]
    changed: list[str]
    unchanged: list[str]
    retired: list[str]


class CalendarSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Dates on which schedules that name the calendar do not run, or run later."""

    dates: Annotated[list[date], Meta(max_length=CALENDAR_DATES_MAX)]


class CalendarView(msgspec.Struct):
    """A calendar; dates rising."""

    name: str
    dates: list[date]
    schedules: int
    """How many schedules name it."""
    updated_at: Time


class CalendarPage(msgspec.Struct):
    """All calendars, by name."""

    items: list[CalendarView]
    next_cursor: str | None


Count: TypeAlias = Annotated[
    int, Meta(ge=1, le=PREVIEW_ITEMS_MAX, description="How many instants at most.")
]
