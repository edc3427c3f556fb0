"""What can be asked for in pages: which of a kind, and where the last page ended."""

from __future__ import annotations

import msgspec

from rota.core.events import Verdict
from rota.core.model import (
    ExecutionState,
    Instant,
    JobId,
    JobState,
    ScheduleId,
    TriggerId,
    WorkerId,
)
from rota.core.schedules import Decision


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs, newest first; `before` is the id of the last one already seen.

    `after` is an id that all of them come after, whatever is seen already.
    `states` are alternatives, `labels` must all be there; the bounds of `created_at` are exclusive.
    """

    states: tuple[JobState, ...] = ()
    priority: int | None = None
    not_priority: int | None = None
    queue: str | None = None
    tenant: str | None = None
    name: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    created_after: Instant | None = None
    created_before: Instant | None = None
    before: str | None = None
    after: str | None = None
    limit: int = 50


class ExecutionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions, newest first; `before` is the id of the last one already seen."""

    job_id: JobId | None = None
    worker_id: WorkerId | None = None
    states: tuple[ExecutionState, ...] = ()
    before: str | None = None
    limit: int = 50


class OccurrenceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which instants of a schedule, newest first; the bounds of `nominal` are exclusive."""

    schedule_id: ScheduleId
    decisions: tuple[Decision, ...] = ()
    after: Instant | None = None
    before: Instant | None = None
    limit: int = 50


class ArrivalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger made of events, newest first; `before` is the id of the last already seen."""

    trigger_id: TriggerId
    verdicts: tuple[Verdict, ...] = ()
    before: str | None = None
    limit: int = 50


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events, newest first; `before` is (at, key) of the last already seen."""

    type: str | None = None
    tenant: str | None = None
    before: tuple[Instant, str] | None = None
    limit: int = 50
