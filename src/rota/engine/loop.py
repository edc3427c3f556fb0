"""The one writer: drain the inbox, step, append, release. Nobody sees what is not durable.

While an append is under way new inputs pile up and form the next turn: group commit for free. If an
append fails, or its fate is unknown, memory is thrown away and read again from the ledger.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TypeAlias

import structlog

from rota.core.errors import Refusal
from rota.core.event_inputs import ReceiveEvents
from rota.core.events import Event, Rule
from rota.core.foresight import Foreseen
from rota.core.glance import (
    Explanation,
    QueueGlance,
    ScheduleGlance,
    Trial,
    TriggerGlance,
    WorkerGlance,
)
from rota.core.inputs import AnyInput, ClockJump, ClosePoll, Poll, Submit, Timing
from rota.core.model import Instant, JobId, Millis, PollId, ScheduleId, TriggerId, WorkerId
from rota.core.outcome import Answer, AnyReceipt, Outcome
from rota.core.scheduler import Scheduler
from rota.core.schedules import Calendar, Plan, Schedule
from rota.engine.feed import Feed
from rota.engine.limits import (
    CLOCK_JUMP_MS,
    CLOCK_LOOK_S,
    INBOX_MAX,
    RELOAD_DELAY_S_MAX,
    TURN_WEIGHT_MAX,
)
from rota.engine.ports import BusyError, Clock, Observer, UnavailableError
from rota.engine.recovery import load_scheduler
from rota.store.protocol import Epoch, Ledger, Seq, StoreError, StoreFullError

log = structlog.get_logger("rota.engine")

Pending: TypeAlias = tuple[AnyInput, "asyncio.Future[AnyReceipt] | None"]


class Engine:
    """Runs one scheduler on one ledger."""

    def __init__(
        self, ledger: Ledger, clock: Clock, timing: Timing, observer: Observer, node: str
    ) -> None:
        self.clock = clock
        self.timing = timing
        self.feed = Feed()
        self._ledger = ledger
        self._observer = observer
        self.node = node
        self._unfolded: deque[tuple[Seq, Millis]] = deque()
        self._inbox: deque[Pending] = deque()
        self._polls: dict[PollId, asyncio.Future[Answer]] = {}
        self._poll_ids = count(1)
        self._wake: asyncio.Future[None] | None = None
        self._in_turn = False
        self._lookers: list[asyncio.Future[None]] = []
        self._scheduler: Scheduler | None = None
        self._epoch = Epoch(0)
        self._seq = Seq(0)
        self._clock_offset = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._trouble = "starting"

    # Life of the loop

    async def start(self) -> None:
        """Claims the ledger, loads, and begins to decide."""
        self._epoch = await self._ledger.claim(self.node)
        await self._load()
        self._task = asyncio.create_task(self._run(), name="rota-engine")

    async def stop(self) -> None:
        """Ends after the turn under way; whoever still waits is told to ask again."""
        self._stopping = True
        self._trouble = "stopping"
        self._rouse()
        if self._task is not None:
            await self._task
        self._fail_everybody(UnavailableError("the server is stopping"))

    async def _load(self) -> None:
        loaded = await load_scheduler(self._ledger, self.timing, self.clock)
        self._scheduler, self._seq, totals = loaded
        self._observer.loaded(totals)
        self._clock_offset = self.clock.now() - self.clock.steady()
        self._trouble = ""
        self.feed.publish(self._seq)

    async def _run(self) -> None:
        while not self._stopping:
            await self._wait_for_work()
            batch = self._drain()
            self._in_turn = True
            try:
                await self._turn(batch)
            except Exception as error:  # noqa: BLE001  (the loop's top: whatever it was, reload)
                await self._reload(batch, error)
            self._in_turn = False
            await self._let_look()
        await self._let_look()

    # Asking

    @property
    def ready(self) -> bool:
        """Whether inputs are accepted and decided now."""
        return self._scheduler is not None and not self._stopping

    @property
    def trouble(self) -> str:
        """Why it is not ready."""
        return self._trouble

    @property
    def epoch(self) -> int:
        """The number of this leadership."""
        return self._epoch

    async def post(self, event: AnyInput) -> AnyReceipt:
        """Steps one input; what it answers is durable."""
        future: asyncio.Future[AnyReceipt] = asyncio.get_running_loop().create_future()
        self._put(event, future)
        return await future

    def _put(self, event: AnyInput, future: asyncio.Future[AnyReceipt]) -> None:
        if not self.ready:
            raise UnavailableError(f"not ready: {self._trouble}")
        if len(self._inbox) >= INBOX_MAX:
            raise BusyError(f"{INBOX_MAX} requests are waiting already; slow down")
        self._inbox.append((event, future))
        self._rouse()

    async def poll(self, event: Poll) -> Answer:
        """Waits for work; a caller that goes away closes its poll."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._polls[event.poll_id] = future
        try:
            await self.post(event)
            answer = await future
        except asyncio.CancelledError:
            if self.ready:
                # Past the limit of the inbox: it makes work less, not more.
                gone = ClosePoll(poll_id=event.poll_id, worker_id=event.worker_id)
                self._inbox.append((gone, None))
                self._rouse()
            raise
        finally:
            self._polls.pop(event.poll_id, None)
            if future.done() and not future.cancelled():
                future.exception()  # the caller has heard of it another way
        if answer.refusal is not None:
            raise answer.refusal
        return answer

    async def settled(self) -> None:
        """Returns at a moment when memory says no more than what is durable."""
        if self._in_turn:
            looker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._lookers.append(looker)
            await looker

    async def _let_look(self) -> None:
        """Lets those who want to look do so before the next turn begins."""
        if self._lookers:
            lookers, self._lookers = self._lookers, []
            for looker in lookers:
                if not looker.done():
                    looker.set_result(None)
            await asyncio.sleep(0)

    def next_poll_id(self) -> PollId:
        """A number no other poll of this process has."""
        return PollId(next(self._poll_ids))

    def _brain(self) -> Scheduler:
        if self._scheduler is None:
            raise UnavailableError(f"not ready: {self._trouble}")
        return self._scheduler

    def why(self, job_id: JobId) -> Explanation | None:
        """Why a live job does not run."""
        return self._brain().why(job_id, self.clock.now())

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """The newest progress of a running job."""
        return self._brain().progress_of(job_id)

    def workers(self) -> Sequence[WorkerGlance]:
        """All workers known."""
        return self._brain().workers(self.clock.now())

    def worker(self, worker_id: WorkerId) -> WorkerGlance | None:
        """One of them."""
        return self._brain().worker(worker_id, self.clock.now())

    def queues(self) -> Sequence[QueueGlance]:
        """All queues."""
        return self._brain().queues()

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleGlance]:
        """Those to keep, newest first."""
        return self._brain().schedules(keep)

    def schedule(self, schedule_id: ScheduleId) -> ScheduleGlance | None:
        """One of them."""
        return self._brain().schedule(schedule_id)

    def calendars(self) -> Sequence[Calendar]:
        """All calendars."""
        return self._brain().calendars()

    def triggers(self) -> Sequence[TriggerGlance]:
        """All triggers."""
        return self._brain().triggers()

    def trigger(self, trigger_id: TriggerId) -> TriggerGlance | None:
        """One of them."""
        return self._brain().trigger(trigger_id)

    def try_event(self, event: Event, only: TriggerId | None = None) -> Sequence[Trial]:
        """What triggers would make of an event."""
        return self._brain().try_event(event, only, self.clock.now())

    def try_rule(self, rule: Rule, event: Event) -> Trial:
        """The same of a trigger that nobody has."""
        return self._brain().try_rule(rule, event, self.clock.now())

    def foresee(self, schedule_id: ScheduleId, after: Instant, count: int) -> Sequence[Foreseen]:
        """The next instants of a schedule."""
        return self._brain().foresee(schedule_id, after, count)

    def foresee_plan(self, plan: Plan, after: Instant, count: int) -> Sequence[Foreseen]:
        """The same of a plan that nobody has."""
        return self._brain().foresee_plan(plan, after, count)

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> Sequence[Instant]:
        """The instants of a schedule within a range."""
        return self._brain().instants(schedule_id, start, end, limit)

    # One turn

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _wait_for_work(self) -> None:
        """Until there is an input, or something is due."""
        if self._inbox or self._stopping:
            return
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        due = self._brain().next_due()
        alarm = None
        if due is not None:
            delay_s = max(0, due - self.clock.now()) / 1000
            alarm = loop.call_later(min(delay_s, CLOCK_LOOK_S), self._rouse)
        try:
            await self._wake
        finally:
            self._wake = None
            if alarm is not None:
                alarm.cancel()

    def _drain(self) -> list[Pending]:
        batch: list[Pending] = []
        weight = 0
        while self._inbox and weight < TURN_WEIGHT_MAX:
            pending = self._inbox.popleft()
            batch.append(pending)
            weight += _weight(pending[0])
        return batch

    async def _turn(self, batch: Sequence[Pending]) -> None:
        began = self.clock.fine_s()
        now = self.clock.now()
        events = [event for event, _ in batch]
        jump = now - self.clock.steady() - self._clock_offset
        if abs(jump) > CLOCK_JUMP_MS:
            log.warning("clock_jumped", by_ms=jump)
            self._clock_offset += jump
            events.insert(0, ClockJump(by=jump))
        outcome = self._brain().turn(events, now)
        append_s = 0.0
        if outcome.writes:
            decided = self.clock.fine_s()
            seq = Seq(self._seq + 1)
            await self._ledger.append(self._epoch, seq, now, outcome.writes)
            self._seq = seq
            append_s = self.clock.fine_s() - decided
            self._unfolded.append((seq, self.clock.steady()))
            self._forget_folded()
        self._release(batch, outcome)
        self._observer.turned(outcome, append_s, self.clock.fine_s() - began)

    def _release(self, batch: Sequence[Pending], outcome: Outcome) -> None:
        """Only here do decisions leave: they are durable now."""
        replies = outcome.replies[len(outcome.replies) - len(batch) :]
        for (_, future), reply in zip(batch, replies, strict=True):
            if future is None or future.done():
                continue
            if isinstance(reply, Refusal):
                future.set_exception(reply)
            else:
                future.set_result(reply)
        for answer in outcome.answers:
            waiting = self._polls.get(answer.poll_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        if outcome.writes:
            self.feed.publish(self._seq)

    def fold_lag_s(self) -> float:
        """How long the oldest record that is not in the tables yet has been durable."""
        self._forget_folded()
        return (self.clock.steady() - self._unfolded[0][1]) / 1000 if self._unfolded else 0.0

    def _forget_folded(self) -> None:
        folded = self._ledger.folded
        while self._unfolded and self._unfolded[0][0] <= folded:
            self._unfolded.popleft()

    # When it fails

    async def _reload(self, batch: Sequence[Pending], error: Exception) -> None:
        """Memory may say more than the journal: forget it, tell everybody to ask again, load."""
        full = isinstance(error, StoreFullError)
        self._trouble = "the data disk is full: free some space" if full else "reading the store"
        self._scheduler = None
        log.error("reloading", reason=str(error), exc_info=_is_unexpected(error))
        self._observer.reloaded(type(error).__name__)
        away = UnavailableError(f"not ready: {self._trouble}")
        for _, future in batch:
            _fail(future, away)
        self._fail_everybody(away)
        delay_s = RELOAD_DELAY_S_MAX / 8 if full else 0.0
        while not self._stopping:
            await asyncio.sleep(delay_s)
            try:
                # The claim shuts out a writer that took over meanwhile, and finds out if it may.
                self._epoch = await self._ledger.claim(self.node)
                await self._load()
                return
            except Exception as again:
                log.error("reload_failed", reason=str(again), exc_info=_is_unexpected(again))
                delay_s = min(max(0.1, delay_s * 2), RELOAD_DELAY_S_MAX)

    def _fail_everybody(self, error: Exception) -> None:
        while self._inbox:
            _fail(self._inbox.popleft()[1], error)
        for waiting in self._polls.values():
            _fail(waiting, error)


def _weight(event: AnyInput) -> int:
    """How much of a turn it takes."""
    if isinstance(event, Submit):
        return len(event.jobs)
    return len(event.events) if isinstance(event, ReceiveEvents) else 1


def _is_unexpected(error: Exception) -> bool:
    return not isinstance(error, StoreError)


def _fail(future: asyncio.Future[AnyReceipt] | asyncio.Future[Answer] | None, e: Exception) -> None:
    if future is not None and not future.done():
        future.set_exception(e)
