"""The engine's loop, the one writer: drain the inbox, decide a turn, append it, release answers.

No caller sees a decision that is not durable. While an append is under way new inputs queue up and
form the next turn: group commit without a delay. If an append fails, or its fate is unknown, memory
is dropped and loaded again from the store. Where several servers share a store, one leads and runs
this loop; the others stand by.

Why: docs/decisions/0002-journal-first-tables-as-projection.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from zlib import crc32

import structlog

from rota.core.capacity import Demand
from rota.core.commands import AnyInput, ClosePoll, Poll, Refilled, Submit, Timing
from rota.core.info_model import (
    DeadlineInfo,
    Explanation,
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
from rota.core.outcome import AnyReceipt, PollAnswer
from rota.core.policy import Policy
from rota.core.runtime_estimates import UsageHistory
from rota.core.schedule_model import Calendar, Schedule, ScheduleDefinition
from rota.core.scheduler import Scheduler
from rota.core.schedules.recurrence import PreviewedInstant
from rota.core.trigger_model import Event, TriggerDefinition
from rota.engine.background import BackgroundTask
from rota.engine.callers import Callers, Pending
from rota.engine.clock import ClockMonitor
from rota.engine.forecast import Calibration, Forecaster
from rota.engine.inbox import InboxReader, ReadSpec
from rota.engine.key_filter import KeyFilter
from rota.engine.leadership import CellMember, LeaderElection, LeadershipRenewal
from rota.engine.limits import RETRY_DELAY_S_MAX, RETRY_DELAY_S_MIN
from rota.engine.lookers import Lookers
from rota.engine.metrics import ProjectionLag
from rota.engine.outlook import Outlooks
from rota.engine.ports import (
    AnswerEncoder,
    Clock,
    LeadershipStatus,
    Observer,
    Outlook,
    UnavailableError,
)
from rota.engine.refills import Refills
from rota.engine.standby import Standby, build_scheduler
from rota.store.errors import DamagedError, FileGoneError
from rota.store.protocol import (
    GENESIS,
    DivergedError,
    FencedError,
    OtherDatabaseError,
    ProjectionStatus,
    Store,
    StoreError,
    StoreFullError,
)

log = structlog.get_logger("rota.engine")


def unready_reason(error: Exception) -> str:
    """Explains to users why the server is not ready."""
    if isinstance(error, StoreFullError):
        return "the data disk is full: free some space"
    if isinstance(error, FencedError):
        return "another server leads"
    if isinstance(error, OtherDatabaseError | DamagedError | DivergedError | FileGoneError):
        return str(error)
    return "reading the store"


class ReloadBackoff:
    """Exponential backoff between reloads; spread by the server's name, so that servers of a cell
    do not all return at once."""

    def __init__(self, node: str) -> None:
        self._spread = 0.75 + crc32(node.encode()) % 512 / 1024
        self._next_s = 0.0

    def reset(self) -> None:
        self._next_s = 0.0

    def next_s(self, error: Exception) -> float:
        """Returns the pause now: none after the first failure, unless the disk is full."""
        pause_s = self._next_s
        if isinstance(error, StoreFullError):
            pause_s = max(pause_s, RETRY_DELAY_S_MAX / 2)
        self._next_s = min(max(RETRY_DELAY_S_MIN, pause_s * 2), RETRY_DELAY_S_MAX)
        return pause_s * self._spread


class JournalNotifier:
    """Publishes the newest committed record. A slow watcher costs nothing: it awaits a number."""

    def __init__(self) -> None:
        self.seq = 0
        self._watchers: list[asyncio.Future[None]] = []

    def publish(self, seq: int) -> None:
        self.seq = seq
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def wait_beyond(self, seq: int) -> int:
        """Waits for a record after `seq`; returns the newest."""
        while self.seq <= seq:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher
        return self.seq


class Engine:
    """Runs the scheduler on a store while this server leads, and follows the journal otherwise."""

    def __init__(
        self, store: Store, clock: Clock, timing: Timing, observer: Observer, member: CellMember
    ) -> None:
        self.clock, self.timing = clock, timing
        self.journal_notifier = JournalNotifier()
        self.node = member.node
        self._limits = member.limits
        self._store = store
        self._journal = store.journal
        self._observer = observer
        self._election = LeaderElection(store.journal, clock, member)
        self._standby = Standby(store, clock, timing.window.fifo_group, member.limits)
        self._refills = Refills(store.journal, self._take_refills, clock, member.limits)
        self._renewal = LeadershipRenewal(self._election, self._leadership_changed)
        self._callers = Callers(member.limits)
        self._key_filter = KeyFilter(store.queries, clock, member.limits)
        self._clock_monitor = ClockMonitor(clock)
        self._projection_lag = ProjectionLag(clock)
        self._wake: asyncio.Future[None] | None = None
        self._in_turn = self._renews_late = False
        self._lookers = Lookers()
        self._forecaster = Forecaster(clock, self._look)
        self._outlooks = Outlooks(clock, self._forecaster, self._look, self._ready_scheduler)
        self._scheduler: Scheduler | None = None
        self._read_spec: ReadSpec | None = None
        self._inbox_task = BackgroundTask("rota-inbox")
        self._is_open = self._stopping = False
        self._head = GENESIS
        self._task: asyncio.Task[None] | None = None
        self._trouble = "starting"

    # Life of the loop

    async def start(self, read_spec: ReadSpec | None = None) -> None:
        """Leads at once if it can, else stands by; `read_spec` parses jobs left in the inbox."""
        self._read_spec = read_spec
        await self._try_to_lead()
        self._task = asyncio.create_task(self._run(), name="rota-engine")

    async def stop(self) -> None:
        """Stops after the turn under way and resigns, so that another server leads at once."""
        self._stopping, self._trouble = True, "stopping"
        self._wake_up()
        if self._task is not None:
            await self._task
        await self._end_term()
        await self._forecaster.close()
        self._callers.fail(UnavailableError("the server is stopping"))
        if self.has_others:
            with suppress(StoreError):  # then the others wait for the TTL
                await self._election.resign()

    async def _run(self) -> None:
        backoff = ReloadBackoff(self.node)
        while not self._stopping:
            try:
                if self._scheduler is not None:
                    await self._lead()
                else:
                    await self._stand_by()
                backoff.reset()
            except Exception as error:  # noqa: BLE001  (the loop's top: it reloads after any error)
                await self._reset(error)
                await self._pause(backoff.next_s(error))
        await self._lookers.let_look()

    async def _pause(self, seconds: float) -> None:
        if not self._stopping and seconds > 0:
            await self._wait_for_wake(seconds)

    # Standing by, and taking over

    async def _try_to_lead(self) -> None:
        """Claims leadership if it is free; else only follows the journal."""
        if self.has_others:
            await self._election.look()
            # A server that cannot read the journal must not take leadership from one that can.
            seq = await self._standby.keep_up(insist=self._election.is_free)
            if seq is None:
                return
            self.journal_notifier.publish(seq)
            if not self._election.is_free:
                return
        try:
            await self._election.take()
        except FencedError:
            await self._election.look()
            return
        await self._take_over()

    async def _stand_by(self) -> None:
        await self._try_to_lead()
        if self._scheduler is None:
            leader = self._election.leader
            leads = f"{leader.holder} leads" if leader else "nobody leads yet"
            self._trouble = self._standby.unreadable or leads
            await self._pause(self._election.look_every_s)

    async def _take_over(self) -> None:
        if self.has_others:
            self._renewal.start()
            snapshot = await self._standby.begin_term(self._election, self.clock.now())
        else:
            snapshot = await self._journal.load(self.timing.window.fifo_group)
        self._key_filter.begin(has_inbox=self._read_spec is not None)
        self._scheduler = await build_scheduler(snapshot, self.timing, self.clock.now())
        self._head = snapshot.head
        for record in snapshot.tail:
            self._refills.note(record.seq, record.writes, spills=True)
        self._observer.loaded(snapshot.totals)
        self._clock_monitor.begin()
        self._election.take_lapse()
        self._projection_lag.clear()
        self.journal_notifier.publish(self._head.seq)
        if self.has_others:
            log.info(
                "leading", epoch=self._election.epoch, seq=self._head.seq, jobs=len(snapshot.jobs)
            )
        if self._read_spec is None:
            self._open()
        else:
            reader = InboxReader(
                self._store, self.clock, self._read_spec, self._post_entry, self._limits
            )
            # Jobs that came while no server led go before new ones.
            self._inbox_task.start(
                reader.run(self._election.epoch, self._open, self._key_filter.inbox_drained)
            )

    def _open(self) -> None:
        self._is_open = True
        self._trouble = ""

    async def _end_term(self) -> None:
        """Ends the tasks that run beside the loop while this server leads."""
        self._is_open = False
        await self._refills.close()
        await self._renewal.stop()
        await self._key_filter.end()
        await self._inbox_task.stop()

    async def _reset(self, error: Exception) -> None:
        """Drops memory, which may hold more than the journal, and asks callers to try again."""
        led = self._scheduler is not None
        self._trouble, self._scheduler = unready_reason(error), None
        if led:
            self._observer.reloaded(type(error).__name__)
        if isinstance(error, FencedError):
            log.warning("leadership_lost", epoch=self._election.epoch, reason=str(error))
        else:
            event = "reloading" if led else "not_ready"
            is_bug = not isinstance(error, StoreError)
            log.error(event, reason=str(error), exc_info=is_bug)
        self._callers.fail(UnavailableError(f"not ready: {self._trouble}"))
        if self._in_turn and not isinstance(error, StoreError | UnavailableError):
            await self._count_inbox_failures()
        self._in_turn = False
        await self._end_term()
        await self._lookers.let_look()

    async def _count_inbox_failures(self) -> None:
        """Counts the failed turn at the inbox entries in it: one of them may be the cause."""
        if entries := self._callers.entries_in_turn():
            with suppress(StoreError):  # then one more turn fails
                await self._journal.count_inbox_failures(entries)

    def suspect_leader(self, epoch: int) -> None:
        """Notes that the leader of `epoch` does not answer this server any more; 0: it does."""
        self._election.suspected = epoch

    def step_aside(self, epoch: int) -> None:
        """Lets another server lead, if this one leads in `epoch`: no other server reaches it."""
        self._election.step_down_requested = epoch
        self._wake_up()

    # Asking

    @property
    def has_others(self) -> bool:
        """Whether other servers may share the store."""
        return self._election.member.ttl_ms is not None

    @property
    def ready(self) -> bool:
        """Whether this server accepts and decides inputs now."""
        return self._is_open and self._decides

    @property
    def _decides(self) -> bool:
        return self._scheduler is not None and self._election.trusted and not self._stopping

    @property
    def trouble(self) -> str:
        """The reason why it is not ready."""
        return self._trouble

    @property
    def epoch(self) -> int:
        """The number of the newest term that this server knows."""
        return max(self._election.row.epoch, self._election.epoch)

    def standing(self) -> LeadershipStatus:
        """Returns who leads the cell, and how far this server has read."""
        leads, leader = self.ready, self._election.leader
        if leads or (leader is not None and leader.epoch == self._election.epoch):
            leader = None  # this server itself, before
        return LeadershipStatus(
            leads=leads,
            leader=self.node if leads else leader.holder if leader else None,
            address=leader.address if leader else "",
            epoch=self.epoch,
            seq=self._head.seq if leads else self._standby.seq,
        )

    @property
    def suspects_leader(self) -> bool:
        """Whether the leader does not answer this server any more."""
        return (
            self._election.suspected != 0 and self._election.suspected == self._election.row.epoch
        )

    async def post(self, event: AnyInput) -> AnyReceipt:
        """Decides one input; returns its receipt when it is durable."""
        if not self.ready:
            raise UnavailableError(f"not ready: {self._trouble}")
        return await self._step(event)

    async def _post_entry(self, event: AnyInput, entry: int | None) -> AnyReceipt:
        if not self._decides:
            raise UnavailableError(f"not ready: {self._trouble}")
        return await self._step(event, entry)

    async def _step(self, event: AnyInput, entry: int | None = None) -> AnyReceipt:
        future: asyncio.Future[AnyReceipt] = asyncio.get_running_loop().create_future()
        self._key_filter.note(event)
        self._callers.put(Pending(event, future, entry))
        self._wake_up()
        return await future

    async def poll(
        self, event: Poll, reported: asyncio.Event, encoder: AnswerEncoder | None = None
    ) -> PollAnswer:
        """Waits for work; a cancelled caller closes its poll."""
        future = self._callers.open_poll(event.poll_id, encoder)
        try:
            await self.post(event)
            reported.set()
            answer = await future
        except asyncio.CancelledError:
            if self.ready:
                gone = ClosePoll(poll_id=event.poll_id, worker_id=event.worker_id)
                self._callers.put(Pending(gone), always=True)
                self._wake_up()
            raise
        finally:
            self._callers.close_poll(event.poll_id)
        if answer.refusal is not None:
            raise answer.refusal
        return answer

    async def settled(self) -> None:
        """Waits for a moment at which memory holds only what is durable."""
        if self._in_turn:
            await self._lookers.wait()

    def next_poll_id(self) -> PollId:
        """Returns a number that no other poll of this process has."""
        return self._callers.next_poll_id()

    # One turn

    async def _lead(self) -> None:
        if not await self._may_decide():
            return
        await self._wait_for_work()
        if not self._election.trusted:
            return
        self._in_turn = True
        await self._turn(self.clock.steady())
        await self._lookers.let_look()

    async def _may_decide(self) -> bool:
        """Waits while leadership cannot be renewed; FencedError: another server leads."""
        if self._election.step_down_requested == self._election.epoch:
            await self._election.step_aside()
            raise FencedError("no other server reaches this leader: another server is to lead")
        if not self._election.is_held:
            raise FencedError(f"another server leads: epoch {self._election.epoch} is over")
        if self._election.trusted:
            return True
        await self._wait_for_wake(None)
        return False

    def pulse(self) -> None:
        """Notes that the process runs; its owner calls this every PULSE_S."""
        self._clock_monitor.pulse()

    def _leadership_changed(self) -> None:
        """Reacts to leadership that was renewed or lost, or whose trust has ended."""
        if self._renews_late:
            return  # the turn under way learns it
        if not self._election.trusted:
            self._trouble = "the leader could not renew its leadership: it cannot reach the store"
            self._callers.fail(UnavailableError(f"not ready: {self._trouble}"))
        elif self._is_open:
            self._trouble = ""
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _wait_for_wake(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        alarm = None if seconds is None else loop.call_later(seconds, self._wake_up)
        try:
            await self._wake
        finally:
            self._wake = None
            if alarm is not None:
                alarm.cancel()

    async def _wait_for_work(self) -> None:
        """Waits until there is an input, or something is due."""
        if self._callers.waiting or self._stopping:
            return
        due = self._ready_scheduler().next_due()
        delay_s = None if due is None else max(0, due - self.clock.now()) / 1000
        await self._wait_for_wake(
            None if delay_s is None else min(delay_s, self._limits.clock_look_s)
        )

    async def _turn(self, since: Millis) -> None:
        began, now = self.clock.fine_s(), self.clock.now()
        events = (
            self._clock_monitor.pending_inputs(now, self._election.take_lapse())
            + self._callers.drain()
        )
        scheduler = self._ready_scheduler()
        outcome = scheduler.turn(events, now)
        if not self._election.trusted:
            await self._renew_late()
        decided, consumed = self.clock.fine_s(), self._callers.consumed(outcome)
        if outcome.writes:
            self._callers.encode_answers(outcome)
            self._head = await self._journal.append(
                self._election.epoch, self._head, now, outcome.writes, consumed
            )
            self._standby.lineage.note(self._head)
        elif consumed:
            await self._journal.drop_inbox(consumed)
        self._in_turn, durable = False, self.clock.fine_s()
        # Only here do decisions leave: they are durable, and no other server can have decided.
        if self._election.trusted:
            self._callers.release(outcome)
        else:
            self._callers.fail(UnavailableError("the leader could not renew leadership in time"))
        self._clock_monitor.was_busy(since)
        # Before `go_first`: callers that were answered find their jobs counted.
        self._observer.turn_committed(outcome)
        if outcome.writes:
            seq = self._head.seq
            self._projection_lag.appended(seq, self._journal.projection.projected)
            self.journal_notifier.publish(seq)
            self._refills.note(seq, outcome.writes, spills=scheduler.spills)
        if outcome.refills:
            self._refills.fetch(outcome.refills)
        await self._callers.go_first()
        self._observer.turn_finished(outcome, durable - decided, durable - began)
        self._forecaster.observe_turn(outcome, scheduler, now)

    async def _renew_late(self) -> None:
        """Renews leadership that ended during a long turn, before anything of it leaves.

        FencedError: another server leads, and the turn is void.
        """
        self._renews_late = True
        try:
            await self._election.renew()
        finally:
            self._renews_late = False

    def _take_refills(self, answers: Sequence[Refilled]) -> None:
        # Beyond the inbox's limit: without these jobs the polls that wait in it may find none.
        for answer in answers:
            self._callers.put(Pending(answer), always=True)
        self._wake_up()

    def projection_lag_s(self) -> float:
        """Returns for how long the oldest record missing from the tables has been durable."""
        return self._projection_lag.seconds(self._journal.projection.projected)

    @property
    def projection(self) -> ProjectionStatus:
        """Status of the projection, as far as this server knows."""
        return self._journal.projection

    def refills_waiting_ms(self) -> Millis:
        """Returns for how long the oldest read of spilled jobs has been under way."""
        return self._refills.waiting_ms()

    # Questions, answered from memory; `Brain` in ports.py describes them

    def _ready_scheduler(self) -> Scheduler:
        if self._scheduler is None or not self._election.trusted:
            raise UnavailableError(f"not ready: {self._trouble}")
        return self._scheduler

    async def _look(self) -> Scheduler:
        """Waits until no turn is under way; ask the scheduler before the next `await`."""
        await self.settled()
        return self._ready_scheduler()

    def is_new_key(self, key: str) -> bool:
        return self._key_filter.is_new(key)

    def promise_key(self, key: str) -> None:
        self._key_filter.promise(key)

    def why(self, job_id: JobId, record: JobRecord | None = None) -> Explanation | None:
        return self._ready_scheduler().why(job_id, self.clock.now(), record)

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        return self._ready_scheduler().progress_of(job_id)

    def workers(self) -> Sequence[WorkerInfo]:
        return self._ready_scheduler().workers(self.clock.now())

    def worker(self, worker_id: WorkerId) -> WorkerInfo | None:
        return self._ready_scheduler().worker(worker_id, self.clock.now())

    def places(self) -> Iterator[ReservationInfo]:
        return self._ready_scheduler().reservations(self.clock.now())

    def queues(self) -> Sequence[QueueInfo]:
        return self._ready_scheduler().queues()

    def ready_since(self) -> Mapping[str, Instant]:
        return self._ready_scheduler().ready_since()

    def policy(self) -> Policy:
        return self._ready_scheduler().policy

    def tenants(self) -> Sequence[TenantInfo]:
        return self._ready_scheduler().tenants(self.clock.now())

    def demand(self, target_ms: Millis, size: Resources | None = None) -> Demand:
        return self._ready_scheduler().demand(target_ms, size, self.clock.now())

    def usages(self) -> Iterator[tuple[JobName, UsageHistory]]:
        return self._ready_scheduler().usages()

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleInfo]:
        return self._ready_scheduler().schedules(keep)

    def schedule(self, schedule_id: ScheduleId) -> ScheduleInfo | None:
        return self._ready_scheduler().schedule(schedule_id)

    def calendars(self) -> Sequence[Calendar]:
        return self._ready_scheduler().calendars()

    def foresee(
        self, schedule_id: ScheduleId, after: Instant, count: int
    ) -> Sequence[PreviewedInstant]:
        return self._ready_scheduler().preview(schedule_id, after, count)

    def foresee_plan(
        self, plan: ScheduleDefinition, after: Instant, count: int
    ) -> Sequence[PreviewedInstant]:
        return self._ready_scheduler().preview_definition(plan, after, count)

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> Sequence[Instant]:
        return self._ready_scheduler().instants(schedule_id, start, end, limit)

    def triggers(self) -> Sequence[TriggerInfo]:
        return self._ready_scheduler().triggers()

    def trigger(self, trigger_id: TriggerId) -> TriggerInfo | None:
        return self._ready_scheduler().trigger(trigger_id)

    def try_event(self, event: Event, only: TriggerId | None = None) -> Sequence[TriggerDryRun]:
        return self._ready_scheduler().try_event(event, only, self.clock.now())

    def try_rule(self, rule: TriggerDefinition, event: Event) -> TriggerDryRun:
        return self._ready_scheduler().try_rule(rule, event, self.clock.now())

    async def outlook(self, job: JobRecord) -> Outlook | None:
        return await self._outlooks.outlook(job)

    async def rehearse(self, event: Submit) -> Sequence[Outlook]:
        return await self._outlooks.rehearse(event)

    def deadline(self, job: JobRecord, start: Instant | None = None) -> DeadlineInfo | None:
        return self._ready_scheduler().deadline(job, start, self.clock.now())

    @property
    def calibration(self) -> Calibration:
        return self._forecaster.calibration
