"""Outcome of a turn: writes to the journal, then receipts, orders and refills, released later.

Each write is one fact of a journal record. Tags and the order of fields are stored: a new field
goes last and has a default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from rota.core.errors import Refusal
from rota.core.group_model import GroupContext
from rota.core.model import (
    Execution,
    ExecutionId,
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
    """The base of the facts that one journal record is made of."""


class PutJob(Write, frozen=True, tag="j"):
    """A job as a whole: new, or its spec changed."""

    id: JobId
    spec: Spec
    life: Life


class PutGroup(PutJob, frozen=True, tag="jb"):
    """The same of an array, a gang or a member of one.

    A name of its own, so that a program that knows of none does not take it for a plain job.
    """


class PutTrigger(Write, frozen=True, tag="t"):
    """A trigger, as a whole."""

    trigger: Trigger


class DropTrigger(Write, frozen=True, tag="dt"):
    """A trigger is gone. What it made of events stays until it is too old."""

    id: TriggerId


class PutEvent(Write, frozen=True, tag="v"):
    """An event was accepted, or came again."""

    event: AcceptedEvent


class PutTriggerDecision(Write, frozen=True, tag="a"):
    """What a trigger made of an event; in place of an earlier record of the same."""

    decision: TriggerDecision


class PutBufferedEvent(Write, frozen=True, tag="h"):
    """An event waits for others."""

    event: BufferedEvent


class ReleaseBufferedEvents(Write, frozen=True, tag="rh"):
    """Events wait no more."""

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
    """A job moved; its spec is what it was."""

    id: JobId
    life: Life


class DropJob(Write, frozen=True, tag="dj"):
    """A job is gone, and with it its executions, labels and logs."""

    id: JobId


class PutExecution(Write, frozen=True, tag="e"):
    """An execution, as a whole."""

    execution: Execution


class PutWorker(Write, frozen=True, tag="w"):
    """A worker, as a whole."""

    worker: Worker


class DropWorker(Write, frozen=True, tag="dw"):
    """A worker is forgotten."""

    id: WorkerId


class PutQueue(Write, frozen=True, tag="q"):
    """A queue, as a whole."""

    queue: Queue


class PutPolicy(Write, frozen=True, tag="po"):
    """The policy of the cell."""

    policy: Policy


class PutTenant(Write, frozen=True, tag="te"):
    """A tenant, as a whole."""

    tenant: Tenant


class PutRuntime(Write, frozen=True, tag="rt"):
    """What is known of how long jobs of a name run."""

    runtime: RuntimeStats


class PutKey(Write, frozen=True, tag="k"):
    """An idempotency key and what was answered to it."""

    record: KeyRecord


class PutSchedule(Write, frozen=True, tag="s"):
    """A schedule as a whole: new, or its plan changed."""

    schedule: Schedule


class MoveSchedule(Write, frozen=True, tag="ms"):
    """A schedule has come further; its plan is what it was."""

    id: ScheduleId
    state: ScheduleState


class DropSchedule(Write, frozen=True, tag="ds"):
    """A schedule is gone. Its ledger stays until it is too old."""

    id: ScheduleId


class PutOccurrence(Write, frozen=True, tag="o"):
    """What became of an instant of a schedule; in place of an earlier record of the same one."""

    occurrence: Occurrence


class PutCalendar(Write, frozen=True, tag="c"):
    """A calendar, as a whole."""

    calendar: Calendar


class DropCalendar(Write, frozen=True, tag="dc"):
    """A calendar is gone."""

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
    """The base of what a caller is told when its input is durable."""


class JobsAccepted(Receipt, frozen=True, tag="a"):
    """Submitted; in the order given. `first` is set for a single job."""

    job_ids: tuple[JobId, ...]
    first: JobRecord | None = None


class JobAnswer(Receipt, frozen=True, tag="j"):
    """The job as it is after the step."""

    job: JobRecord


class JobGone(Receipt, frozen=True, tag="g"):
    """The job was removed."""

    job_id: JobId


class ExecutionAnswer(Receipt, frozen=True, tag="e"):
    """The execution as it is after the step."""

    execution: Execution


class WorkerAnswer(Receipt, frozen=True, tag="w"):
    """The worker as it is after the step."""

    worker: Worker


class QueueAnswer(Receipt, frozen=True, tag="q"):
    """The queue as it is after the step."""

    queue: Queue


class PolicyAnswer(Receipt, frozen=True, tag="po"):
    """The policy as it is after the step."""

    policy: Policy


class TenantAnswer(Receipt, frozen=True, tag="ta"):
    """The tenant as it is after the step."""

    tenant: Tenant


class HeartbeatReply(Receipt, frozen=True, tag="b"):
    """A heartbeat's answer: what to stop, and what is no longer the worker's."""

    cancel: tuple[ExecutionId, ...] = ()
    lost: tuple[ExecutionId, ...] = ()


class CountReceipt(Receipt, frozen=True, tag="n"):
    """How many things a step touched."""

    count: int


class PollOpened(Receipt, frozen=True, tag="p"):
    """The poll waits; its answer comes as an `Answer` effect."""

    poll_id: PollId


class ScheduleAnswer(Receipt, frozen=True, tag="s"):
    """The schedule as it is after the step."""

    schedule: Schedule


class ScheduleGone(Receipt, frozen=True, tag="sg"):
    """The schedule was removed."""

    schedule_id: ScheduleId


class Triggered(Receipt, frozen=True, tag="t"):
    """One run of a schedule, asked for by a person."""

    occurrence: Occurrence
    job: JobRecord


class Backfilled(Receipt, frozen=True, tag="bf"):
    """Runs of a schedule for instants of the past."""

    backfill_id: str
    job_ids: tuple[JobId, ...]


class Deployed(Receipt, frozen=True, tag="d"):
    """What a program's schedules came to, by name."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()


