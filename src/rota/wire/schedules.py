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
    """Daylight saving: the rule for local times that a clock change leaves out (`gap`) or repeats
    (`overlap`).
    """

    gap: Literal["jump", "skip", "shift"] = "jump"
    overlap: Literal["first", "second", "both"] = "first"


class ScheduleFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Times and rules of a schedule; exactly one of `cron`, `interval` and `at`."""

    cron: CronText | None = None
    interval: SomeTime | None = None
    at: Moment | None = None
    timezone: ZoneName = "UTC"
    origin: From = msgspec.field(name="from", default="start")
    """Start of an interval: `starts_at`, or the finish of the last job."""
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
    """A schedule to create; placeholders such as `{{scheduled_at}}` in its job are filled in each
    time.
    """

    name: Name
    job: JobSpec


class PreviewSpec(ScheduleFields, kw_only=True, forbid_unknown_fields=True):
    """A schedule to preview only: name and job may be left out."""

    name: Name | None = None
    job: JobSpec | None = None


class LastView(msgspec.Struct):
    """The newest occurrence that was decided."""

    at: Time
    outcome: Outcome
    job_id: str | None
    """The newest job, of this occurrence or an earlier one."""


class DstView(msgspec.Struct):
    """Rules for clock changes in force."""

    gap: Literal["jump", "skip", "shift"]
    overlap: Literal["first", "second", "both"]


class ScheduleView(msgspec.Struct):
    """A schedule: its definition and its state. Durations in seconds."""

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
    """The next time; null: it is paused, has ended, or waits for a job to finish."""
    last: LastView | None
    running: list[str]
    """Its jobs that have not ended, the oldest first, a hundred at most."""
    owner: str | None
    """The app that deployed it."""
    trouble: str | None
    """Why it cannot run, although it is neither paused nor ended."""
    revision: int
    created_at: Time
    updated_at: Time


class SchedulePage(msgspec.Struct):
    """A page of schedules, newest first."""

    items: list[ScheduleView]
    next_cursor: str | None


class ForeseenView(msgspec.Struct):
    """One future occurrence."""

    at: Time
    local: str
    note: str | None = None
    """The effect of a clock change or a holiday on it."""


class PreviewAnswer(msgspec.Struct):
    """Next occurrences, in order."""

    items: list[ForeseenView]


class OccurrenceView(msgspec.Struct):
    """One occurrence of a schedule, and its outcome."""

    schedule_id: str
    at: Time
    outcome: Outcome
    reason: str | None
    """Why it was skipped, as a code."""
    message: str | None
    """Why it was skipped, as a sentence."""
    job_id: str | None
    cause: Literal["schedule", "trigger", "backfill"]
    decided_at: Time
    late: float | int
    """Seconds between the due time and the decision."""
    until: Time | None
    """The record stands for all occurrences up to this time."""
    revision: int


class OccurrencePage(msgspec.Struct):
    """A page of a schedule's occurrences, newest first."""

    items: list[OccurrenceView]
    next_cursor: str | None


class BackfillSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A backfill: jobs for a past range, both ends included; occurrences that have a job already
    are left out.
    """

    start: Moment = msgspec.field(name="from")
    end: Moment = msgspec.field(name="to")
    max_parallel: Annotated[int, Meta(ge=1, le=BACKFILL_PARALLEL_MAX)] = 1
    priority: Priority | None = None
    """Left out: 100 below the schedule's own jobs."""
    dry_run: bool = False
    """Lists the jobs that would be made, and makes none."""


class BackfillAnswer(msgspec.Struct):
    """Jobs that the backfill makes, or would make."""

    backfill_id: str | None
    count: int
    already: int
    """Occurrences of the range that have a job already."""
    job_ids: list[str]
    items: list[ForeseenView]
    """The occurrences, in order, a hundred at most."""
    dry_run: bool = False


class DeploySpec(msgspec.Struct, forbid_unknown_fields=True):
    """All schedules of an app; those deployed before and not listed here are retired."""

    owner: OwnerName
    schedules: Annotated[list[ScheduleSpec], Meta(max_length=DEPLOYED_SCHEDULES_MAX)]


class DeployAnswer(msgspec.Struct):
    """Names of the schedules or triggers, by what was done to them."""

    created: list[str]
    changed: list[str]
    unchanged: list[str]
    retired: list[str]


class CalendarSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Dates on which schedules that name the calendar do not run, or run later."""

    dates: Annotated[list[date], Meta(max_length=CALENDAR_DATES_MAX)]


class CalendarView(msgspec.Struct):
    """A calendar; dates in ascending order."""

    name: str
    dates: list[date]
    schedules: int
    """How many schedules name it."""
    updated_at: Time


class CalendarPage(msgspec.Struct):
    """A page of calendars, by name."""

    items: list[CalendarView]
    next_cursor: str | None


Count: TypeAlias = Annotated[
    int, Meta(ge=1, le=PREVIEW_ITEMS_MAX, description="The number of times at most.")
]
