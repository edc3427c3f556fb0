"""The engine's interfaces: those it needs, the one it offers to the API, and its answers' types.

`Clock`, `Observer` and `AnswerEncoder` are handed in; `Brain` is offered to the API. Forecasts are
answered as `Estimate` and `Outlook`, which `engine/forecast.py` and `engine/outlook.py` make.
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
    """Share of estimated starts that fell inside their interval."""

    inside: float
    """The share, of the newest ones."""
    starts: int
    """Number of jobs that had an estimate and have started."""


class Estimate(msgspec.Struct, frozen=True):
    """Estimated start of a job. `low` to `high` holds four of five starts, by past experience."""

    at: Instant | None
    low: Instant | None
    high: Instant | None
    method: str
    computed_at: Instant
    worker_id: WorkerId | None = None
    """The worker on which it will start, if all goes as expected."""
    ahead: int | None = None
    """How many jobs start before it, in all queues."""


class ObservedCause(msgspec.Struct, frozen=True):
    """First cause of a job's wait, as it was answered to those who asked."""

    code: str
    first: Instant
    last: Instant


class Outlook(msgspec.Struct, frozen=True):
    """Forecast of a waiting job: why it waits, when it will start, and what would help."""

    explanation: Explanation
    estimate: Estimate
    position: Position | None = None
    remedies: tuple[Remedy, ...] = ()
    deadline: DeadlineInfo | None = None
    accuracy: Accuracy | None = None
    seen: tuple[ObservedCause, ...] = ()
    """The causes of earlier answers, the newest last."""


class Clock(Protocol):
    """Source of time."""

    def now(self) -> Instant:
        """Returns wall time in milliseconds; it may be set forward or back."""
        ...

    def steady(self) -> Millis:
        """Returns milliseconds that run evenly, also through suspend."""
        ...

    def fine_s(self) -> float:
        """Returns seconds for measuring short times."""
        ...


class AnswerEncoder(Protocol):
    """Encodes the answer to a poll while its record is being appended."""

    def write(self, answer: PollAnswer) -> None:
        """Encodes it. It may never become durable, so nothing may be sent here."""
        ...

    def post(self, answer: PollAnswer) -> None:
        """Sends the encoded answer, which is durable now."""
        ...


class Observer(Protocol):
    """Counts turns for the metrics."""

    def loaded(self, totals: Totals) -> None:
        """Takes over the totals that were read from the store."""
        ...

    def turn_committed(self, outcome: Outcome) -> None:
        """Counts a durable turn, before callers continue: they may read the metrics."""
        ...

    def turn_finished(self, outcome: Outcome, append_s: float, turn_s: float) -> None:
        """Notes the times of a turn whose callers have continued: of its append, and in all."""
        ...

    def reloaded(self, reason: str) -> None:
        """Counts that memory was dropped."""
        ...


class LeadershipStatus(msgspec.Struct, frozen=True):
    """Leadership status of a server in its cell."""

    leads: bool
    """Whether this server leads and decides now."""
    leader: str | None
    """The leader's name; None: no leader is known."""
    address: str
    """The leader's URL, if it is another server that announced one."""
    epoch: int
    seq: int
    """The newest journal record this server has."""


