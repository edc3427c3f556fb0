"""Commands: everything that can happen to the scheduler, one class each.

Ids, times and random numbers are in the commands already. What the scheduler no longer has in
memory (finished jobs, old idempotency keys) comes along as `Preloaded`, read from the tables just
before.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from rota.core.limits import FIFO_GROUP_KEPT, REFILL_JOBS, WINDOW_JOBS
from rota.core.model import (
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    JobRecord,
    KeyRecord,
    Labels,
    Millis,
    PollId,
    Quota,
    RateLimit,
    Resources,
    ScheduleId,
    Spec,
    TriggerId,
    WorkerId,
)
from rota.core.outcome import Refill
from rota.core.policy import Policy
from rota.core.runtime_estimates import MeasuredUsage
from rota.core.schedule_model import Calendar, ScheduleDefinition
from rota.core.trigger_model import AcceptedEvent, Event, TriggerDefinition


class Input(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Base class of all commands."""


class Preloaded(Input, frozen=True, kw_only=True):
    """Records read from the tables at `at`: jobs that may have left memory, and a used key."""

    at: Instant
    jobs: tuple[JobRecord, ...] = ()
    upstream: tuple[JobRecord, ...] = ()
    """Upstream jobs of `jobs`, read only for how they ended."""
    key: KeyRecord | None = None
    accepted_events: tuple[AcceptedEvent, ...] = ()
    """Events that were accepted before."""


class Key(Input, frozen=True, kw_only=True):
    """Idempotency key, and the fingerprint of the request that carries it."""

    key: str
    fingerprint: str


class Idempotent(Input, frozen=True, kw_only=True):
    """Base class of commands that may be repeated safely under an idempotency key."""

    key: Key | None = None
    preloaded: Preloaded | None = None


class EventInput(Idempotent, frozen=True, kw_only=True):
    """Base class of commands about triggers and events, so that one check finds them all."""


class NewTrigger(Input, frozen=True, kw_only=True):
    """Trigger to create; in a deployment the id is used only if the trigger's name is new."""

    id: TriggerId
    definition: TriggerDefinition
    paused: bool = False


class CreateTrigger(EventInput, frozen=True, kw_only=True):
    trigger: NewTrigger


class UpdateTrigger(EventInput, frozen=True, kw_only=True):
    """Replaces a trigger's definition; `revision` is the one that the caller has read."""

    trigger_id: TriggerId
    definition: TriggerDefinition
    revision: int
    paused: bool


class DeleteTrigger(EventInput, frozen=True, kw_only=True):
    """Deletes a trigger. The jobs that it made go on."""

    trigger_id: TriggerId


class PauseTrigger(EventInput, frozen=True, kw_only=True):
    """Pauses or resumes a trigger."""

    trigger_id: TriggerId
    paused: bool


class DeployTriggers(EventInput, frozen=True, kw_only=True):
    """Deploys all triggers of a program: those it had before and names no more are retired."""

    owner: str
    triggers: tuple[NewTrigger, ...]
    tenant: str | None = None
    """Retire triggers of this tenant only, since tenants may use the same owner; None: of all."""


class ReceiveEvents(EventInput, frozen=True, kw_only=True):
    """Accepts events from outside; `preloaded` has those of them that were accepted before."""

    events: tuple[Event, ...]


AnyEventInput: TypeAlias = (
    ReceiveEvents | CreateTrigger | UpdateTrigger | DeleteTrigger | PauseTrigger | DeployTriggers
)


class Drain(Idempotent, frozen=True, kw_only=True):
    """Stops new orders to a worker."""

    worker_id: WorkerId


class Resume(Idempotent, frozen=True, kw_only=True):
    """Lets a drained worker get orders again."""

    worker_id: WorkerId


class Deregister(Idempotent, frozen=True, kw_only=True):
    """Removes a worker for good; executions that it still has are lost."""

    worker_id: WorkerId


class NewJob(Input, frozen=True, kw_only=True):
    """Job to submit. `ref` is its name inside a batch, for error messages."""

    id: JobId
    spec: Spec
    ref: str = ""


class Submit(Idempotent, frozen=True, kw_only=True):
    """Submits one job or a whole batch: all or none."""

    jobs: tuple[NewJob, ...]
    promised: bool = False
    """Clients already have these ids, so the stored answer to an earlier request must not be
    used."""


class Reject(Input, frozen=True, kw_only=True):
    """Records jobs as failed that got their ids before they could be checked, and are invalid."""

    jobs: tuple[NewJob, ...]
    why: str
    duplicate: bool = False
    """The same request was accepted under other ids; these jobs are kept only to say so."""


