"""The engine's interfaces: what it needs of the world, what it offers to the API, and the types of
its answers.

`Clock`, `Observer` and `AnswerEncoder` are handed in; `Brain` is what the API may ask. Forecasts
are answered as `Estimate` and `Outlook`; `engine/forecast.py` makes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from rota.core.capacity import Demand
from rota.core.commands import AnyInput, Poll, Submit, Timing
from rota.core.explain.remedies import Remedy
from rota.core.info_model import (
    DeadlineInfo,
    Explanation,
    Position,
    QueueInfo,
    ReservationInfo,
    ScheduleInfo,
    TenantInfo,
    TriggerDryRun,
    TriggerInfo,
    WorkerInfo,
)
from rota.core.model import (
    Instant,
    JobId,
    JobName,
    JobRecord,
    Millis,
    PollId,
    Resources,
    ScheduleId,
    TriggerId,
    WorkerId,
)
from rota.core.outcome import AnyReceipt, Outcome, PollAnswer
from rota.core.policy import Policy
from rota.core.runtime_estimates import UsageHistory
from rota.core.schedule_model import Calendar, Schedule, ScheduleDefinition
from rota.core.schedules.recurrence import PreviewedInstant
from rota.core.trigger_model import Event, TriggerDefinition
from rota.store.protocol import Totals

KNOWN_TIMES = "known_times"
RESERVATION = "reservation"
FORWARD_RUN = "forward_run"
FLUID = "fluid"
NEVER = "never"
UNKNOWN = "unknown"


class Accuracy(msgspec.Struct, frozen=True):
    """How often starts fell inside the interval that was given for them."""

    inside: float
    """Of the last of them."""
    starts: int
    """All that were told a start and have started."""


class Estimate(msgspec.Struct, frozen=True):
    """When a job will start. `low` to `high` holds four of five starts, by past experience."""

    at: Instant | None
    low: Instant | None
    high: Instant | None
    method: str
    computed_at: Instant
    worker_id: WorkerId | None = None
    """Where, if all goes as expected."""
    ahead: int | None = None
    """How many jobs start before it, of all lines."""


class ObservedCause(msgspec.Struct, frozen=True):
    """What kept a job waiting, when somebody asked."""

    code: str
    first: Instant
    last: Instant


class Outlook(msgspec.Struct, frozen=True):
    """All that is known of a job that waits, and what is to come of it."""

    explanation: Explanation
    estimate: Estimate
    position: Position | None = None
    reliefs: tuple[Remedy, ...] = ()
    deadline: DeadlineInfo | None = None
    accuracy: Accuracy | None = None
    seen: tuple[ObservedCause, ...] = ()
    """The first causes that others were told before, the newest last."""


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> Instant:
        """Wall time in milliseconds; somebody may set it forward or back."""
        ...

    def steady(self) -> Millis:
        """Milliseconds that run evenly, through suspend too."""
        ...

    def fine_s(self) -> float:
        """Seconds for measuring short times."""
        ...


class AnswerEncoder(Protocol):
    """Makes a poll's answer ready beside the loop, for whoever waits for it."""

    def write(self, answer: PollAnswer) -> None:
        """Puts it into words while what it says becomes durable. It may never do, so nothing of it
        may leave here."""
        ...

    def post(self, answer: PollAnswer) -> None:
        """It is durable and about to be given: what was written of it may leave."""
        ...


class Observer(Protocol):
    """Hears of every turn, for the figures."""

    def loaded(self, totals: Totals) -> None:
        """Memory was read from the store."""
        ...

    def turn_committed(self, outcome: Outcome) -> None:
        """A turn is durable; nobody has been told yet, for who is told may look at the figures."""
        ...

    def turn_finished(self, outcome: Outcome, append_s: float, turn_s: float) -> None:
        """They have been told; the append took `append_s`, all of it `turn_s` seconds."""
        ...

    def reloaded(self, reason: str) -> None:
        """Memory was thrown away and read again."""
        ...


class LeadershipStatus(msgspec.Struct, frozen=True):
    """A server's part in its cell."""

    leads: bool
    """Whether it decides, here and now."""
    leader: str | None
    """The leader's name; None: nobody is known to lead."""
    address: str
    """Where the leader is reached, if it is another server and said so."""
    epoch: int
    seq: int
    """The newest journal record this server has."""


