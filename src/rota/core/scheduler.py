"""Scheduler: takes commands, changes the state, and returns what to write and what to answer.

The loop passes the commands of one turn together: all are handled, then ready jobs are dispatched
to waiting workers, once.

Why: docs/decisions/0001-pure-deterministic-scheduler.md.
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
from rota.core.schedules import commands as schedule_commands
from rota.core.schedules import fire
from rota.core.schedules.recurrence import PreviewedInstant, preview
from rota.core.state import SchedulerState
from rota.core.time_zones import ZoneLookup, only_utc
from rota.core.timers import Timer, TimerKind
from rota.core.trigger_model import Event, TriggerDefinition
from rota.core.triggers import commands as trigger_commands
from rota.core.triggers import match

SWEEP_TIMERS_FROM = 4_096
"""Number of timers above which stale ones are removed: fewer are not worth the time."""


class Scheduler:
    """Scheduler of one cell. Pure: the same commands at the same times give the same outcomes."""

    def __init__(
        self,
        timing: Timing,
        now: Instant,
        zones: ZoneLookup = only_utc,
        policy: Policy = DEFAULT,
        limits: CoreLimits = CORE_LIMITS,
    ) -> None:
        self._t = SchedulerState(timing, now, zones, policy, limits)

    def restore(self, stored: Stored, now: Instant) -> None:
        """Restores what was stored; each lease gets its full length again."""
        restore(self._t, stored, now)

    # Decisions

    def step(self, command: AnyInput, now: Instant) -> Outcome:
        """Handles one command as a turn of its own."""
        return self.turn([command], now)

    def turn(self, commands: Sequence[AnyInput], now: Instant) -> Outcome:
        """Handles commands, fires timers that are due, and dispatches jobs to waiting workers."""
        t = self._t
        t.begin_turn()
        for command in commands:
            # Before timers fire: no lease must run out because the clock was set.
            if isinstance(command, ClockJump):
                workers.follow_clock(t, command.by, now)
            elif isinstance(command, LeaderPause):
                workers.make_up_for_pause(t, command.by, now)
            else:
                break
        self._fire_timers(now)
        if t.schedule_index.due:
            fire.fire_due(t, now)
        replies = [self._reply_to(command, now) for command in commands]
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
        changeset = t.changeset
        return Outcome(
            replies,
            changeset.writes(),
            changeset.answers,
            changeset.submitted,
            changeset.waits,
            changeset.ends,
            spill.wanted_refills(t),
            tuple(changeset.occurrences.values()),
            changeset.deadlines,
            changeset.events.decision_counts(),
        )

    def _notify_of_ends(self, now: Instant) -> None:
        """Notifies job groups, triggers and schedules of jobs that ended in this turn."""
        t = self._t
        if t.groups.due:
            members.update_groups(t, now)
        if t.trigger_index.ended_jobs or t.trigger_index.deadline_notices:
            match.match_job_events(t, now)
        if t.schedule_index.ended_origins:
            fire.restart_intervals(t, now)

    @property
    def spills(self) -> bool:
        """Whether any job is spilled."""
        return self._t.ready_queue.spilled_groups > 0

    def next_due(self) -> Instant | None:
        """When a `Tick` is needed next."""
        left = self._t.schedule_index.due
        return next(iter(left.values())) if left else self._t.timers.next_due()

    def _reply_to(self, command: AnyInput, now: Instant) -> AnyReceipt | Refusal:
        try:
            if isinstance(command, Idempotent) and command.key is not None:
                return self._handle_once(command, now)
            return self._handle(command, now)
        except Refusal as refusal:
            return refusal

    def _handle_once(self, command: Idempotent, now: Instant) -> AnyReceipt:
        """Handles a command with an idempotency key: a repeat gets the stored receipt."""
        key, recently_finished = command.key, self._t.recently_finished
        assert key is not None
        assert command.preloaded is not None, "a command with a key comes with preloaded records"
        used = recently_finished.key(key.key) or command.preloaded.key
        if used is not None:
            if used.fingerprint != key.fingerprint:
                raise KeyReused(f"idempotency key {key.key!r} was used for another request")
            receipt = decode_receipt(used.receipt)
            _refuse_other_ids(command, receipt)
            return receipt
        if recently_finished.is_stale(command.preloaded.at, now):
            raise StalePreload("too long since the key was looked up")
        receipt = self._handle(command, now)  # type: ignore[arg-type]  # it is an AnyInput too
        record = KeyRecord(key.key, key.fingerprint, encode_receipt(receipt), now)
        recently_finished.remember_key(record)
        self._t.changeset.keys.append(record)
        return receipt

    def _handle(self, command: AnyInput, now: Instant) -> AnyReceipt:  # noqa: C901  (one line a case)
        t = self._t
        match command:
            case Poll() | Complete():
                return self._handle_from_worker(command, now)
            case Submit():
                return submit.submit(t, command, now)
            case Reject():
                return submit.reject(t, command, now)
            case Update():
                return submit.update(t, command, now)
            case Cancel():
                return job_commands.cancel(t, command, now)
            case Retry():
                return manual_retry.retry(t, command, now)
            case Delete():
                return job_commands.delete(t, command, now)
            case Execute():
                return job_commands.execute(t, command, now)
            case PutQueueSettings():
                return settings.set_queue(t, command, now)
            case SetPolicy():
                return settings.set_policy(t, command, now)
            case PutTenantSettings():
                return settings.set_tenant(t, command, now)
            case Purge():
                return job_commands.purge(t, command, now)
            case Refilled():
                return spill.refill(t, command, now)
            case ClockJump() | LeaderPause() | Tick():
                return CountReceipt(0)
            case EventInput():
                return trigger_commands.handle(t, command, now)
            case ScheduleInput():
                return schedule_commands.handle(t, command, now)
            case _:
                return self._handle_from_worker(command, now)

    def _handle_from_worker(self, command: AnyWorkerInput, now: Instant) -> AnyReceipt:
        t = self._t
        match command:
            case Poll():
                return workers.poll(t, command, now)
            case Heartbeat():
                return workers.heartbeat(t, command, now)
            case Complete():
                return ExecutionAnswer(complete_execution(t, command.completion, now))
            case Progress():
                return workers.report_progress(t, command.running, now)
            case Register():
                return workers.register(t, command, now)
            case Drain():
                return workers.drain(t, command, now)
            case Resume():
                return workers.resume(t, command, now)
            case Deregister():
                return workers.deregister(t, command, now)
            case ClosePoll():
                workers.cancel_poll(t, command)
                return CountReceipt(1)
            case _:
                assert_never(command)

    # Timers

    def _fire_timers(self, now: Instant) -> None:
        t, timers = self._t, self._t.timers
        due = timers.next_due()
        if due is not None and due <= now:
            for when, _, kind, key in timers.due(now, t.limits.timers_per_turn):
                self._fire_timer(kind, key, when, now)
        if len(timers) > SWEEP_TIMERS_FROM:
            live = (
                len(t.jobs)
                + len(t.fleet.workers)
                + len(t.schedule_index.entries)
                + t.trigger_index.open_windows
            )
            if len(timers) > SWEEP_TIMERS_FROM + 4 * live:
                timers.sweep(self._is_timer_current)

    def _fire_timer(  # noqa: C901  (one line a case)
        self, kind: TimerKind, key: str, when: Instant, now: Instant
    ) -> None:
        t = self._t
        match kind:
            case TimerKind.JOB:
                entry = t.jobs.get(JobId(key))
                if entry is not None and wait_states.timer_fired(t, entry, now):
                    expire_job(t, entry, now)
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
                pass  # dispatch looks at the job at the end of the turn

    def _is_timer_current(self, timer: Timer) -> bool:
        when, _, kind, key = timer
        t = self._t
        match kind:
            case TimerKind.JOB:
                entry = t.jobs.get(JobId(key))
                return entry is not None and when in (
                    wait_states.due_at(entry),
                    entry.spec.expires_at,
                )
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
        """Raises AssertionError if an invariant does not hold."""
        check_invariants(self._t)

    # Questions: nothing below changes anything

    def why(
        self, job_id: JobId, now: Instant, record: JobRecord | None = None
    ) -> Explanation | None:
        """Explains why a live job does not run; `record` is a spilled one. None: not live."""
        return explain(self._t, job_id, now, record)

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """Newest progress of a running job, written or not."""
        job = self._t.jobs.get(job_id)
        if job is None or job.life.execution_id is None:
            return None
        entry = self._t.executions.get(job.life.execution_id)
        return None if entry is None else (entry.progress, entry.message)

    def workers(self, now: Instant) -> list[WorkerInfo]:
        return [worker_info(self._t, entry, now) for entry in self._t.fleet.workers.values()]

    def worker(self, worker_id: WorkerId, now: Instant) -> WorkerInfo | None:
        entry = self._t.fleet.workers.get(worker_id)
        return None if entry is None else worker_info(self._t, entry, now)

    def reservations(self, now: Instant) -> Iterator[ReservationInfo]:
        """Reservations for jobs that wait."""
        return reservation_infos(self._t, now)

    def queues(self) -> list[QueueInfo]:
        """All queues, by name."""
        return [queue_info(self._t, self._t.queues[name]) for name in sorted(self._t.queues)]

    def ready_since(self) -> dict[str, Instant]:
        """Since when the longest waiting job at a head has been ready, by queue with ready jobs."""
        return self._t.ready_queue.ready_since()

    def schedules(self, keep: Callable[[Schedule], bool]) -> Iterator[ScheduleInfo]:
        """Schedules to keep, newest first; an iterator, because there may be many."""
        entries = self._t.schedule_index.entries
        for schedule_id in sorted(entries, reverse=True):
            if keep(entries[schedule_id].schedule):
                yield schedule_info(self._t, entries[schedule_id])

    def schedule(self, schedule_id: ScheduleId) -> ScheduleInfo | None:
        entry = self._t.schedule_index.entries.get(schedule_id)
        return None if entry is None else schedule_info(self._t, entry)

    def calendars(self) -> list[Calendar]:
        """All calendars, by name."""
        return [
            self._t.schedule_index.calendars[name]
            for name in sorted(self._t.schedule_index.calendars)
        ]

    def preview_definition(
        self, definition: ScheduleDefinition, after: Instant, count: int
    ) -> list[PreviewedInstant]:
        """Instants of a schedule with this definition, if it were created at `after`."""
        return preview(schedule_commands.check_definition(self._t, definition, after), after, count)

    def preview(
        self, schedule_id: ScheduleId, after: Instant, count: int
    ) -> list[PreviewedInstant]:
        """Next instants of a schedule's timetable, whether it is paused or not."""
        recurrence = self._t.schedule_index.entry(schedule_id).recurrence
        return [] if recurrence is None else preview(recurrence, after, count)

    def instants(
        self, schedule_id: ScheduleId, start: Instant, end: Instant, limit: int
    ) -> list[Instant]:
        """Instants of a schedule's timetable within a range, at most `limit`."""
        recurrence = self._t.schedule_index.entry(schedule_id).recurrence
        return [] if recurrence is None else list(islice(recurrence.between(start, end), limit))

    def triggers(self) -> list[TriggerInfo]:
        """All triggers, in order of creation."""
        return [
            trigger_commands.trigger_info(entry) for entry in self._t.trigger_index.entries.values()
        ]

    def trigger(self, trigger_id: TriggerId) -> TriggerInfo | None:
        entry = self._t.trigger_index.entries.get(trigger_id)
        return None if entry is None else trigger_commands.trigger_info(entry)

    def try_event(self, event: Event, only: TriggerId | None, now: Instant) -> list[TriggerDryRun]:
        """Decisions that triggers would make on an event (dry run)."""
        return trigger_commands.try_event(self._t, event, only, now)

    def try_rule(self, definition: TriggerDefinition, event: Event, now: Instant) -> TriggerDryRun:
        """Decision that a trigger with this definition would make on an event (dry run)."""
        return trigger_commands.try_rule(definition, event, now)

    @property
    def policy(self) -> Policy:
        return self._t.policy

    def tenants(self, now: Instant) -> list[TenantInfo]:
        """All tenants that have jobs or settings, by name."""
        return [
            tenant_info(self._t, self._t.tenants.entries[name], now)
            for name in sorted(self._t.tenants.entries)
        ]

    def demand(self, target_ms: Millis, size: Resources | None, now: Instant) -> Demand:
        """Demand: how many workers would clear what waits within the target."""
        return demand(self._t, target_ms, size, now)

    def usages(self) -> Iterator[tuple[JobName, UsageHistory]]:
        """Usage statistics of jobs, by tenant and name."""
        return self._t.runtime_estimates.usages.all()

    def live_jobs(self) -> int:
        """Number of jobs in memory."""
        return len(self._t.jobs)

    # Forecasts

    def position(self, job_id: JobId, record: JobRecord | None = None) -> Position | None:
        """Position of a job that waits for a worker; None: it is in no queue."""
        return position_of(self._t, job_id, record)

    def remedies(self, job_id: JobId, causes: Sequence[Cause], now: Instant) -> tuple[Remedy, ...]:
        """Remedies for the causes that keep a job waiting."""
        return remedies(self._t, job_id, causes, now)

    def deadline(self, job: JobRecord, start: Instant | None, now: Instant) -> DeadlineInfo | None:
        """Deadline of a job and whether it will be met; None: it has none."""
        return deadline_watch.deadline_info(self._t, job, start, now)

    def expected_end(self, execution_id: ExecutionId) -> Instant | None:
        """Expected end of a live execution."""
        entry = self._t.executions.get(execution_id)
        return None if entry is None else entry.ends_at

    def forecast_input(self, wanted: Sequence[JobId], now: Instant) -> ForecastInput:
        """Input for a forecast of the starts of these jobs."""
        return forecast_input(self._t, wanted, now)

    def forecast_size(self) -> int:
        """Size of the part of that input that does not depend on what waits."""
        return fixed_size(self._t)

    def fluid_start(self, job_id: JobId, record: JobRecord | None, now: Instant) -> Instant | None:
        """Estimated start if the jobs before it flowed evenly through the workers for them."""
        return fluid_start(self._t, job_id, record, now)

    def check_submit(self, command: Submit, now: Instant) -> None:
        """Raises the refusal that this submission would get."""
        check_submit(self._t, command, JobLookup(self._t, command.preloaded, now, read_only=True))


def _refuse_other_ids(command: Idempotent, first: AnyReceipt) -> None:
    """Refuses a repeat whose caller already has other ids than those of the first answer."""
    if not (isinstance(command, Submit) and command.promised and isinstance(first, JobsAccepted)):
        return
    if first.job_ids != tuple(new.id for new in command.jobs):
        raise AlreadyAccepted(first.job_ids)
