"""Model of schedules: definitions, their state, occurrences (misfires too), calendars.

A schedule is kept in two parts, as a job is. Its `ScheduleDefinition` is what was asked and changes
only by an update; its `ScheduleState` is how far it has come and is written at every firing.
"""

from __future__ import annotations

from enum import StrEnum

from rota.core.model import Instant, JobId, Millis, Record, RunCause, ScheduleId, Spec

WEEK_MS: Millis = 7 * 24 * 3600 * 1000


class Gap(StrEnum):
    """Rule for a local time that a clock change (DST) skips."""

    JUMP = "jump"
    SKIP = "skip"
    SHIFT = "shift"


class RepeatedTime(StrEnum):
    """Rule for a local time that a clock change (DST) repeats."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class CatchUp(StrEnum):
    """Catch-up rule for instants that were missed while no server was running (misfires)."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class Overlap(StrEnum):
    """Rule for a run that is due while earlier ones are live."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class OnHoliday(StrEnum):
    """Rule for a run on a date that a calendar lists."""

    SKIP = "skip"
    SHIFT = "shift"


class Timetable(Record, frozen=True):
    """Timetable: exactly one of `cron`, `interval_ms` and `at` is set."""

    cron: str = ""
    interval_ms: Millis | None = None
    at: Instant | None = None
    timezone: str = "UTC"
    gap: Gap = Gap.JUMP
    fold: RepeatedTime = RepeatedTime.FIRST
    from_finish: bool = False
    """Count the interval from the end of the last run, not from its start."""
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    jitter_ms: Millis = 0
    calendars: tuple[str, ...] = ()
    on_holiday: OnHoliday = OnHoliday.SKIP


class ScheduleDefinition(Record, frozen=True):
    """Definition, as submitted. The job is a template with `{{scheduled_at}}` and the like."""

    name: str
    timetable: Timetable
    job: Spec
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_window_ms: Millis = WEEK_MS
    overlap: Overlap = Overlap.ALLOW
    max_concurrency: int = 1
    owner: str = ""
    """The program that deployed the schedule, and retires it by a deployment without it."""


class OccurrenceDecision(StrEnum):
    """Decision on an instant of a schedule: run on time, late, as catch-up, or skipped."""

    FIRED = "fired"
    LATE = "late"
    CAUGHT_UP = "caught_up"
    SKIPPED = "skipped"


class SkipReason(StrEnum):
    """Reason why an instant was skipped."""

    NOT = ""
    PAUSED = "paused"
    MISSED = "missed"
    SUPERSEDED = "superseded"
    TOO_OLD = "too_old"
    OVERLAP = "overlap"
    HOLIDAY = "holiday"
    BACKLOG = "backlog"
    CHANGED = "changed"
    REFUSED = "refused"


SKIP_REASON_MEANING = {
    SkipReason.PAUSED: "the schedule was paused",
    SkipReason.MISSED: "no server was running, and catch_up is none",
    SkipReason.SUPERSEDED: (
        "no server was running, and a later instant ran instead: catch_up is latest"
    ),
    SkipReason.TOO_OLD: "no server was running, and it was longer ago than catch_up_window",
    SkipReason.OVERLAP: "an earlier run was not done, and overlap is skip",
    SkipReason.HOLIDAY: "a calendar lists the date",
    SkipReason.BACKLOG: "too many earlier runs were not done",
    SkipReason.CHANGED: "the schedule was changed before it came to this one",
    SkipReason.REFUSED: "the job could not be made",
}


class Occurrence(Record, frozen=True):
    """Decision on one nominal instant of a schedule; each instant has one record."""

    schedule_id: ScheduleId
    nominal: Instant
    decision: OccurrenceDecision
    decided_at: Instant
    skip_reason: SkipReason = SkipReason.NOT
    detail: str = ""
    """The run that was live, the holiday, or the refusal."""
    job_id: JobId | None = None
    cause: RunCause = RunCause.TIME
    late_ms: Millis = 0
    """Time from the instant, jitter included, to the decision."""
    until: Instant | None = None
    """The record stands for all instants up to this one, which are too many for one record each."""
    revision: int = 0
    """Revision of the schedule at the decision."""


class ScheduleState(Record, frozen=True):
    """Progress of a schedule through its instants."""

    watermark: Instant
    """All instants up to this one are decided. Never decreases, even if clocks are set back."""
    paused: bool = False
    anchor: Instant | None = None
    """Start of the next interval, if it counts from the end of a run."""
    awaits_finish: bool = False
    """A run is live, and the next interval counts from its end."""
    triggered_at: Instant = 0
    """Time of the newest manual run."""
    last_at: Instant | None = None
    last_decision: OccurrenceDecision | None = None
    last_job_id: JobId | None = None
    offset_s: int = 0
    """Offset of the zone at the watermark, by the zone rules of that time."""


class Schedule(Record, frozen=True):
    """Whole schedule, as it is stored and answered."""

    id: ScheduleId
    definition: ScheduleDefinition
    state: ScheduleState
    created_at: Instant
    updated_at: Instant
    revision: int = 1
    """Grows with every update."""


class Calendar(Record, frozen=True):
    """Calendar: dates on which schedules that name it do not run, or run later."""

    name: str
    days: tuple[int, ...]
    """As `date.toordinal` counts them, ascending."""
    updated_at: Instant = 0
