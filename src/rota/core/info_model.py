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
    """A worker, and what its heartbeats and leases say."""

    worker: Worker
    last_seen: Instant | None
    used: Resources
    executions: tuple[ExecutionId, ...]
    healthy: bool
    """False while it is silent for longer than two beats but its lease has not run out."""


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue, and how many live jobs of it are where."""

    queue: Queue
    depth: Mapping[JobState, int]
    spilled: int = 0
    """How many of the queued ones memory has left to the store."""


class ScheduleInfo(msgspec.Struct, frozen=True):
    """A schedule, when it is due next, and its runs that have not ended."""

    schedule: Schedule
    next_at: Instant | None
    due_at: Instant | None
    runs: tuple[JobId, ...]
    problem: str = ""
    """Why it cannot run though it is not paused; empty when it can."""


class TriggerInfo(msgspec.Struct, frozen=True):
    """A trigger, and the events that wait in its windows."""

    trigger: Trigger
    waiting: int
    closes_at: Instant | None
    """When the first of its windows makes a job."""


class TriggerDryRun(msgspec.Struct, frozen=True):
    """What a trigger would make of an event, and the job if it would make one."""

    trigger: Trigger
    decision: EventDecision
    detail: str
    job: Spec | None


class TenantInfo(msgspec.Struct, frozen=True):
    """A tenant, what it has waiting and running, and how it stands with the others."""

    tenant: Tenant
    depth: Mapping[JobState, int]
    holds: Resources
    share: float
    """The part of the fleet that it holds now, of the resource of which it holds the most."""
    entitlement: float
    """The part that its weight gives it among those who have live jobs now."""
    used: float
    """What it has used, faded: shares of the fleet times milliseconds."""


class DeadlineInfo(msgspec.Struct, frozen=True):
    """How a job stands to the time by which it should have ended."""

    finish_by: Instant
    status: str
    """`on_time`, `at_risk` or `late`; of an ended job `met` or `missed`."""
    slack_ms: Millis
    """How much later it could end; below zero: how late it will be, or was."""
    expected_end: Instant | None = None


class ReservationInfo(msgspec.Struct, frozen=True):
    """A place that is kept for a job that waits: where, from when, and probably until when."""

    job_id: JobId
    name: str
    tenant: str
    worker_id: WorkerId
    start: Instant
    end: Instant


class Cause(msgspec.Struct, frozen=True):
    """One thing that keeps a job from running, with the figures behind it."""

    code: str
    message: str
    figures: Mapping[str, Any]


class Position(msgspec.Struct, frozen=True):
    """Where a job stands in the line of those that are alike."""

    ahead: int
    """Jobs of the line that go before it."""
    waiting: int
    """Jobs in the line, this one among them."""
    is_exact: bool = True
    """False: counted by sampling, or by the order of arrival."""
    tenants_ahead: int = 0
    """Tenants that go first now, where they take turns by what they have had."""


class Explanation(msgspec.Struct, frozen=True):
    """All that keeps a job from running, the nearest first; empty: it is free to go."""

    causes: tuple[Cause, ...]
    estimated_start: Instant | None
    method: str
    basis: str = ""
    """The same in a word: `running`, `known_times`, `free`, `reservation`; empty: not known."""
