"""The engine's loop, the one writer: drain the inbox, step, append, release. Nobody sees what is
not durable.

While an append is under way new inputs pile up and form the next turn: group commit for free. If
an append fails, or its fate is unknown, memory is thrown away and read again from the journal
store. Where several servers share a store, one leads and runs this loop; the others stand by.
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
from rota.engine.clock import ClockMonitor, ProjectionLag
from rota.engine.forecast import Calibration, Forecaster
from rota.engine.inbox import InboxReader, ReadSpec
from rota.engine.key_filter import KeyFilter
from rota.engine.leadership import CellMember, LeaderElection, LeadershipRenewal
from rota.engine.limits import RETRY_DELAY_S_MAX, RETRY_DELAY_S_MIN
from rota.engine.lookers import Lookers
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
from rota.store.protocol import (
    FencedError,
    OtherDatabaseError,
    Seq,
    Store,
    StoreError,
    StoreFullError,
)


def unready_reason(error: Exception) -> str:
    """Why the server is not ready, for whoever asks."""
    if isinstance(error, StoreFullError):
        return "the data disk is full: free some space"
    if isinstance(error, FencedError):
        return "another server leads"
    if isinstance(error, OtherDatabaseError):
        return str(error)
    return "reading the store"


def is_unexpected(error: Exception) -> bool:
    """Whether it is a bug, whose place in the code should be logged."""
    return not isinstance(error, StoreError)


class ReloadBackoff:
    """Pauses that grow while failures follow one another; servers do not all come back at once."""

    def __init__(self, node: str) -> None:
        self._spread = 0.75 + crc32(node.encode()) % 512 / 1024
        self._next_s = 0.0

    def reset(self) -> None:
        """It went well."""
        self._next_s = 0.0

    def next_s(self, error: Exception) -> float:
        """How long to wait now: not at all after the first failure, unless the disk is full."""
        pause_s = self._next_s
        if isinstance(error, StoreFullError):
            pause_s = max(pause_s, RETRY_DELAY_S_MAX / 2)
        self._next_s = min(max(RETRY_DELAY_S_MIN, pause_s * 2), RETRY_DELAY_S_MAX)
        return pause_s * self._spread


class JournalNotifier:
    """The newest committed position. A slow watcher costs nothing: it only waits for a number."""

    def __init__(self) -> None:
        self.seq = 0
        self._watchers: list[asyncio.Future[None]] = []

    def publish(self, seq: int) -> None:
        """The journal has come to `seq`."""
        self.seq = seq
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def wait_beyond(self, seq: int) -> int:
        """The newest position, once it is larger than `seq`."""
        while self.seq <= seq:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher
        return self.seq


log = structlog.get_logger("rota.engine")


class Engine:
    """Runs one scheduler on one store, whenever this server leads."""

    def __init__(
        self, store: Store, clock: Clock, timing: Timing, observer: Observer, member: CellMember
    ) -> None:
        self.clock, self.timing = clock, timing
        self.journal_notifier = JournalNotifier()
        self.node = member.node
        self._limits = member.limits
        self._store = store
        self._ledger = store.ledger
        self._observer = observer
        self._election = LeaderElection(store.ledger, clock, member)
        self._standby = Standby(store, clock, timing.window.fifo_group, member.limits)
        self._refills = Refills(store.ledger, self._take_refills, member.limits)
        self._renewal = LeadershipRenewal(self._election, self._leadership_changed)
        self._callers = Callers(member.limits)
        self._key_filter = KeyFilter(store.catalog, clock, member.limits)
        self._clock_monitor = ClockMonitor(clock)
        self._projection_lag = ProjectionLag(clock)
        self._wake: asyncio.Future[None] | None = None
        self._in_turn = False
        self._lookers = Lookers()
        self._forecaster = Forecaster(clock, self._look)
        self._outlooks = Outlooks(clock, self._forecaster, self._look, self._ready_scheduler)
        self._scheduler: Scheduler | None = None
        self._read_spec: ReadSpec | None = None
        self._inbox_task = BackgroundTask("rota-pickup")
        self._is_open = self._stopping = False
        self._seq = Seq(0)
        self._task: asyncio.Task[None] | None = None
        self._trouble = "starting"

    # Life of the loop

    async def start(self, read_spec: ReadSpec | None = None) -> None:
        """Leads at once if it can, else stands by; `read_spec` reads what applications submit."""
        self._read_spec = read_spec
        await self._try_to_lead()
        self._task = asyncio.create_task(self._run(), name="rota-engine")

    async def stop(self) -> None:
        """Ends after the turn under way; gives the seat up, so that another leads at once."""
        self._stopping, self._trouble = True, "stopping"
        self._rouse()
        if self._task is not None:
            await self._task
        await self._end_term()
        await self._forecaster.close()
        self._callers.fail(UnavailableError("the server is stopping"))
        if self.has_others:
            with suppress(StoreError):  # then they wait for the TTL
                await self._election.resign()

    async def _run(self) -> None:
        patience = ReloadBackoff(self.node)
        while not self._stopping:
            try:
                if self._scheduler is not None:
                    await self._lead()
                else:
                    await self._stand_by()
                patience.reset()
            except Exception as error:  # noqa: BLE001  (the loop's top: whatever it was, go on)
                await self._reset(error)
                await self._pause(patience.next_s(error))
        await self._lookers.let_look()

    async def _pause(self, seconds: float) -> None:
        if not self._stopping and seconds > 0:
            await self._woken_within(seconds)

    # Standing by, and taking over

    async def _try_to_lead(self) -> None:
        """Takes the seat if it is free; else only what the journal has to say."""
        if self.has_others:
            await self._election.look()
            # Whoever cannot read the journal must not take the seat from those who can.
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
            snapshot = await self._ledger.load(self.timing.window.fifo_group)
        self._key_filter.begin(has_inbox=self._read_spec is not None)
        self._scheduler = await build_scheduler(snapshot, self.timing, self.clock.now())
        self._seq = snapshot.seq
        self._observer.loaded(snapshot.totals)
        self._clock_monitor.begin()
        self._election.take_lapse()
        self._projection_lag.clear()
        self.journal_notifier.publish(self._seq)
        if self.has_others:
            log.info("leading", epoch=self._election.epoch, seq=self._seq, jobs=len(snapshot.jobs))
        if self._read_spec is None:
            self._open()
        else:
            pickup = InboxReader(
                self._store, self.clock, self._read_spec, self._post_entry, self._limits
            )
            # What came while nobody led goes before what comes now.
            self._inbox_task.start(pickup.run(self._open, self._key_filter.inbox_drained))

    def _open(self) -> None:
        self._is_open = True
        self._trouble = ""

    async def _end_term(self) -> None:
        """What ran beside the loop while it led ends with it."""
        self._is_open = False
        await self._refills.close()
        await self._renewal.stop()
        await self._key_filter.end()
        await self._inbox_task.stop()

    async def _reset(self, error: Exception) -> None:
        """Memory may say more than the journal: forget it, tell everybody to ask again."""
        led = self._scheduler is not None
        self._trouble, self._scheduler = unready_reason(error), None
        if led:
            self._observer.reloaded(type(error).__name__)
        if isinstance(error, FencedError):
            log.warning("deposed", epoch=self._election.epoch, reason=str(error))
        else:
            event = "reloading" if led else "not_ready"
            log.error(event, reason=str(error), exc_info=is_unexpected(error))
        self._callers.fail(UnavailableError(f"not ready: {self._trouble}"))
        self._in_turn = False
        await self._end_term()
        await self._lookers.let_look()

    def suspect_leader(self, epoch: int) -> None:
        """The leader of that epoch does not answer this server any more; 0: it does."""
        self._election.suspected = epoch

    def step_aside(self, epoch: int) -> None:
        """Lets another lead, if this server still does in that epoch: no other reaches it."""
        self._election.step_down_requested = epoch
        self._rouse()

    # Asking

    @property
    def has_others(self) -> bool:
        """Whether other servers may share the store."""
        return self._election.member.ttl_ms is not None

    @property
    def ready(self) -> bool:
        """Whether inputs are accepted and decided here, now."""
        return self._is_open and self._decides

    @property
    def _decides(self) -> bool:
        return self._scheduler is not None and self._election.trusted and not self._stopping

    @property
    def trouble(self) -> str:
        """Why it is not ready."""
        return self._trouble

    @property
    def epoch(self) -> int:
        """The number of the leadership, as far as it is known here."""
        return max(self._election.row.epoch, self._election.epoch)

    def standing(self) -> LeadershipStatus:
        """This server's part in the cell."""
        leads, leader = self.ready, self._election.leader
        if leads or (leader is not None and leader.epoch == self._election.epoch):
            leader = None  # that was us
        return LeadershipStatus(
            leads=leads,
            leader=self.node if leads else leader.holder if leader else None,
            address=leader.address if leader else "",
            epoch=self.epoch,
            seq=self._seq if leads else self._standby.seq,
        )

    async def post(self, event: AnyInput) -> AnyReceipt:
        """Steps one input; what it answers is durable."""
        if not self.ready:
            raise UnavailableError(f"not ready: {self._trouble}")
        return await self._step(event)

    async def _post_entry(self, event: AnyInput, entry: int) -> AnyReceipt:
        if not self._decides:
            raise UnavailableError(f"not ready: {self._trouble}")
        return await self._step(event, entry)

    async def _step(self, event: AnyInput, entry: int | None = None) -> AnyReceipt:
        future: asyncio.Future[AnyReceipt] = asyncio.get_running_loop().create_future()
        self._key_filter.note(event)
        self._callers.put(Pending(event, future, entry))
        self._rouse()
        return await future

    async def poll(
        self, event: Poll, heard: asyncio.Event, clerk: AnswerEncoder | None = None
    ) -> PollAnswer:
        """Waits for work; a caller that goes away closes its poll."""
        future = self._callers.open_poll(event.poll_id, clerk)
        try:
            await self.post(event)
            heard.set()
            answer = await future
        except asyncio.CancelledError:
            if self.ready:
                gone = ClosePoll(poll_id=event.poll_id, worker_id=event.worker_id)
                self._callers.put(Pending(gone), always=True)
                self._rouse()
            raise
        finally:
            self._callers.close_poll(event.poll_id)
        if answer.refusal is not None:
            raise answer.refusal
        return answer

    async def settled(self) -> None:
        """Returns at a moment when memory says no more than what is durable."""
        if self._in_turn:
            await self._lookers.wait()

    def next_poll_id(self) -> PollId:
        """A number no other poll of this process has."""
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
        """Waits while the seat cannot be renewed; FencedError: somebody else has it."""
        if self._election.step_down_requested == self._election.epoch:
            await self._election.step_aside()
            raise FencedError("no other server reaches this one: another is to lead")
        if not self._election.is_held:
            raise FencedError(f"another server leads: epoch {self._election.epoch} is over")
        if self._election.trusted:
            return True
        await self._woken_within(None)
        return False

    def pulse(self) -> None:
        """Says that the process is not standing still; whoever runs it calls this every PULSE_S."""
        self._clock_monitor.pulse()

    def _leadership_changed(self) -> None:
        """The seat was renewed, or lost, or its trust has ended."""
        if not self._election.trusted:
            self._trouble = "the leader's seat could not be renewed: the store is away"
            self._callers.fail(UnavailableError(f"not ready: {self._trouble}"))
        elif self._is_open:
            self._trouble = ""
        self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._ledger.deciding()
            self._wake.set_result(None)

    async def _woken_within(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        alarm = None if seconds is None else loop.call_later(seconds, self._rouse)
        try:
            await self._wake
        finally:
            self._wake = None
            if alarm is not None:
                alarm.cancel()

    async def _wait_for_work(self) -> None:
        """Until there is an input, or something is due."""
        if self._callers.waiting or self._stopping:
            return
        due = self._ready_scheduler().next_due()
        delay_s = None if due is None else max(0, due - self.clock.now()) / 1000
        await self._woken_within(
            None if delay_s is None else min(delay_s, self._limits.clock_look_s)
        )

    async def _turn(self, since: Millis) -> None:
        self._ledger.deciding()
        began, now = self.clock.fine_s(), self.clock.now()
        events = (
            self._clock_monitor.pending_inputs(now, self._election.take_lapse())
            + self._callers.drain()
        )
        brain = self._ready_scheduler()
        outcome = brain.turn(events, now)
        decided, consumed = self.clock.fine_s(), self._callers.consumed(outcome)
        if outcome.writes:
            seq = Seq(self._seq + 1)
            self._callers.dictate(outcome)
            await self._ledger.append(self._election.epoch, seq, now, outcome.writes, consumed)
            self._seq = seq
        elif consumed:
            await self._ledger.drop_inbox(consumed)
        self._in_turn, durable = False, self.clock.fine_s()
        # Only here do decisions leave: they are durable, and nobody else can have decided by now.
        if self._election.trusted:
            self._callers.release(outcome)
        else:
            self._callers.fail(UnavailableError("the leader's seat could not be renewed in time"))
        self._clock_monitor.was_busy(since)
        self._observer.turn_committed(
            outcome
        )  # who was told goes on later, and finds itself counted
        if outcome.writes:
            self._projection_lag.appended(self._seq, self._ledger.projected)
            self.journal_notifier.publish(self._seq)
        if outcome.refills:
            self._refills.fetch(outcome.refills, self._seq)
        await self._callers.go_first()
        self._observer.turn_finished(outcome, durable - decided, durable - began)
        self._forecaster.observe_turn(outcome, brain, now)

    def _take_refills(self, answers: Sequence[Refilled]) -> None:
        # Past the limit of the inbox: without them those that wait in it may find no job to run.
        for answer in answers:
            self._callers.put(Pending(answer), always=True)
        self._rouse()

    def projection_lag_s(self) -> float:
        """How long the oldest record that is not in the tables yet has been durable."""
        return self._projection_lag.seconds(self._ledger.projected)

    # Questions, answered from memory; all that memory says is durable

    def _ready_scheduler(self) -> Scheduler:
        if self._scheduler is None or not self._election.trusted:
            raise UnavailableError(f"not ready: {self._trouble}")
        return self._scheduler

    async def _look(self) -> Scheduler:
        """The scheduler when no turn is under way; to be asked before anything else is awaited."""
        await self.settled()
        return self._ready_scheduler()

    def is_new_key(self, key: str) -> bool:
        """Whether it is certain that no leader has accepted anything under this key."""
        return self._key_filter.is_new(key)

    def promise_key(self, key: str) -> None:
        """This server is about to promise something under it, without a leader."""
        self._key_filter.promise(key)

    def why(self, job_id: JobId, record: JobRecord | None = None) -> Explanation | None:
        """Why a live job does not run."""
        return self._ready_scheduler().why(job_id, self.clock.now(), record)

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """The newest progress of a running job."""
        return self._ready_scheduler().progress_of(job_id)

    def workers(self) -> Sequence[WorkerInfo]:
        """All workers known."""
        return self._ready_scheduler().workers(self.clock.now())

    def worker(self, worker_id: WorkerId) -> WorkerInfo | None:
        """One of them."""
        return self._ready_scheduler().worker(worker_id, self.clock.now())

    def places(self) -> Iterator[ReservationInfo]:
        """What is reserved for jobs that wait."""
        return self._ready_scheduler().reservations(self.clock.now())

    def queues(self) -> Sequence[QueueInfo]:
        """All queues."""
        return self._ready_scheduler().queues()

    def ready_since(self) -> Mapping[str, Instant]:
        """By queue with ready jobs, since when the longest waiting head of a line has been so."""
        return self._ready_scheduler().ready_since()

    def policy(self) -> Policy:
        """The policy that holds now."""
        return self._ready_scheduler().policy

    def tenants(self) -> Sequence[TenantInfo]:
        """All tenants that have jobs or settings."""
        return self._ready_scheduler().tenants(self.clock.now())

    def demand(self, target_ms: Millis, size: Resources | None = None) -> Demand:
        """How many workers would clear what waits in time."""
        return self._ready_scheduler().demand(target_ms, size, self.clock.now())

    def usages(self) -> Iterator[tuple[JobName, UsageHistory]]:
        """What jobs of each name take."""
        return self._ready_scheduler().usages()

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleInfo]:
        """Those to keep, newest first."""
        return self._ready_scheduler().schedules(keep)

    def schedule(self, schedule_id: ScheduleId) -> ScheduleInfo | None:
        """One of them."""
        return self._ready_scheduler().schedule(schedule_id)

    def calendars(self) -> Sequence[Calendar]:
        """All calendars."""
        return self._ready_scheduler().calendars()

    def foresee(
        self, schedule_id: ScheduleId, after: Instant, count: int
    ) -> Sequence[PreviewedInstant]:
        """The next instants of a schedule."""
        return self._ready_scheduler().preview(schedule_id, after, count)

    def foresee_plan(
        self, plan: ScheduleDefinition, after: Instant, count: int
    ) -> Sequence[PreviewedInstant]:
        """The same of a plan that nobody has."""
        return self._ready_scheduler().preview_definition(plan, after, count)

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> Sequence[Instant]:
        """The instants of a schedule within a range."""
        return self._ready_scheduler().instants(schedule_id, start, end, limit)

    def triggers(self) -> Sequence[TriggerInfo]:
        """All triggers."""
        return self._ready_scheduler().triggers()

    def trigger(self, trigger_id: TriggerId) -> TriggerInfo | None:
        """One of them."""
        return self._ready_scheduler().trigger(trigger_id)

    def try_event(self, event: Event, only: TriggerId | None = None) -> Sequence[TriggerDryRun]:
        """What triggers would make of an event."""
        return self._ready_scheduler().try_event(event, only, self.clock.now())

    def try_rule(self, rule: TriggerDefinition, event: Event) -> TriggerDryRun:
        """The same of a trigger that nobody has."""
        return self._ready_scheduler().try_rule(rule, event, self.clock.now())

    async def outlook(self, job: JobRecord) -> Outlook | None:
        """Of a job that waits; None: memory does not know it, or not as one that waits."""
        return await self._outlooks.outlook(job)

    async def rehearse(self, event: Submit) -> Sequence[Outlook]:
        """What would become of these jobs; raises what they would be refused for."""
        return await self._outlooks.rehearse(event)

    def deadline(self, job: JobRecord, start: Instant | None = None) -> DeadlineInfo | None:
        """How a job stands to its deadline, as far as that is known without looking ahead."""
        return self._ready_scheduler().deadline(job, start, self.clock.now())

    @property
    def calibration(self) -> Calibration:
        """How estimates have turned out."""
        return self._forecaster.calibration