class CalendarAnswer(Receipt, frozen=True, tag="c"):
    """The calendar as it is after the step."""

    calendar: Calendar


class TriggerAnswer(Receipt, frozen=True, tag="tr"):
    """The trigger as it is after the step."""

    trigger: Trigger


class TriggerGone(Receipt, frozen=True, tag="tg"):
    """The trigger was removed."""

    trigger_id: TriggerId


class EventsAccepted(Receipt, frozen=True, tag="ev"):
    """Events, in the order given, and whether each had been accepted before."""

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
    """What a worker is told to run."""

    execution: Execution
    spec: Spec
    limits: JobLimits | None = None
    """The queue's own, where it has any."""
    group: GroupContext | None = None
    is_prefetched: bool = False
    """It may begin only when the execution that it is behind has ended there."""


class PollAnswer(msgspec.Struct, frozen=True, gc=False):
    """Ends a worker's open poll."""

    poll_id: PollId
    orders: tuple[Order, ...] = ()
    cancel: tuple[ExecutionId, ...] = ()
    lost: tuple[ExecutionId, ...] = ()
    refusal: Refusal | None = None
    """Set when the worker was superseded or forgotten while it waited."""


class Ended(msgspec.Struct, frozen=True, gc=False):
    """For the figures: a job of this queue ended so after `ran_ms` (None: never ran)."""

    queue: str
    state: JobState
    ran_ms: Millis | None


class Refill(msgspec.Struct, frozen=True, gc=False):
    """Asks for the next jobs of a line of the store, those behind `after`, in order of arrival.

    To be read when the turn that asks is in the tables, or at once if it need not be `exact`; the
    answer is the input `Refilled`.
    """

    spill_queue: int
    after: int
    limit: int
    request_id: int
    """Tells the answer from one to an earlier question."""
    urgent: bool = False
    """Whether a worker waits for them; else memory has enough for a while."""
    exact: bool = True
    """Whether the tables must have the turn that asks; else they are right as they are."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """All that one turn comes to. Replies are in the order of the inputs."""

    replies: list[AnyReceipt | Refusal]
    writes: list[AnyWrite]
    answers: list[PollAnswer]
    submitted: int = 0
    waits: Sequence[Millis] = ()
    """How long each job that was started had been ready."""
    ends: Sequence[Ended] = ()
    refills: Sequence[Refill] = ()
    """What memory wants of the store, as soon as this turn is durable."""
    occurrences: Sequence[Occurrence] = ()
    """What became of instants of schedules in this turn."""
    deadlines: Mapping[str, int] = {}
    """How many jobs are at risk to miss their deadline, met it, or missed it, as of this turn."""
    event_counts: Mapping[str, int] = {}
    """How many events were accepted and repeated, and how many verdicts there were of each."""


_receipt_encoder = msgspec.msgpack.Encoder()
_receipt_decoder: msgspec.msgpack.Decoder[AnyReceipt] = msgspec.msgpack.Decoder(AnyReceipt)


def encode_receipt(receipt: AnyReceipt) -> bytes:
    """To keep with an idempotency key."""
    return _receipt_encoder.encode(receipt)


def decode_receipt(data: bytes) -> AnyReceipt:
    """The receipt that was given the first time."""
    return _receipt_decoder.decode(data)