class UnavailableError(Exception):
    """The engine cannot answer now (starting, reloading, stopping, store away): ask again."""

    def __init__(self, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s


class BusyError(UnavailableError):
    """The inbox is full: slow down."""


class Brain(Protocol):
    """What the api room may ask of the engine. Everything answered is durable."""

    clock: Clock
    timing: Timing

    def suspect_leader(self, epoch: int) -> None:
        """The leader of that epoch does not answer this server any more; 0: it does."""
        ...

    def step_aside(self, epoch: int) -> None:
        """Lets another lead, if this server still does in that epoch: no other reaches it."""
        ...

    async def post(self, event: AnyInput) -> AnyReceipt:
        """Steps one input; raises the Refusal, UnavailableError or BusyError it met."""
        ...

    async def poll(
        self, event: Poll, heard: asyncio.Event, clerk: AnswerEncoder | None = None
    ) -> PollAnswer:
        """Waits for work; if the caller is cancelled, the poll is closed.

        What it reports is durable when `heard` is set, which may be long before the answer.
        The clerk hears what the answer will be, if it becomes durable.
        """
        ...

    def next_poll_id(self) -> PollId:
        """A number no other poll of this process has."""
        ...

    async def settled(self) -> None:
        """Returns at a moment when memory says no more than what is durable.

        Whatever is looked at below without waiting in between is then true and of one piece.
        """
        ...

    def is_new_key(self, key: str) -> bool:
        """Whether it is certain that no leader has accepted anything under this key."""
        ...

    def promise_key(self, key: str) -> None:
        """This server is about to promise something under it, without a leader."""
        ...

    def why(self, job_id: JobId, record: JobRecord | None = None) -> Explanation | None:
        """Why a job waits; None if it is not among the live ones.

        Of one on the shelf memory knows nothing but what `record`, as the store has it, says.
        """
        ...

    async def outlook(self, job: JobRecord) -> Outlook | None:
        """All about a job that waits, and when it will start; None: memory has it not so."""
        ...

    async def rehearse(self, event: Submit) -> Sequence[Outlook]:
        """What would become of jobs that nobody submitted; raises what they would be refused."""
        ...

    def deadline(self, job: JobRecord, start: Instant | None = None) -> DeadlineInfo | None:
        """How a job stands to its deadline, if it has one; `start`: when it will start."""
        ...

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """(progress, message) of a running job, newer than what is stored; None if not running."""
        ...

    def workers(self) -> Sequence[WorkerInfo]:
        """All workers known, offline ones too."""
        ...

    def worker(self, worker_id: WorkerId) -> WorkerInfo | None:
        """One of them."""
        ...

    def places(self) -> Iterator[ReservationInfo]:
        """What is reserved for jobs that wait; not to be held over an await."""
        ...

    def queues(self) -> Sequence[QueueInfo]:
        """All queues."""
        ...

    def ready_since(self) -> Mapping[str, Instant]:
        """By queue with ready jobs, since when the longest waiting head of a line has been so.

        Looks at heads of lines only: what waits behind them costs nothing.
        """
        ...

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleInfo]:
        """Those to keep, newest first; not to be held over an await."""
        ...

    def schedule(self, schedule_id: ScheduleId) -> ScheduleInfo | None:
        """One of them."""
        ...

    def calendars(self) -> Sequence[Calendar]:
        """All calendars, by name."""
        ...

    def foresee(
        self, schedule_id: ScheduleId, after: Instant, count: int
    ) -> Sequence[PreviewedInstant]:
        """The next instants of a schedule; raises NotFound."""
        ...

    def foresee_plan(
        self, plan: ScheduleDefinition, after: Instant, count: int
    ) -> Sequence[PreviewedInstant]:
        """The same of a plan that nobody has; raises the Refusal that making it would meet."""
        ...

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> Sequence[Instant]:
        """The instants of a schedule within a range, both ends included; raises NotFound."""
        ...

    def triggers(self) -> Sequence[TriggerInfo]:
        """All triggers, the oldest first."""
        ...

    def trigger(self, trigger_id: TriggerId) -> TriggerInfo | None:
        """One of them."""
        ...

    def try_event(self, event: Event, only: TriggerId | None = None) -> Sequence[TriggerDryRun]:
        """What triggers would make of an event; raises NotFound."""
        ...

    def try_rule(self, rule: TriggerDefinition, event: Event) -> TriggerDryRun:
        """The same of a trigger that nobody has; raises the Refusal that making it would meet."""
        ...

    def policy(self) -> Policy:
        """The policy that holds now."""
        ...

    def tenants(self) -> Sequence[TenantInfo]:
        """All tenants that have jobs or settings."""
        ...

    def demand(self, target_ms: Millis, size: Resources | None = None) -> Demand:
        """How many workers, of this size or such as there are, would clear what waits in time."""
        ...

    def usages(self) -> Iterator[tuple[JobName, UsageHistory]]:
        """What jobs of each name take, by tenant and name; not to be held over an await."""
        ...

    @property
    def ready(self) -> bool:
        """Whether inputs are accepted and decided now."""
        ...

    @property
    def trouble(self) -> str:
        """Why it is not ready; empty when it is."""
        ...

    @property
    def epoch(self) -> int:
        """The number of the leadership, as far as it is known here."""
        ...

    def standing(self) -> LeadershipStatus:
        """This server's part in the cell."""
        ...