class Update(Idempotent, frozen=True, kw_only=True):
    """Replaces the spec of a job that has not started; `spec.revision` is the one that was read."""

    job_id: JobId
    spec: Spec


class Cancel(Idempotent, frozen=True, kw_only=True):
    """Cancels a job: at once if it waits, through its worker if it runs."""

    job_id: JobId


class Retry(Idempotent, frozen=True, kw_only=True):
    """Retries an ended job; `preloaded` has it and the dependents that were skipped."""

    job_id: JobId
    failed: tuple[int, ...] | None = None
    """Of an array: the members that did not succeed. None: not known."""


class Delete(Idempotent, frozen=True, kw_only=True):
    """Deletes an ended job; `force` cancels a live one first."""

    job_id: JobId
    force: bool = False


class Execute(Idempotent, frozen=True, kw_only=True):
    """Starts a job on a given worker now, past its time, the order of jobs and paused queues."""

    job_id: JobId
    worker_id: WorkerId


class Register(Idempotent, frozen=True, kw_only=True):
    """Registers a worker with its capacity, capabilities and labels."""

    worker_id: WorkerId
    session: str
    name: str
    capacity: Resources
    capabilities: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    labels: Labels = ()
    only: tuple[str, ...] = ()


class Running(Input, frozen=True, kw_only=True):
    """Execution that a worker reports as running, with its progress if there is news."""

    execution_id: ExecutionId
    fence: int | None = None
    progress: float | None = None
    message: str | None = None


class Completion(Input, frozen=True, kw_only=True):
    """Result of an execution. `result`, `error` and `usage` are JSON text."""

    execution_id: ExecutionId
    fence: int
    state: ExecutionState
    result: bytes | None = None
    error: bytes | None = None
    exit_code: int | None = None
    usage: bytes | None = None
    retryable: bool = True
    delay_ms: Millis | None = None
    """Delay before the retry, in place of the policy's backoff."""
    used: MeasuredUsage | None = None
    """The part of `usage` that the scheduler learns from."""


class Heartbeat(Input, frozen=True, kw_only=True):
    """Heartbeat of a worker. `executions` None: it did not say what it runs."""

    worker_id: WorkerId
    session: str | None = None
    executions: tuple[Running, ...] | None = None


class Poll(Input, frozen=True, kw_only=True):
    """Long poll of a worker: it reports, and waits for orders until `until`.

    `spare` is how many orders it can prefetch. If `patient`, it waits even when it reports
    something.
    """

    poll_id: PollId
    worker_id: WorkerId
    session: str | None = None
    max_orders: int
    until: Instant
    completed: tuple[Completion, ...] = ()
    executions: tuple[Running, ...] | None = None
    spare: int = 0
    patient: bool = False


class ClosePoll(Input, frozen=True, kw_only=True):
    """Closes a worker's poll, because the caller has disconnected."""

    poll_id: PollId
    worker_id: WorkerId


class Complete(Input, frozen=True, kw_only=True):
    """Ends an execution."""

    completion: Completion


class Progress(Input, frozen=True, kw_only=True):
    """Reports the progress of an execution."""

    running: Running


class PutQueueSettings(Idempotent, frozen=True, kw_only=True):
    """Sets the given settings of a queue and leaves the others; `replace` resets the others."""

    name: str
    replace: bool = False
    priority: int | None = None
    weight: float | None = None
    max_workers: int | None = None
    rate_limit: RateLimit | None = None
    paused: bool | None = None
    limits: tuple[tuple[str, int | None], ...] = ()
    """(field of `JobLimits`, new value); None: back to the worker's default."""
    cleared: tuple[str, ...] = ()
    """Fields to reset to their defaults."""


class SetPolicy(Idempotent, frozen=True, kw_only=True):
    """Replaces the policy of the cell."""

    policy: Policy


class PutTenantSettings(Idempotent, frozen=True, kw_only=True):
    """Replaces a tenant's weight and quota."""

    name: str
    weight: float = 1.0
    quota: Quota | None = None


class Purge(Idempotent, frozen=True, kw_only=True):
    """Cancels all jobs that wait in a queue, or of them only those in `preloaded`.

    Spilled jobs are not in memory: the caller reads them from the store and sends one purge for
    each part.
    """

    name: str
    before: int = 0
    """How many jobs earlier parts have cancelled; the receipt counts them too."""
    most: int | None = None
    """The most jobs to cancel in this turn: a long queue is purged in parts, so that others get
    turns."""


class Refilled(Input, frozen=True, kw_only=True):
    """Answers a `Refill` of this scheduler with jobs from the store."""

    refill: Refill
    jobs: tuple[JobRecord, ...]
    damaged: tuple[int, ...] = ()
    """Arrival numbers of jobs that the store has but cannot read."""


