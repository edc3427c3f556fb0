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
    """The base of all inputs."""


class Preloaded(Input, frozen=True, kw_only=True):
    """What the tables said at `at`: jobs that may have left memory, and the key if it was used."""

    at: Instant
    jobs: tuple[JobRecord, ...] = ()
    upstream: tuple[JobRecord, ...] = ()
    """What `jobs` depend on: only for how they ended."""
    key: KeyRecord | None = None
    accepted_events: tuple[AcceptedEvent, ...] = ()
    """Events that were accepted before."""


class Key(Input, frozen=True, kw_only=True):
    """An idempotency key and the fingerprint of the request that carries it."""

    key: str
    fingerprint: str


class Idempotent(Input, frozen=True, kw_only=True):
    """The base of inputs that may be repeated safely under a key."""

    key: Key | None = None
    preloaded: Preloaded | None = None


class EventInput(Idempotent, frozen=True, kw_only=True):
    """The base of what happens to triggers, so that they are told from all else at once."""


class NewTrigger(Input, frozen=True, kw_only=True):
    """One trigger to make; in a deployment the id is used only if its name is new."""

    id: TriggerId
    definition: TriggerDefinition
    paused: bool = False


class CreateTrigger(EventInput, frozen=True, kw_only=True):
    """A new trigger."""

    trigger: NewTrigger


class UpdateTrigger(EventInput, frozen=True, kw_only=True):
    """Replaces the rule of a trigger; `revision` is the one it was read at."""

    trigger_id: TriggerId
    definition: TriggerDefinition
    revision: int
    paused: bool


class DeleteTrigger(EventInput, frozen=True, kw_only=True):
    """A trigger makes no more jobs, and is gone; what it made goes on."""

    trigger_id: TriggerId


class PauseTrigger(EventInput, frozen=True, kw_only=True):
    """A trigger makes no jobs until it is resumed, or does again."""

    trigger_id: TriggerId
    paused: bool


class DeployTriggers(EventInput, frozen=True, kw_only=True):
    """All triggers that a program has: what it had and names no more is retired."""

    owner: str
    triggers: tuple[NewTrigger, ...]
    tenant: str | None = None
    """Of this tenant only, whoever else has an owner of that name; None: of all."""


class ReceiveEvents(EventInput, frozen=True, kw_only=True):
    """Things that happened outside; `recall` has those of them that were told before."""

    events: tuple[Event, ...]


AnyEventInput: TypeAlias = (
    ReceiveEvents | CreateTrigger | UpdateTrigger | DeleteTrigger | PauseTrigger | DeployTriggers
)


class Drain(Idempotent, frozen=True, kw_only=True):
    """A worker gets no new work."""

    worker_id: WorkerId


class Resume(Idempotent, frozen=True, kw_only=True):
    """A drained worker gets work again."""

    worker_id: WorkerId


class Deregister(Idempotent, frozen=True, kw_only=True):
    """A worker is gone for good; what it still had is lost."""

    worker_id: WorkerId


class NewJob(Input, frozen=True, kw_only=True):
    """One job to submit. `ref` is its name inside a batch, for error messages."""

    id: JobId
    spec: Spec
    ref: str = ""


class Submit(Idempotent, frozen=True, kw_only=True):
    """One job or a whole batch: all or none."""

    jobs: tuple[NewJob, ...]
    promised: bool = False
    """Somebody holds their ids already: the answer to an earlier request is none to this one."""


class Reject(Input, frozen=True, kw_only=True):
    """Jobs that were promised before anybody could check them, and turned out to be impossible."""

    jobs: tuple[NewJob, ...]
    why: str
    duplicate: bool = False
    """The same request was accepted under other ids: these are kept only to say so."""


class Update(Idempotent, frozen=True, kw_only=True):
    """Replaces the spec of a job not started yet; `spec.revision` is the one it was read at."""

    job_id: JobId
    spec: Spec


class Cancel(Idempotent, frozen=True, kw_only=True):
    """Stops a job: at once if it waits, through its worker if it runs."""

    job_id: JobId


class Retry(Idempotent, frozen=True, kw_only=True):
    """Starts an ended job over; `recall` has it and its skipped dependents."""

    job_id: JobId
    failed: tuple[int, ...] | None = None
    """Of an array: the members that did not succeed. None: nobody has looked."""


class Delete(Idempotent, frozen=True, kw_only=True):
    """Removes an ended job; `force` cancels a live one first."""

    job_id: JobId
    force: bool = False


class Execute(Idempotent, frozen=True, kw_only=True):
    """This job on that worker, past time, order and pause."""

    job_id: JobId
    worker_id: WorkerId


class Register(Idempotent, frozen=True, kw_only=True):
    """A worker says what it is and has."""

    worker_id: WorkerId
    session: str
    name: str
    capacity: Resources
    capabilities: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    labels: Labels = ()
    only: tuple[str, ...] = ()


class Running(Input, frozen=True, kw_only=True):
    """A worker names an execution that it has; JSON text where progress came with it."""

    execution_id: ExecutionId
    fence: int | None = None
    progress: float | None = None
    message: str | None = None


class Completion(Input, frozen=True, kw_only=True):
    """How an execution ended. `result`, `error` and `usage` are JSON text."""

    execution_id: ExecutionId
    fence: int
    state: ExecutionState
    result: bytes | None = None
    error: bytes | None = None
    exit_code: int | None = None
    usage: bytes | None = None
    retryable: bool = True
    delay_ms: Millis | None = None
    """When to try again, instead of what the policy says."""
    used: MeasuredUsage | None = None
    """What `usage` says of what the scheduler learns from."""


class Heartbeat(Input, frozen=True, kw_only=True):
    """A worker is alive. `executions` None: it did not say what it runs."""

    worker_id: WorkerId
    session: str | None = None
    executions: tuple[Running, ...] | None = None


