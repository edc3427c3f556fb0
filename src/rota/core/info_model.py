"""Answers to questions about the state: workers, queues, schedules, explanations. All frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core.model import (
    ExecutionId,
    Instant,
    JobId,
    JobState,
    Millis,
    Queue,
    Resources,
    Spec,
    Tenant,
    Worker,
    WorkerId,
)
from rota.core.schedule_model import Schedule
from rota.core.trigger_model import EventDecision, Trigger


class WorkerInfo(msgspec.Struct, frozen=True):
    """Worker, with what its heartbeats and leases say."""

    worker: Worker
    last_seen: Instant | None
    used: Resources
    executions: tuple[ExecutionId, ...]
    healthy: bool
    """False while it has been silent for more than two heartbeats, but its lease has not run
    out."""


class QueueInfo(msgspec.Struct, frozen=True):
    """Queue, with the number of its live jobs in each state."""

    queue: Queue
    depth: Mapping[JobState, int]
    spilled: int = 0
    """How many of the queued jobs are spilled to the store."""


class ScheduleInfo(msgspec.Struct, frozen=True):
    """Schedule, with its next instant and its runs that have not ended."""

    schedule: Schedule
    next_at: Instant | None
    due_at: Instant | None
    runs: tuple[JobId, ...]
    problem: str = ""
    """Why it cannot run though it is not paused; empty if it can."""


class TriggerInfo(msgspec.Struct, frozen=True):
    """Trigger, with the number of events that wait in its windows."""

    trigger: Trigger
    waiting: int
    closes_at: Instant | None
    """When the first of its windows closes and makes a job."""


class TriggerDryRun(msgspec.Struct, frozen=True):
    """Decision that a trigger would make on an event, and the job that it would create."""

    trigger: Trigger
    decision: EventDecision
    detail: str
    job: Spec | None


class TenantInfo(msgspec.Struct, frozen=True):
    """Tenant, with its waiting and running jobs and its share of the fleet."""

    tenant: Tenant
    depth: Mapping[JobState, int]
    holds: Resources
    share: float
    """Dominant share: the part of the fleet that it holds now, of the resource that it holds most
    of."""
    entitlement: float
    """The part that its weight gives it among tenants with live jobs now."""
    used: float
    """Usage, decayed: dominant share of the fleet times milliseconds."""


class DeadlineInfo(msgspec.Struct, frozen=True):
    """Deadline of a job, and whether it will be met."""

    finish_by: Instant
    status: str
    """`on_time`, `at_risk` or `late`; of an ended job `met` or `missed`."""
    slack_ms: Millis
    """How much later the job could end; negative: how late it will be, or was."""
    expected_end: Instant | None = None


class ReservationInfo(msgspec.Struct, frozen=True):
    """Reservation of a place on a worker for a waiting job, with its expected start and end."""

    job_id: JobId
    name: str
    tenant: str
    worker_id: WorkerId
    start: Instant
    end: Instant


class Cause(msgspec.Struct, frozen=True):
    """Cause that keeps a job from running, with its figures."""

    code: str
    message: str
    figures: Mapping[str, Any]


class Position(msgspec.Struct, frozen=True):
    """Position of a job in its class queue."""

    ahead: int
    """Jobs of the class queue that go before it."""
    waiting: int
    """Jobs in the class queue, with this one."""
    is_exact: bool = True
    """False: estimated by sampling, or by the order of arrival."""
    tenants_ahead: int = 0
    """Tenants that go first now, under fair share."""


class Explanation(msgspec.Struct, frozen=True):
    """Explanation: all causes that keep a job from running, the nearest first; empty: none."""

    causes: tuple[Cause, ...]
    estimated_start: Instant | None
    method: str
    basis: str = ""
    """How the start was estimated: `running`, `known_times`, `free`, `reservation`; empty:
    unknown."""