class ScheduleInput(Idempotent, frozen=True, kw_only=True):
    """Base class of commands about schedules and calendars, so that one check finds them all."""


class NewSchedule(Input, frozen=True, kw_only=True):
    """Schedule to create; in a deployment the id is used only if the schedule's name is new."""

    id: ScheduleId
    definition: ScheduleDefinition
    paused: bool = False


class CreateSchedule(ScheduleInput, frozen=True, kw_only=True):
    schedule: NewSchedule


class UpdateSchedule(ScheduleInput, frozen=True, kw_only=True):
    """Replaces a schedule's definition; `revision` is the one that the caller has read."""

    schedule_id: ScheduleId
    definition: ScheduleDefinition
    revision: int
    paused: bool


class DeleteSchedule(ScheduleInput, frozen=True, kw_only=True):
    """Deletes a schedule. The jobs that it made go on."""

    schedule_id: ScheduleId


class PauseSchedule(ScheduleInput, frozen=True, kw_only=True):
    """Pauses or resumes a schedule."""

    schedule_id: ScheduleId
    paused: bool


class TriggerSchedule(ScheduleInput, frozen=True, kw_only=True):
    """Runs a schedule once now, even while it is paused."""

    schedule_id: ScheduleId


class BackfillSchedule(ScheduleInput, frozen=True, kw_only=True):
    """Creates runs for past instants that have no job, as of `preloaded` (schedule backfill)."""

    schedule_id: ScheduleId
    backfill_id: str
    instants: tuple[Instant, ...]
    max_parallel: int
    priority: int
    ranges: tuple[tuple[Instant, Instant], ...] = ()
    """(first, last) of stored occurrences among them that stand for all instants up to `last`."""


class CancelBackfill(ScheduleInput, frozen=True, kw_only=True):
    """Cancels what is left of a backfill."""

    schedule_id: ScheduleId
    backfill_id: str


class DeploySchedules(ScheduleInput, frozen=True, kw_only=True):
    """Deploys all schedules of a program: those it had before and names no more are retired."""

    owner: str
    schedules: tuple[NewSchedule, ...]
    tenant: str | None = None
    """Retire schedules of this tenant only, since tenants may use the same owner; None: of all."""


class SetCalendar(ScheduleInput, frozen=True, kw_only=True):
    """Creates or replaces a calendar."""

    calendar: Calendar


class DeleteCalendar(ScheduleInput, frozen=True, kw_only=True):
    """Deletes a calendar that no schedule uses."""

    name: str


class ClockJump(Input, frozen=True, kw_only=True):
    """Follows a change of the system clock: user-given times keep their date, leases do not."""

    by: Millis


class LeaderPause(Input, frozen=True, kw_only=True):
    """Extends leases by the time during which no server could answer the workers."""

    by: Millis


class Tick(Input, frozen=True, kw_only=True):
    """Makes everything happen that is due by now."""


AnyWorkerInput: TypeAlias = (
    Register | Heartbeat | Poll | ClosePoll | Complete | Progress | Drain | Resume | Deregister
)
AnyScheduleInput: TypeAlias = (
    CreateSchedule
    | UpdateSchedule
    | DeleteSchedule
    | PauseSchedule
    | TriggerSchedule
    | BackfillSchedule
    | CancelBackfill
    | DeploySchedules
    | SetCalendar
    | DeleteCalendar
)

AnyInput: TypeAlias = (
    Submit
    | Reject
    | Update
    | Cancel
    | Retry
    | Delete
    | Execute
    | AnyWorkerInput
    | PutQueueSettings
    | SetPolicy
    | PutTenantSettings
    | Purge
    | Refilled
    | AnyScheduleInput
    | AnyEventInput
    | ClockJump
    | LeaderPause
    | Tick
)


class MemoryWindow(Input, frozen=True, kw_only=True):
    """Numbers of waiting jobs to keep in memory; the others are spilled (jobs/spill.py)."""

    jobs: int = WINDOW_JOBS
    fifo_group: int = FIFO_GROUP_KEPT
    refill: int = REFILL_JOBS


class Timing(Input, frozen=True, kw_only=True):
    """Lengths of leases, and how many waiting jobs stay in memory; fixed for a scheduler."""

    lease_ttl_ms: Millis = 15_000
    lease_grace_ms: Millis = 2_000
    """A job runs again only this long after its lease: the clocks of workers may be late by it."""
    handover_ms: Millis = 0
    """How long the previous leader may have gone on renewing leases after it was last heard of."""
    window: MemoryWindow = MemoryWindow()

    @property
    def heartbeat_ms(self) -> Millis:
        """Interval of heartbeats: a lease survives two lost ones."""
        return self.lease_ttl_ms // 3
