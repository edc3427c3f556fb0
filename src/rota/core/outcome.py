"""Outcome of a turn: writes to the journal, then receipts, orders and refills, released later.

Each write is one fact of a journal record. Tags and the order of fields are stored: a new field
goes last and has a default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from rota.core.errors import Refusal
from rota.core.model import (
    Execution,
    ExecutionId,
    GroupContext,
    JobId,
    JobLimits,
    JobRecord,
    JobState,
    KeyRecord,
    Life,
    Millis,
    PollId,
    Queue,
    RuntimeStats,
    ScheduleId,
    Spec,
    Tenant,
    TriggerId,
    Worker,
    WorkerId,
)
from rota.core.policy import Policy
from rota.core.schedule_model import Calendar, Occurrence, Schedule, ScheduleState
from rota.core.trigger_model import (
    AcceptedEvent,
    BufferedEvent,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
)


class Write(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Base class of the facts that a journal record is made of."""


class PutJob(Write, frozen=True, tag="j"):
    """Writes a whole job: a new one, or one whose spec changed."""

    id: JobId
    spec: Spec
    life: Life


class PutGroup(PutJob, frozen=True, tag="jb"):
    """Writes a whole array, gang or member of one.

    It has a tag of its own, so that a program that does not know job groups does not read it as a
    plain job.
    """


class PutTrigger(Write, frozen=True, tag="t"):
    trigger: Trigger


class DropTrigger(Write, frozen=True, tag="dt"):
    """Deletes a trigger. Its decisions on events stay until retention removes them."""

    id: TriggerId


class PutEvent(Write, frozen=True, tag="v"):
    """Records that an event was accepted, or was sent again."""

    event: AcceptedEvent


class PutTriggerDecision(Write, frozen=True, tag="a"):
    """Records a trigger's decision on an event, in place of an earlier record of the same."""

    decision: TriggerDecision


class PutBufferedEvent(Write, frozen=True, tag="h"):
    """Stores an event that waits in a trigger's window."""

    event: BufferedEvent


class ReleaseBufferedEvents(Write, frozen=True, tag="rh"):
    """Removes events that no longer wait."""

    ids: tuple[TriggerDecisionId, ...]


AnyEventWrite: TypeAlias = (
    PutTrigger
    | DropTrigger
    | PutEvent
    | PutTriggerDecision
    | PutBufferedEvent
    | ReleaseBufferedEvents
)


class MoveJob(Write, frozen=True, tag="m"):
    """Writes a job's new `Life`; its spec is unchanged."""

    id: JobId
    life: Life


class DropJob(Write, frozen=True, tag="dj"):
    """Deletes a job with its executions, labels and logs."""

    id: JobId


class PutExecution(Write, frozen=True, tag="e"):
    execution: Execution


class PutWorker(Write, frozen=True, tag="w"):
    worker: Worker


class DropWorker(Write, frozen=True, tag="dw"):
    id: WorkerId


class PutQueue(Write, frozen=True, tag="q"):
    queue: Queue


class PutPolicy(Write, frozen=True, tag="po"):
    policy: Policy


class PutTenant(Write, frozen=True, tag="te"):
    tenant: Tenant


class PutRuntime(Write, frozen=True, tag="rt"):
    """Writes run times and usage of the jobs of a name."""

    runtime: RuntimeStats


class PutKey(Write, frozen=True, tag="k"):
    """Writes an idempotency key and the receipt of its request."""

    record: KeyRecord


class PutSchedule(Write, frozen=True, tag="s"):
    """Writes a whole schedule: a new one, or one whose definition changed."""

    schedule: Schedule


class MoveSchedule(Write, frozen=True, tag="ms"):
    """Writes a schedule's new state; its definition is unchanged."""

    id: ScheduleId
    state: ScheduleState


class DropSchedule(Write, frozen=True, tag="ds"):
    """Deletes a schedule. Its occurrences stay until retention removes them."""

    id: ScheduleId


class PutOccurrence(Write, frozen=True, tag="o"):
    """Records the decision on an instant of a schedule, in place of an earlier one."""

    occurrence: Occurrence


class PutCalendar(Write, frozen=True, tag="c"):
    calendar: Calendar


class DropCalendar(Write, frozen=True, tag="dc"):
    name: str


AnyWrite: TypeAlias = (
    PutJob
    | PutGroup
    | MoveJob
    | DropJob
    | PutExecution
    | PutWorker
    | DropWorker
    | PutQueue
    | PutKey
    | PutSchedule
    | MoveSchedule
    | DropSchedule
    | PutOccurrence
    | PutCalendar
    | DropCalendar
    | AnyEventWrite
    | PutPolicy
    | PutTenant
    | PutRuntime
)


