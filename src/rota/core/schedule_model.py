"""Model of schedules: definitions, their state, occurrences (misfires too), calendars.

A schedule is kept in two parts, as a job is. Its `ScheduleDefinition` is what was asked and
changes only by an update; its `ScheduleState` is how far it has come and is written at every
firing.
"""

from __future__ import annotations

from enum import StrEnum

from rota.core.model import Instant, JobId, Millis, Record, RunCause, ScheduleId, Spec

WEEK_MS: Millis = 7 * 24 * 3600 * 1000


class Gap(StrEnum):
    """What becomes of a local time that a clock change leaves out."""

    JUMP = "jump"
    SKIP = "skip"
    SHIFT = "shift"


class RepeatedTime(StrEnum):
    """Which one counts of a local time that a clock change repeats."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class CatchUp(StrEnum):
    """What becomes of instants that nobody was there to see."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a run that is due while earlier ones are not done."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class OnHoliday(StrEnum):
    """What becomes of a run on a date that a calendar lists."""

    SKIP = "skip"
    SHIFT = "shift"


class Timetable(Record, frozen=True):
    """When: exactly one of `cron`, `interval_ms` and `at` is set."""

    cron: str = ""
    interval_ms: Millis | None = None
    at: Instant | None = None
    timezone: str = "UTC"
    gap: Gap = Gap.JUMP
    fold: RepeatedTime = RepeatedTime.FIRST
    from_finish: bool = False
    """The interval counts from the end of the last run, not from its start."""
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    jitter_ms: Millis = 0
    calendars: tuple[str, ...] = ()
    on_holiday: OnHoliday = OnHoliday.SKIP


class ScheduleDefinition(Record, frozen=True):
    """What was asked for. The job is a template: `{{scheduled_at}}` and the like are filled in."""

    name: str
    timetable: Timetable
    job: Spec
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_window_ms: Millis = WEEK_MS
    overlap: Overlap = Overlap.ALLOW
    max_concurrency: int = 1
    owner: str = ""
    """The program that deployed it; what such a program no longer names is retired."""


class OccurrenceDecision(StrEnum):
    """What became of an instant."""

    FIRED = "fired"
    LATE = "late"
    CAUGHT_UP = "caught_up"
    SKIPPED = "skipped"


class SkipReason(StrEnum):
    """Why an instant was skipped."""

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
    """What became of one nominal instant of a schedule: there is one record of each."""

    schedule_id: ScheduleId
    nominal: Instant
    decision: OccurrenceDecision
    decided_at: Instant
    skip_reason: SkipReason = SkipReason.NOT
    detail: str = ""
    """More than the word says: the run that was in the way, the holiday, the refusal."""
    job_id: JobId | None = None
    cause: RunCause = RunCause.TIME
    late_ms: Millis = 0
    """How long after its time (jitter counts as meant) it was decided."""
    until: Instant | None = None
    """The record stands for all instants up to this one: too many for one each."""
    revision: int = 0
    """Of the schedule, when it was decided."""


class ScheduleState(Record, frozen=True):
    """How far a schedule has come."""

    watermark: Instant
    """Every instant up to this one has been decided. Never goes back, whatever clocks do."""
    paused: bool = False
    anchor: Instant | None = None
    """What the next interval counts from, where it counts from the end of a run."""
    awaits_finish: bool = False
    """A run is under way, and the next interval counts from its end."""
    triggered_at: Instant = 0
    """The newest run that a person asked for."""
    last_at: Instant | None = None
    last_decision: OccurrenceDecision | None = None
    last_job_id: JobId | None = None
    offset_s: int = 0
    """How far the zone's clock was from UTC at the watermark, by the rules of then."""


class Schedule(Record, frozen=True):
    """A whole schedule, as it is stored and as it is answered."""

    id: ScheduleId
    definition: ScheduleDefinition
    state: ScheduleState
    created_at: Instant
    updated_at: Instant
    revision: int = 1
    """Grows with every update."""


class Calendar(Record, frozen=True):
    """Dates on which schedules that name it do not run, or run later."""

    name: str
    days: tuple[int, ...]
    """As `date.toordinal` counts them, rising."""
    updated_at: Instant = 0
