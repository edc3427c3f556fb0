"""The scheduler: takes commands, changes the state, and returns what to write and what to answer.

The loop passes the commands of one turn together: all are handled, then ready jobs are dispatched
to waiting workers, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import assert_never

from rota.core import settings, workers
from rota.core.capacity import Demand, demand
from rota.core.commands import (
    AnyInput,
    AnyWorkerInput,
    Cancel,
    ClockJump,
    ClosePoll,
    Complete,
    Delete,
    Deregister,
    Drain,
    EventInput,
    Execute,
    Heartbeat,
    Idempotent,
    LeaderPause,
    Poll,
    Progress,
    Purge,
    PutQueueSettings,
    PutTenantSettings,
    Refilled,
    Register,
    Reject,
    Resume,
    Retry,
    ScheduleInput,
    SetPolicy,
    Submit,
    Tick,
    Timing,
    Update,
)
from rota.core.dispatch.dispatcher import answer_polls, dispatch
from rota.core.errors import AlreadyAccepted, KeyReused, Refusal, StalePreload
from rota.core.explain.info import (
    fluid_start,
    position_of,
    queue_info,
    reservation_infos,
    schedule_info,
    tenant_info,
    worker_info,
)
from rota.core.explain.remedies import Remedy, remedies
from rota.core.explain.why import explain
from rota.core.forecast_input import ForecastInput, fixed_size, forecast_input
from rota.core.groups import members
from rota.core.info_model import (
    Cause,
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
from rota.core.invariants import check_invariants
from rota.core.jobs import deadline_watch, job_commands, manual_retry, spill, submit, wait_states
from rota.core.jobs.finish import complete_execution, expire_job
from rota.core.jobs.spill import JobLookup
from rota.core.jobs.submit import check_submit
from rota.core.limits import CORE_LIMITS, CoreLimits
from rota.core.model import (
    ExecutionId,
    Instant,
    JobId,
    JobName,
    JobRecord,
    KeyRecord,
    Millis,
    Resources,
    ScheduleId,
    TriggerId,
    WorkerId,
)
from rota.core.outcome import (
    AnyReceipt,
    CountReceipt,
    ExecutionAnswer,
    JobsAccepted,
    Outcome,
    decode_receipt,
    encode_receipt,
)
from rota.core.policy import DEFAULT, Policy
from rota.core.restore import Stored, restore
from rota.core.runtime_estimates import UsageHistory
from rota.core.schedule_model import Calendar, Schedule, ScheduleDefinition
from rota.core.schedules import commands as planning
from rota.core.schedules import fire
from rota.core.schedules.recurrence import PreviewedInstant, preview
from rota.core.state import SchedulerState
from rota.core.time_zones import ZoneLookup, only_utc
from rota.core.timers import Timer, TimerKind
from rota.core.trigger_model import Event, TriggerDefinition
from rota.core.triggers import commands, match

SWEEP_TIMERS_FROM = 4_096
"""Timers that are kept whatever they mean: fewer are not worth the sweeping."""


class Scheduler:
    """One cell's brain. Pure: the same inputs at the same times give the same outcomes."""

    def __init__(
        self,
        timing: Timing,
        now: Instant,
        atlas: ZoneLookup = only_utc,
        policy: Policy = DEFAULT,
        limits: CoreLimits = CORE_LIMITS,
    ) -> None:
        self._t = SchedulerState(timing, now, atlas, policy, limits)

    def restore(self, stored: Stored, now: Instant) -> None:
        """Takes up what was stored; every lease gets its whole length again."""
        restore(self._t, stored, now)

    # Deciding

    def step(self, event: AnyInput, now: Instant) -> Outcome:
        """One input, as a turn of its own."""
        return self.turn([event], now)

    def turn(self, events: Sequence[AnyInput], now: Instant) -> Outcome:
        """Steps all inputs, rings what is due, places what is ready."""
        t = self._t
        t.begin_turn()
        for event in events:
            # Before anything rings: a lease must not run out because a clock was set.
            if isinstance(event, ClockJump):
                workers.follow_clock(t, event.by, now)
            elif isinstance(event, LeaderPause):
                workers.make_up_for_pause(t, event.by, now)
            else:
                break
        self._fire_timers(now)
        if t.schedule_index.due:
            fire.fire_due(t, now)
        replies = [self._reply_to(event, now) for event in events]
        self._notify_of_ends(now)
        if t.ready_queue.order.needs_reset(now):
            t.note_usage(now)
            t.use_policy(t.policy, now)
        if now >= t.arrival_rates.due:
            t.arrival_rates.note(t.ready_queue.classes, now)
        dispatch(t, now)
        if t.recalled:
            spill.spill_untouched(t)
        members.write_all_progress(t)
        answer_polls(t, now)
        t.recently_finished.forget(now)
        t.trigger_index.forget(now)
        draft = t.changeset
        return Outcome(
            replies,
            draft.writes(),
            draft.answers,
            draft.submitted,
            draft.waits,
            draft.ends,
            spill.wanted_refills(t),
            tuple(draft.occurrences.values()),
            draft.deadlines,
            draft.events.decision_counts(),
        )

    def _notify_of_ends(self, now: Instant) -> None:
        """What has ended is told to those who go on because of it: bands, triggers, schedules."""
        t = self._t
        if t.groups.due:
            members.update_groups(t, now)
        if t.trigger_index.ended_jobs or t.trigger_index.deadline_notices:
            match.match_job_events(t, now)
        if t.schedule_index.ended_origins:
            fire.restart_intervals(t, now)

    def next_due(self) -> Instant | None:
        """When a Tick is needed next."""
        left = self._t.schedule_index.due
        return next(iter(left.values())) if left else self._t.timers.next_due()

    def _reply_to(self, event: AnyInput, now: Instant) -> AnyReceipt | Refusal:
        try:
            if isinstance(event, Idempotent) and event.key is not None:
                return self._handle_once(event, now)
            return self._handle(event, now)
        except Refusal as refusal:
            return refusal

    def _handle_once(self, event: Idempotent, now: Instant) -> AnyReceipt:
        """An input with a key: a repeat gets the first receipt and changes nothing."""
        key, recent = event.key, self._t.recently_finished
        assert key is not None
        assert event.preloaded is not None, "an input with a key brings what the tables know of it"
        used = recent.key(key.key) or event.preloaded.key
        if used is not None:
            if used.fingerprint != key.fingerprint:
                raise KeyReused(f"idempotency key {key.key!r} was used for another request")
            receipt = decode_receipt(used.receipt)
            _refuse_other_ids(event, receipt)
            return receipt
        if recent.is_stale(event.preloaded.at, now):
            raise StalePreload("too long since the key was looked up")
        receipt = self._handle(event, now)  # type: ignore[arg-type]  # every Keyed is an AnyInput
        record = KeyRecord(key.key, key.fingerprint, encode_receipt(receipt), now)
        recent.remember_key(record)
        self._t.changeset.keys.append(record)
        return receipt

    def _handle(self, event: AnyInput, now: Instant) -> AnyReceipt:  # noqa: C901  (one line a case)
        t = self._t
        match event:
            case Poll() | Complete():
                return self._handle_from_worker(event, now)
            case Submit():
                return submit.submit(t, event, now)
            case Reject():
                return submit.reject(t, event, now)
            case Update():
                return submit.update(t, event, now)
            case Cancel():
                return job_commands.cancel(t, event, now)
            case Retry():
                return manual_retry.retry(t, event, now)
            case Delete():
                return job_commands.delete(t, event, now)
            case Execute():
                return job_commands.execute(t, event, now)
            case PutQueueSettings():
                return settings.set_queue(t, event, now)
            case SetPolicy():
                return settings.set_policy(t, event, now)
            case PutTenantSettings():
                return settings.set_tenant(t, event, now)
            case Purge():
                return job_commands.purge(t, event, now)
            case Refilled():
                return spill.refill(t, event, now)
            case ClockJump() | LeaderPause() | Tick():
                return CountReceipt(0)
            case EventInput():
                return commands.handle(t, event, now)
            case ScheduleInput():
                return planning.handle(t, event, now)
            case _:
                return self._handle_from_worker(event, now)

    def _handle_from_worker(self, event: AnyWorkerInput, now: Instant) -> AnyReceipt:
        """What workers say."""
        t = self._t
        match event:
            case Poll():
                return workers.poll(t, event, now)
            case Heartbeat():
                return workers.heartbeat(t, event, now)
            case Complete():
                return ExecutionAnswer(complete_execution(t, event.completion, now))
            case Progress():
                return workers.report_progress(t, event.running, now)
            case Register():
                return workers.register(t, event, now)
            case Drain():
                return workers.drain(t, event, now)
            case Resume():
                return workers.resume(t, event, now)
            case Deregister():
                return workers.deregister(t, event, now)
            case ClosePoll():
                workers.cancel_poll(t, event)
                return CountReceipt(1)
            case _:
                assert_never(event)

    # Time

    def _fire_timers(self, now: Instant) -> None:
        t, timers = self._t, self._t.timers
        due = timers.next_due()
        if due is not None and due <= now:
            for when, _, alarm, key in timers.due(now, t.limits.timers_per_turn):
                self._fire_timer(alarm, key, when, now)
        if len(timers) > SWEEP_TIMERS_FROM:
            alive = (
                len(t.jobs)
                + len(t.fleet.workers)
                + len(t.schedule_index.entries)
                + t.trigger_index.open_windows
            )
            if len(timers) > SWEEP_TIMERS_FROM + 4 * alive:
                timers.sweep(self._is_timer_current)

    def _fire_timer(  # noqa: C901  (one line a case)
        self, alarm: TimerKind, key: str, when: Instant, now: Instant
    ) -> None:
        t = self._t
        match alarm:
            case TimerKind.JOB:
                cell = t.jobs.get(JobId(key))
                if cell is not None and wait_states.timer_fired(t, cell, now):
                    expire_job(t, cell, now)
            case TimerKind.WORKER:
                workers.check_leases(t, WorkerId(key), when, now)
            case TimerKind.POLL:
                workers.poll_timer_fired(t, WorkerId(key), now)
            case TimerKind.QUEUE:
                t.check_queue_limits(t.queues[key], now)
            case TimerKind.PROGRESS:
                workers.progress_timer_fired(t, ExecutionId(key), now)
            case TimerKind.SCHEDULE:
                fire.timer_fired(t, ScheduleId(key), when)
            case TimerKind.WINDOW:
                match.timer_fired(t, key, when, now)
            case TimerKind.DEADLINE:
                deadline_watch.timer_fired(t, JobId(key), now)
            case TimerKind.PLACE:
                pass  # the turn ends with a look at who waits for a better place

    def _is_timer_current(self, entry: Timer) -> bool:
        when, _, alarm, key = entry
        t = self._t
        match alarm:
            case TimerKind.JOB:
                cell = t.jobs.get(JobId(key))
                return cell is not None and when in (wait_states.due_at(cell), cell.spec.expires_at)
            case TimerKind.WORKER:
                worker = t.fleet.workers.get(WorkerId(key))
                return worker is not None and worker.check_at == when
            case TimerKind.POLL:
                worker = t.fleet.workers.get(WorkerId(key))
                return worker is not None and worker.poll is not None and worker.poll.until == when
            case TimerKind.QUEUE:
                return True
            case TimerKind.PROGRESS:
                return ExecutionId(key) in t.executions
            case TimerKind.SCHEDULE:
                schedule = t.schedule_index.entries.get(ScheduleId(key))
                return schedule is not None and schedule.due_at == when
            case TimerKind.WINDOW:
                return match.is_timer_current(t, key, when)
            case TimerKind.DEADLINE:
                return deadline_watch.is_timer_current(t, JobId(key), when)
            case TimerKind.PLACE:
                return t.affinity.times_out_at(int(key)) == when

    def check(self) -> None:
        """Raises AssertionError if anything that must always hold does not."""
        check_invariants(self._t)

    # Answering: nothing below changes anything

    def why(
        self, job_id: JobId, now: Instant, record: JobRecord | None = None
    ) -> Explanation | None:
        """Why a live job does not run; on the shelf it is known by `record`. None: not live."""
        return explain(self._t, job_id, now, record)

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """The newest progress of a running job, written or not."""
        job = self._t.jobs.get(job_id)
        if job is None or job.life.execution_id is None:
            return None
        cell = self._t.executions.get(job.life.execution_id)
        return None if cell is None else (cell.progress, cell.message)

    def workers(self, now: Instant) -> list[WorkerInfo]:
        """All workers known."""
        return [worker_info(self._t, cell, now) for cell in self._t.fleet.workers.values()]

    def worker(self, worker_id: WorkerId, now: Instant) -> WorkerInfo | None:
        """One of them."""
        cell = self._t.fleet.workers.get(worker_id)
        return None if cell is None else worker_info(self._t, cell, now)

    def reservations(self, now: Instant) -> Iterator[ReservationInfo]:
        """What is reserved for jobs that wait."""
        return reservation_infos(self._t, now)

    def queues(self) -> list[QueueInfo]:
        """All queues, by name."""
        return [queue_info(self._t, self._t.queues[name]) for name in sorted(self._t.queues)]

    def ready_since(self) -> dict[str, Instant]:
        """By queue with ready jobs, since when the longest waiting head of a line has been so."""
        return self._t.ready_queue.ready_since()

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleInfo]:
        """Those to keep, newest first; looked at as they are asked for, for there may be many."""
        cells = self._t.schedule_index.entries
        for schedule_id in sorted(cells, reverse=True):
            if keep(cells[schedule_id].schedule):
                yield schedule_info(self._t, cells[schedule_id])

    def schedule(self, schedule_id: ScheduleId) -> ScheduleInfo | None:
        """One of them."""
        cell = self._t.schedule_index.entries.get(schedule_id)
        return None if cell is None else schedule_info(self._t, cell)

    def calendars(self) -> list[Calendar]:
        """All calendars, by name."""
        return [
            self._t.schedule_index.calendars[name]
            for name in sorted(self._t.schedule_index.calendars)
        ]

    def preview_definition(
        self, plan: ScheduleDefinition, after: Instant, count: int
    ) -> list[PreviewedInstant]:
        """What a schedule with this plan would do if it were made at `after`."""
        return preview(planning.check_definition(self._t, plan, after), after, count)

    def preview(
        self, schedule_id: ScheduleId, after: Instant, count: int
    ) -> list[PreviewedInstant]:
        """What a schedule's timetable says, paused or not."""
        ways = self._t.schedule_index.entry(schedule_id).recurrence
        return [] if ways is None else preview(ways, after, count)

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> list[Instant]:
        """The instants of a schedule's timetable within a range, so many at most."""
        ways = self._t.schedule_index.entry(schedule_id).recurrence
        return [] if ways is None else list(islice(ways.between(start, end), limit))

    def triggers(self) -> list[TriggerInfo]:
        """All triggers, in order of creation."""
        return [commands.trigger_info(cell) for cell in self._t.trigger_index.entries.values()]

    def trigger(self, trigger_id: TriggerId) -> TriggerInfo | None:
        """One of them."""
        cell = self._t.trigger_index.entries.get(trigger_id)
        return None if cell is None else commands.trigger_info(cell)

    def try_event(self, event: Event, only: TriggerId | None, now: Instant) -> list[TriggerDryRun]:
        """What triggers would make of an event."""
        return commands.try_event(self._t, event, only, now)

    def try_rule(self, rule: TriggerDefinition, event: Event, now: Instant) -> TriggerDryRun:
        """What a trigger that nobody has made would make of it."""
        return commands.try_rule(rule, event, now)

    @property
    def policy(self) -> Policy:
        """The policy that holds now."""
        return self._t.policy

    def tenants(self, now: Instant) -> list[TenantInfo]:
        """All tenants that have jobs or settings, by name."""
        return [
            tenant_info(self._t, self._t.tenants.entries[name], now)
            for name in sorted(self._t.tenants.entries)
        ]

    def demand(self, target_ms: Millis, size: Resources | None, now: Instant) -> Demand:
        """How many workers would clear what waits within the target."""
        return demand(self._t, target_ms, size, now)

    def usages(self) -> Iterator[tuple[JobName, UsageHistory]]:
        """What jobs of each name take, by tenant and name."""
        return self._t.runtime_estimates.usages.all()

    def live_jobs(self) -> int:
        """How many jobs are in memory."""
        return len(self._t.jobs)

    # Foreseeing

    def position(self, job_id: JobId, record: JobRecord | None = None) -> Position | None:
        """Where a job that waits for a worker stands; None: in no line."""
        return position_of(self._t, job_id, record)

    def remedies(self, job_id: JobId, causes: Sequence[Cause], now: Instant) -> tuple[Remedy, ...]:
        """What would help a job that these causes keep waiting."""
        return remedies(self._t, job_id, causes, now)

    def deadline(self, job: JobRecord, start: Instant | None, now: Instant) -> DeadlineInfo | None:
        """How a job stands to its deadline, if it has one."""
        return deadline_watch.deadline_info(self._t, job, start, now)

    def expected_end(self, execution_id: ExecutionId) -> Instant | None:
        """When what runs will probably end."""
        cell = self._t.executions.get(execution_id)
        return None if cell is None else cell.ends_at

    def forecast_input(self, wanted: Sequence[JobId], now: Instant) -> ForecastInput:
        """What a copy needs to play the next starts through."""
        return forecast_input(self._t, wanted, now)

    def forecast_size(self) -> int:
        """How much of it there is whatever waits."""
        return fixed_size(self._t)

    def fluid_start(self, job_id: JobId, record: JobRecord | None, now: Instant) -> Instant | None:
        """When a job would start if those before it flowed evenly through what could run them."""
        return fluid_start(self._t, job_id, record, now)

    def check_submit(self, event: Submit, now: Instant) -> None:
        """Raises the refusal that these jobs would meet."""
        check_submit(self._t, event, JobLookup(self._t, event.preloaded, now, read_only=True))


def _refuse_other_ids(event: Idempotent, first: AnyReceipt) -> None:
    """The first answer is none to those who hold other ids for the same request."""
    if not (isinstance(event, Submit) and event.promised and isinstance(first, JobsAccepted)):
        return
    if first.job_ids != tuple(new.id for new in event.jobs):
        raise AlreadyAccepted(first.job_ids)