class Receipt(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Base class of answers to commands, sent when the command's record is durable."""


class JobsAccepted(Receipt, frozen=True, tag="a"):
    """Answers a submission, ids in the order given. `first` is set for a single job."""

    job_ids: tuple[JobId, ...]
    first: JobRecord | None = None


class JobAnswer(Receipt, frozen=True, tag="j"):
    """Answers with the job after the command."""

    job: JobRecord


class JobGone(Receipt, frozen=True, tag="g"):
    """Answers that the job was deleted."""

    job_id: JobId


class ExecutionAnswer(Receipt, frozen=True, tag="e"):
    """Answers with the execution after the command."""

    execution: Execution


class WorkerAnswer(Receipt, frozen=True, tag="w"):
    """Answers with the worker after the command."""

    worker: Worker


class QueueAnswer(Receipt, frozen=True, tag="q"):
    """Answers with the queue after the command."""

    queue: Queue


class PolicyAnswer(Receipt, frozen=True, tag="po"):
    """Answers with the policy after the command."""

    policy: Policy


class TenantAnswer(Receipt, frozen=True, tag="ta"):
    """Answers with the tenant after the command."""

    tenant: Tenant


class HeartbeatReply(Receipt, frozen=True, tag="b"):
    """Answers a heartbeat: executions to stop, and those whose lease the worker has lost."""

    cancel: tuple[ExecutionId, ...] = ()
    lost: tuple[ExecutionId, ...] = ()


class CountReceipt(Receipt, frozen=True, tag="n"):
    """Answers with the number of things that the command changed."""

    count: int


class PollOpened(Receipt, frozen=True, tag="p"):
    """Answers that the poll is open; a `PollAnswer` ends it."""

    poll_id: PollId


class ScheduleAnswer(Receipt, frozen=True, tag="s"):
    """Answers with the schedule after the command."""

    schedule: Schedule


class ScheduleGone(Receipt, frozen=True, tag="sg"):
    """Answers that the schedule was deleted."""

    schedule_id: ScheduleId


class Triggered(Receipt, frozen=True, tag="t"):
    """Answers a manual run of a schedule."""

    occurrence: Occurrence
    job: JobRecord


class Backfilled(Receipt, frozen=True, tag="bf"):
    """Answers a schedule backfill with the ids of its jobs."""

    backfill_id: str
    job_ids: tuple[JobId, ...]


class Deployed(Receipt, frozen=True, tag="d"):
    """Answers a deployment with the names of schedules or triggers by what was done to them."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()


class CalendarAnswer(Receipt, frozen=True, tag="c"):
    """Answers with the calendar after the command."""

    calendar: Calendar


class TriggerAnswer(Receipt, frozen=True, tag="tr"):
    """Answers with the trigger after the command."""

    trigger: Trigger


class TriggerGone(Receipt, frozen=True, tag="tg"):
    """Answers that the trigger was deleted."""

    trigger_id: TriggerId


class EventsAccepted(Receipt, frozen=True, tag="ev"):
    """Answers with the events, in the order given, and whether each had been accepted before."""

    events: tuple[AcceptedEvent, ...]
    repeated: tuple[bool, ...]


AnyReceipt: TypeAlias = (
    JobsAccepted
    | JobAnswer
    | JobGone
    | ExecutionAnswer
    | WorkerAnswer
    | QueueAnswer
    | PolicyAnswer
    | TenantAnswer
    | HeartbeatReply
    | CountReceipt
    | PollOpened
    | ScheduleAnswer
    | ScheduleGone
    | Triggered
    | Backfilled
    | Deployed
    | CalendarAnswer
    | TriggerAnswer
    | TriggerGone
    | EventsAccepted
)


class Order(msgspec.Struct, frozen=True, gc=False):
    """Order to a worker to run an execution."""

    execution: Execution
    spec: Spec
    limits: JobLimits | None = None
    """Limits of the queue, if it has any."""
    group: GroupContext | None = None
    is_prefetched: bool = False
    """Prefetched: may start only when the execution `behind` which it waits has ended there."""


class PollAnswer(msgspec.Struct, frozen=True, gc=False):
    """Ends a worker's open poll with orders, executions to stop and lost ones, or a refusal."""

    poll_id: PollId
    orders: tuple[Order, ...] = ()
    cancel: tuple[ExecutionId, ...] = ()
    lost: tuple[ExecutionId, ...] = ()
    refusal: Refusal | None = None
    """Set if the worker was superseded or forgotten while its poll was open."""


class Ended(msgspec.Struct, frozen=True, gc=False):
    """Counts for metrics: a job of this queue that ended, after `ran_ms` (None: it never ran)."""

    queue: str
    state: JobState
    ran_ms: Millis | None


class Refill(msgspec.Struct, frozen=True, gc=False):
    """Asks the store for the next jobs of a spill queue after arrival number `after`, in order.

    The store answers when the projection has this turn, or at once if `exact` is false; its answer
    is the command `Refilled`.
    """

    spill_queue: int
    after: int
    limit: int
    request_id: int
    """Tells the answer to this request from those to earlier ones."""
    urgent: bool = False
    """A worker waits for these jobs; otherwise memory has enough for a while."""
    exact: bool = True
    """The tables must have the turn that asks; otherwise they are right already."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """Outcome of one turn. Replies are in the order of the commands."""

    replies: list[AnyReceipt | Refusal]
    writes: list[AnyWrite]
    answers: list[PollAnswer]
    submitted: int = 0
    waits: Sequence[Millis] = ()
    """How long each job that was started had been ready."""
    ends: Sequence[Ended] = ()
    refills: Sequence[Refill] = ()
    """Requests for spilled jobs, to send as soon as this turn is durable."""
    occurrences: Sequence[Occurrence] = ()
    """Instants of schedules that were decided in this turn."""
    deadlines: Mapping[str, int] = {}
    """How many jobs became at risk of missing their deadline, met it, or missed it in this turn."""
    event_counts: Mapping[str, int] = {}
    """How many events were accepted and repeated, and how many decisions there were of each
    kind."""


_receipt_encoder = msgspec.msgpack.Encoder()
_receipt_decoder: msgspec.msgpack.Decoder[AnyReceipt] = msgspec.msgpack.Decoder(AnyReceipt)


def encode_receipt(receipt: AnyReceipt) -> bytes:
    return _receipt_encoder.encode(receipt)


def decode_receipt(data: bytes) -> AnyReceipt:
    """Decodes a receipt that was stored with an idempotency key."""
    return _receipt_decoder.decode(data)