class UnavailableError(Exception):
    """The engine cannot answer now: starting, reloading, stopping or store away. Try again."""

    def __init__(self, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s


class BusyError(UnavailableError):
    """The inbox is full: callers must slow down."""


class Brain(Protocol):
    """Interface of the engine to the API. All that it answers is durable."""

    clock: Clock
    timing: Timing

    def suspect_leader(self, epoch: int) -> None:
        """Notes that the leader of `epoch` does not answer this server any more; 0: it does."""
        ...

    def step_aside(self, epoch: int) -> None:
        """Lets another server lead, if this one leads in `epoch`: no other server reaches it."""
        ...

    async def post(self, event: AnyInput) -> AnyReceipt:
        """Decides one input; raises Refusal, UnavailableError or BusyError."""
        ...

    async def poll(
        self, event: Poll, reported: asyncio.Event, encoder: AnswerEncoder | None = None
    ) -> PollAnswer:
        """Waits for work; if the caller is cancelled, the poll is closed.

        The reports in it are durable when `reported` is set, which may be long before the answer.
        """
        ...

    def next_poll_id(self) -> PollId:
        """Returns a number that no other poll of this process has."""
        ...

    async def settled(self) -> None:
        """Waits for a moment at which memory holds only what is durable.

        Questions below that follow without an `await` in between get answers of one moment.
        """
        ...

    def is_new_key(self, key: str) -> bool:
        """Whether certainly no leader has accepted anything under this idempotency key."""
        ...

    def promise_key(self, key: str) -> None:
        """Notes a key under which this server is about to promise jobs, without a leader."""
        ...

    def why(self, job_id: JobId, record: JobRecord | None = None) -> Explanation | None:
        """Explains why a job waits; None: it is not live.

        A spilled job is not in memory: pass its `record` from the store.
        """
        ...

    async def outlook(self, job: JobRecord) -> Outlook | None:
        """Forecasts a waiting job; None: it is not waiting."""
        ...

    async def rehearse(self, event: Submit) -> Sequence[Outlook]:
        """Forecasts jobs as if they were submitted now; raises the refusal they would meet."""
        ...

    def deadline(self, job: JobRecord, start: Instant | None = None) -> DeadlineInfo | None:
        """Compares a job with its deadline, if it has one; `start`: its estimated start."""
        ...

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """Returns (progress, message) of a running job, newer than what is stored, or None."""
        ...

    def workers(self) -> Sequence[WorkerInfo]:
        """Lists all known workers, offline ones too."""
        ...

    def worker(self, worker_id: WorkerId) -> WorkerInfo | None: ...

    def places(self) -> Iterator[ReservationInfo]:
        """Lists reservations for waiting jobs; do not keep it over an `await`."""
        ...

    def queues(self) -> Sequence[QueueInfo]: ...

    def ready_since(self) -> Mapping[str, Instant]:
        """Returns, by queue with ready jobs, since when the first job of a class is ready.

        It looks at the first job of each class only, so its cost does not grow with the queue.
        """
        ...

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleInfo]:
        """Lists schedules that `keep` accepts, newest first; do not keep it over an `await`."""
        ...

    def schedule(self, schedule_id: ScheduleId) -> ScheduleInfo | None: ...

    def calendars(self) -> Sequence[Calendar]:
        """Lists all calendars by name."""
        ...

    def foresee(
        self, schedule_id: ScheduleId, after: Instant, count: int
    ) -> Sequence[PreviewedInstant]:
        """Previews the next instants of a schedule; raises NotFound."""
        ...

    def foresee_plan(
        self, plan: ScheduleDefinition, after: Instant, count: int
    ) -> Sequence[PreviewedInstant]:
        """Previews a schedule that does not exist; raises the Refusal that making it would meet."""
        ...

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> Sequence[Instant]:
        """Lists the instants of a schedule in a range, both ends included; raises NotFound."""
        ...

    def triggers(self) -> Sequence[TriggerInfo]:
        """Lists all triggers, the oldest first."""
        ...

    def trigger(self, trigger_id: TriggerId) -> TriggerInfo | None: ...

    def try_event(self, event: Event, only: TriggerId | None = None) -> Sequence[TriggerDryRun]:
        """Says what triggers would do with an event; raises NotFound."""
        ...

    def try_rule(self, rule: TriggerDefinition, event: Event) -> TriggerDryRun:
        """Tests a trigger that does not exist; raises the Refusal that making it would meet."""
        ...

    def policy(self) -> Policy: ...

    def tenants(self) -> Sequence[TenantInfo]:
        """Lists all tenants that have jobs or settings."""
        ...

    def demand(self, target_ms: Millis, size: Resources | None = None) -> Demand:
        """Counts the workers, of `size` or like the present ones, that would clear the backlog in
        time."""
        ...

    def usages(self) -> Iterator[tuple[JobName, UsageHistory]]:
        """Lists the usage of jobs by tenant and name; do not keep it over an `await`."""
        ...

    @property
    def ready(self) -> bool:
        """Whether this server accepts and decides inputs now."""
        ...

    @property
    def trouble(self) -> str:
        """The reason why it is not ready; empty when it is."""
        ...

    @property
    def epoch(self) -> int:
        """The number of the newest term that this server knows."""
        ...

    def standing(self) -> LeadershipStatus: ...