class Poll(Input, frozen=True, kw_only=True):
    """A worker reports, and waits for work until `until`.

    `spare`: orders it can prefetch. `patient`: it waits whether it reports or not.
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
    """The one who waited has gone away."""

    poll_id: PollId
    worker_id: WorkerId


class Complete(Input, frozen=True, kw_only=True):
    """An execution ended."""

    completion: Completion


class Progress(Input, frozen=True, kw_only=True):
    """An execution says how far it is."""

    running: Running


class PutQueueSettings(Idempotent, frozen=True, kw_only=True):
    """Sets what is given of a queue and leaves the rest (`replace`: back to defaults)."""

    name: str
    replace: bool = False
    priority: int | None = None
    weight: float | None = None
    max_workers: int | None = None
    rate_limit: RateLimit | None = None
    paused: bool | None = None
    limits: tuple[tuple[str, int | None], ...] = ()
    """Names of `Limits` and their new values; None: back to what everybody is held to."""
    cleared: tuple[str, ...] = ()
    """Fields to put back to their defaults."""


class SetPolicy(Idempotent, frozen=True, kw_only=True):
    """Another policy for the whole cell."""

    policy: Policy


class PutTenantSettings(Idempotent, frozen=True, kw_only=True):
    """A tenant's weight and quota, both as given."""

    name: str
    weight: float = 1.0
    quota: Quota | None = None


class Purge(Idempotent, frozen=True, kw_only=True):
    """Cancels all jobs that wait in a queue, or only those of them that `recall` brings.

    Memory has not all of them: whoever purges first brings the others, piece by piece.
    """

    name: str
    before: int = 0
    """How many the pieces before this one have cancelled; the receipt counts them too."""
    most: int | None = None
    """So many at once: a long line ends piece by piece, so that others have their turns."""


class Refilled(Input, frozen=True, kw_only=True):
    """The store's answer to a `Refill` of this scheduler."""

    refill: Refill
    jobs: tuple[JobRecord, ...]


class ScheduleInput(Idempotent, frozen=True, kw_only=True):
    """The base of what happens to schedules, so that they are told from all else at once."""


class NewSchedule(Input, frozen=True, kw_only=True):
    """One schedule to make; in a deployment the id is used only if its name is new."""

    id: ScheduleId
    definition: ScheduleDefinition
    paused: bool = False


class CreateSchedule(ScheduleInput, frozen=True, kw_only=True):
    """A new schedule."""

    schedule: NewSchedule


class UpdateSchedule(ScheduleInput, frozen=True, kw_only=True):
    """Replaces the plan of a schedule; `revision` is the one it was read at."""

    schedule_id: ScheduleId
    definition: ScheduleDefinition
    revision: int
    paused: bool


class DeleteSchedule(ScheduleInput, frozen=True, kw_only=True):
    """A schedule makes no more jobs, and is gone; what it made goes on."""

    schedule_id: ScheduleId


class PauseSchedule(ScheduleInput, frozen=True, kw_only=True):
    """A schedule makes no jobs until it is resumed, or does again."""

    schedule_id: ScheduleId
    paused: bool


class TriggerSchedule(ScheduleInput, frozen=True, kw_only=True):
    """One run now, whatever the time is and even while paused."""

    schedule_id: ScheduleId


class BackfillSchedule(ScheduleInput, frozen=True, kw_only=True):
    """Runs for instants of the past that the ledger has no job for, as of `recall`."""

    schedule_id: ScheduleId
    backfill_id: str
    instants: tuple[Instant, ...]
    max_parallel: int
    priority: int
    ranges: tuple[tuple[Instant, Instant], ...] = ()
    """Records among them that stand for all instants up to another."""


class CancelBackfill(ScheduleInput, frozen=True, kw_only=True):
    """Calls off what is left of a backfill."""

    schedule_id: ScheduleId
    backfill_id: str


class DeploySchedules(ScheduleInput, frozen=True, kw_only=True):
    """All schedules that a program has: what it had and names no more is retired."""

    owner: str
    schedules: tuple[NewSchedule, ...]
    tenant: str | None = None
    """Of this tenant only, whoever else has an owner of that name; None: of all."""


class SetCalendar(ScheduleInput, frozen=True, kw_only=True):
    """A calendar as it is from now on."""

    calendar: Calendar


class DeleteCalendar(ScheduleInput, frozen=True, kw_only=True):
    """A calendar that no schedule names goes."""

    name: str


class ClockJump(Input, frozen=True, kw_only=True):
    """Somebody set the clock: times that people named follow it, leases must not."""

    by: Millis


class LeaderPause(Input, frozen=True, kw_only=True):
    """Nobody could be answered for so long: what workers hold goes on for as much longer."""

    by: Millis


class Tick(Input, frozen=True, kw_only=True):
    """Time has passed; whatever is due happens."""


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
    """How much of what waits is kept in memory; the rest is on the shelf (life/shelving.py)."""

    jobs: int = WINDOW_JOBS
    fifo_group: int = FIFO_GROUP_KEPT
    refill: int = REFILL_JOBS


class Timing(Input, frozen=True, kw_only=True):
    """What a scheduler is told once: the lengths that leases are made of, and its window."""

    lease_ttl_ms: Millis = 15_000
    lease_grace_ms: Millis = 2_000
    """A holder's clock may be late by this before its work is given to another."""
    handover_ms: Millis = 0
    """The leader before may have renewed leases until so long after it was last heard of."""
    window: MemoryWindow = MemoryWindow()

    @property
    def heartbeat_ms(self) -> Millis:
        """Three beats may be lost before a lease is."""
        return self.lease_ttl_ms // 3
