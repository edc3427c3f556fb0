"""Workers: registration, polls, heartbeats, leases and their loss, and reported progress."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from rota.core.commands import (
    ClosePoll,
    Deregister,
    Drain,
    Heartbeat,
    Poll,
    Register,
    Resume,
    Running,
)
from rota.core.dispatch.dispatcher import add_order, close_poll, stops_for
from rota.core.entries import ExecutionEntry, PendingPoll, WorkerEntry
from rota.core.errors import Conflict, NotFound, StaleFence, Superseded, TooMuch
from rota.core.jobs.finish import lose_execution, request_stop
from rota.core.jobs.reports import take_reports
from rota.core.jobs.start import extend_estimate, lease_until, lease_until_after_failover
from rota.core.lifecycle import ExecutionVerb, move_execution
from rota.core.limits import (
    OFFLINE_KEPT_MS,
    PROGRESS_EVERY_MS,
    REDELIVER_LEASES,
    TIMEOUT_MARGIN_MS,
    WORKERS_MAX,
)
from rota.core.model import (
    ExecutionId,
    ExecutionState,
    Instant,
    Millis,
    Semantics,
    Stop,
    Worker,
    WorkerId,
    WorkerState,
)
from rota.core.outcome import ExecutionAnswer, HeartbeatReply, PollAnswer, PollOpened, WorkerAnswer
from rota.core.ready_queue.limits_and_quotas import delay_starts
from rota.core.state import SchedulerState
from rota.core.timers import TimerKind


def confirm_running(t: SchedulerState, cell: ExecutionEntry, report: Running, now: Instant) -> None:
    """Its worker named it: it runs, if it did not before."""
    before = cell.execution
    worker = t.fleet.workers[before.worker_id]
    # A prefetched one is there, and waits: it runs once the one before it has ended.
    if before.state is ExecutionState.CLAIMED and not worker.is_prefetched(before):
        state = move_execution(before.id, before.state, ExecutionVerb.START)
        t.put_execution(cell, replace(before, state=state, started_at=now))
        worker.named[before.id] = None
    if report.progress is not None or report.message is not None:
        _note_progress(t, cell, report, now)


def report_progress(t: SchedulerState, report: Running, now: Instant) -> ExecutionAnswer:
    """An execution says how far it is. This alone renews no lease."""
    cell = t.executions.get(report.execution_id)
    if cell is None:
        raise NotFound("live execution", report.execution_id)
    if report.fence is not None and report.fence != cell.execution.fence:
        raise StaleFence(f"execution {report.execution_id} has fence {cell.execution.fence}")
    confirm_running(t, cell, report, now)
    return ExecutionAnswer(cell.execution)


def _note_progress(t: SchedulerState, cell: ExecutionEntry, report: Running, now: Instant) -> None:
    """The first change is written at once, the following at most once a second."""
    value = cell.progress if report.progress is None else report.progress
    message = cell.message if report.message is None else report.message
    if (value, message) == (cell.progress, cell.message):
        return
    cell.progress, cell.message = value, message
    due = cell.progress_at + PROGRESS_EVERY_MS
    if now >= due:
        _write_progress(t, cell, now)
    elif not cell.progress_due:
        cell.progress_due = True
        t.timers.set(due, TimerKind.PROGRESS, cell.execution.id)


def progress_timer_fired(t: SchedulerState, execution_id: ExecutionId, now: Instant) -> None:
    """Writes the newest progress that was held back."""
    cell = t.executions.get(execution_id)
    if cell is not None and cell.progress_due:
        _write_progress(t, cell, now)


def _write_progress(t: SchedulerState, cell: ExecutionEntry, now: Instant) -> None:
    cell.progress_at, cell.progress_due = now, False
    job = t.jobs[cell.execution.job_id]
    t.set_life(job, replace(job.life, progress=cell.progress, message=cell.message))


_OFFLINE = WorkerState.OFFLINE
NO_SESSION = ""
"""The session of a worker that has left: nobody speaks for it until it registers again."""


def register(t: SchedulerState, event: Register, now: Instant) -> WorkerAnswer:
    """A worker comes, or comes again; the newer registration speaks for it."""
    known = t.fleet.workers.get(event.worker_id)
    # Whose leases are looked at already must not put that off by registering again.
    is_watched = known is not None and known.worker.state is not WorkerState.OFFLINE
    if known is None and len(t.fleet.workers) >= WORKERS_MAX:
        raise TooMuch(f"there are {WORKERS_MAX} workers already")
    worker = Worker(
        event.worker_id,
        event.name,
        event.session,
        event.capacity,
        event.capabilities,
        event.queues,
        registered_at=now,
        labels=event.labels,
        only=event.only,
    )
    if known is None:
        cell = t.fleet.add(worker, now)
    else:
        cell = known
        if cell.poll is not None:
            refusal = Superseded("a newer registration speaks for this worker")
            t.changeset.answers.append(PollAnswer(cell.poll.id, refusal=refusal))
            close_poll(t, cell)
        t.fleet.update(cell, worker)
    t.put_worker(cell, worker)
    cell.last_seen = now
    if not is_watched:
        _watch(t, cell, lease_until(t, now))
    return WorkerAnswer(worker)


def _calling_worker(
    t: SchedulerState, worker_id: WorkerId, session: str | None, now: Instant
) -> WorkerEntry:
    """The worker that calls; it is alive, whatever was thought of it."""
    cell = t.worker(worker_id)
    if cell.worker.session == NO_SESSION:
        raise NotFound("worker", worker_id, "it has left or was removed, so register again")
    if session is not None and session != cell.worker.session:
        raise Superseded(f"a newer registration speaks for worker {worker_id}")
    cell.last_seen = now
    if cell.worker.state is _OFFLINE:
        t.put_worker(cell, replace(cell.worker, state=WorkerState.ONLINE, gone_at=None))
        _watch(t, cell, lease_until(t, now))
    return cell


def heartbeat(t: SchedulerState, event: Heartbeat, now: Instant) -> HeartbeatReply:
    """Renews the leases of what the worker names; without names, of all it has named before."""
    cell = _calling_worker(t, event.worker_id, event.session, now)
    lost = _renew(t, cell, event.executions, now)
    return HeartbeatReply(stops_for(t, cell), tuple(lost))


def poll(t: SchedulerState, event: Poll, now: Instant) -> PollOpened:
    """Takes the reports, renews, and leaves the worker waiting; this turn's end may answer it."""
    cell = _calling_worker(t, event.worker_id, event.session, now)
    if cell.poll is not None:
        t.changeset.answers.append(
            PollAnswer(cell.poll.id, tuple(cell.poll.orders), (), tuple(cell.poll.lost))
        )
        close_poll(t, cell)
    lost = take_reports(t, cell, event.completed, now)
    if cell.named or event.executions is not None:
        lost.extend(_renew(t, cell, event.executions, now))
    cell.poll = PendingPoll(
        event.poll_id, event.until, event.max_orders, [], lost, spare=event.spare
    )
    if event.spare > 0:
        t.fleet.spare[event.worker_id] = None
    t.opened_now[event.worker_id] = None
    if cell.undelivered or event.executions is not None:
        _redeliver(t, cell, event.executions, now)
    reports = event.completed and not (event.patient and event.max_orders)
    if lost or reports or event.until <= now or (cell.stops and _has_untold_stops(t, cell)):
        t.answer_now[event.worker_id] = None
    t.fleet.offer(cell)
    return PollOpened(event.poll_id)


def _has_untold_stops(t: SchedulerState, cell: WorkerEntry) -> bool:
    return any(not t.executions[execution_id].stop_delivered for execution_id in cell.stops)


def _renew(
    t: SchedulerState, worker: WorkerEntry, named: Iterable[Running] | None, now: Instant
) -> list[ExecutionId]:
    """Renews, and lists what was named but is not the worker's."""
    if named is None:
        for execution_id in worker.named:
            _extend(t, t.executions[execution_id], now)
        return []
    lost: list[ExecutionId] = []
    for report in named:
        held = t.executions.get(report.execution_id)
        is_its_own = held is not None and report.execution_id in worker.held
        if held is None or not is_its_own or report.fence not in (None, held.execution.fence):
            lost.append(report.execution_id)
        else:
            confirm_running(t, held, report, now)
            _extend(t, held, now)
    return lost


def _extend(t: SchedulerState, cell: ExecutionEntry, now: Instant) -> None:
    """A lease goes on, unless the worker does not stop what it was told to stop."""
    if cell.stop_until is None or now <= cell.stop_until:
        cell.lease_until = lease_until(t, now)


def _redeliver(
    t: SchedulerState, worker: WorkerEntry, named: tuple[Running, ...] | None, now: Instant
) -> None:
    """Hands out what the worker should have and, by its own word, has not."""
    owed = list(worker.undelivered)
    if named is not None:
        has = {report.execution_id: None for report in named}
        owed.extend(
            execution_id
            for execution_id in worker.held
            if execution_id not in has and execution_id not in worker.undelivered
        )
    for execution_id in owed:
        cell = t.executions[execution_id]
        if cell.execution.state is ExecutionState.CLAIMED and _may_deliver(t, cell, now):
            # The holder counts from sending the poll plus the time we held it: from now.
            cell.lease_until = lease_until(t, now)
            add_order(t, worker, cell)


def _may_deliver(t: SchedulerState, cell: ExecutionEntry, now: Instant) -> bool:
    """An order that is never acknowledged must not be handed out for ever.

    Nor one that may start once only to a worker that has registered since: who was there before may
    have begun it.
    """
    execution = cell.execution
    if t.jobs[execution.job_id].spec.terms.semantics is Semantics.AT_MOST_ONCE:
        registered_at = t.fleet.workers[execution.worker_id].worker.registered_at
        if cell.delivered and execution.claimed_at <= registered_at:
            return False
    patience = REDELIVER_LEASES * t.timing.lease_ttl_ms
    return execution.stop is None and now < cell.since + patience


def cancel_poll(t: SchedulerState, event: ClosePoll) -> None:
    """The caller has gone; work must not go to an answer that nobody reads."""
    cell = t.fleet.workers.get(event.worker_id)
    if cell is not None and cell.poll is not None and cell.poll.id == event.poll_id:
        close_poll(t, cell)


def drain(t: SchedulerState, event: Drain, now: Instant) -> WorkerAnswer:
    """The worker finishes what it has and gets nothing new."""
    cell = t.worker(event.worker_id)
    if cell.worker.state is WorkerState.OFFLINE:
        raise Conflict(f"worker {event.worker_id} is offline")
    if cell.worker.state is WorkerState.ONLINE:
        t.put_worker(cell, replace(cell.worker, state=WorkerState.DRAINING))
        t.fleet.withdraw(cell)
    return WorkerAnswer(cell.worker)


def resume(t: SchedulerState, event: Resume, now: Instant) -> WorkerAnswer:
    """A drained worker takes work again, in this turn if it waits for some."""
    cell = t.worker(event.worker_id)
    if cell.worker.state is WorkerState.OFFLINE:
        raise Conflict(f"worker {event.worker_id} is offline: start it again")
    if cell.worker.state is WorkerState.DRAINING:
        t.put_worker(cell, replace(cell.worker, state=WorkerState.ONLINE))
        t.fleet.offer(cell)
    return WorkerAnswer(cell.worker)


def deregister(t: SchedulerState, event: Deregister, now: Instant) -> WorkerAnswer:
    """The worker says that it is gone for good: what it still had is lost at once."""
    cell = t.worker(event.worker_id)
    if cell.poll is not None:
        t.changeset.answers.append(PollAnswer(cell.poll.id))
        close_poll(t, cell)
    _lose_all(t, cell, now, "its worker left")
    _go_offline(t, cell, now)
    if cell.worker.session != NO_SESSION:
        t.put_worker(cell, replace(cell.worker, session=NO_SESSION))
    return WorkerAnswer(cell.worker)


def _lose_all(t: SchedulerState, cell: WorkerEntry, now: Instant, why: str) -> None:
    for execution_id in list(cell.held):
        lose_execution(t, t.executions[execution_id], now, why)


def _go_offline(t: SchedulerState, cell: WorkerEntry, now: Instant) -> None:
    if cell.worker.state is not WorkerState.OFFLINE:
        t.put_worker(cell, replace(cell.worker, state=WorkerState.OFFLINE, gone_at=now))
    _watch(t, cell, now + OFFLINE_KEPT_MS)


def _watch(t: SchedulerState, cell: WorkerEntry, when: Instant) -> None:
    cell.check_at = when
    t.timers.set(when, TimerKind.WORKER, cell.worker.id)


def watch_all_leases(t: SchedulerState, now: Instant) -> None:
    """After a load: every worker gets a whole lease to be heard of again."""
    for cell in t.fleet.workers.values():
        if cell.worker.state is WorkerState.OFFLINE:
            _watch(t, cell, (cell.worker.gone_at or now) + OFFLINE_KEPT_MS)
        else:
            _watch(t, cell, lease_until_after_failover(t, now))


def make_up_for_pause(t: SchedulerState, away: Millis, now: Instant) -> None:
    """Workers were not answered for so long: they are late through no fault of their own."""
    for held in t.executions.values():
        held.lease_until += away
        if held.stop_until is not None:
            held.stop_until += away
    for cell in t.fleet.workers.values():
        if cell.worker.state is not WorkerState.OFFLINE:
            cell.last_seen = min(now, cell.last_seen + away)
            _watch(t, cell, cell.check_at + away)


def poll_timer_fired(t: SchedulerState, worker_id: WorkerId, now: Instant) -> None:
    """A poll has waited as long as it may."""
    cell = t.fleet.workers.get(worker_id)
    if cell is not None and cell.poll is not None and cell.poll.until <= now:
        t.answer_now[worker_id] = None


def check_leases(t: SchedulerState, worker_id: WorkerId, when: Instant, now: Instant) -> None:
    """Takes back what the worker's leases no longer cover, and notes a worker that is silent."""
    cell = t.fleet.workers.get(worker_id)
    if cell is None or cell.check_at != when:
        return
    if cell.worker.state is WorkerState.OFFLINE:
        t.forget_worker(cell)
        return
    silent_at = lease_until(t, cell.last_seen)
    marks = [silent_at]
    for execution_id in list(cell.held):
        held = t.executions[execution_id]
        if held.lease_until <= now:
            lose_execution(t, held, now, _loss_reason(held))
        else:
            extend_estimate(t, held, now)
            marks += (held.lease_until, _enforce_timeout(t, held, now))
    if silent_at <= now and not cell.held:
        if cell.poll is not None:
            t.changeset.answers.append(PollAnswer(cell.poll.id))
            close_poll(t, cell)
        _go_offline(t, cell, now)
    else:
        _watch(t, cell, min(mark for mark in marks if mark > now))


def _loss_reason(cell: ExecutionEntry) -> str:
    if not cell.delivered:
        return "its worker did not collect it"
    if cell.execution.stop is not None:
        return "its worker did not confirm that it stopped"
    return "its lease ran out: nothing was heard of it from its worker"


def _enforce_timeout(t: SchedulerState, cell: ExecutionEntry, now: Instant) -> Instant:
    """Steps in where a worker lets a job run past its timeout; says when to look again."""
    timeout = t.jobs[cell.execution.job_id].spec.terms.timeout_ms
    worker = t.fleet.workers[cell.execution.worker_id]
    if timeout is None or cell.execution.stop is not None or worker.is_prefetched(cell.execution):
        return cell.lease_until
    deadline = cell.since + timeout + TIMEOUT_MARGIN_MS
    if deadline <= now:
        request_stop(t, cell, Stop.TIMEOUT, now)
        return cell.lease_until
    return deadline


def follow_clock(t: SchedulerState, by: Millis, now: Instant) -> None:
    """The clock was set by so much: whatever was to last for a while keeps the length it had left.

    Times that people named stay as they were named. Costs the number of live jobs; it is rare.
    """
    for held in t.executions.values():
        held.lease_until += by
        held.since += by
        held.ends_at += by
        if held.stop_until is not None:
            held.stop_until += by
        held.progress_at += by
    for cell in t.fleet.workers.values():
        cell.last_seen += by
        cell.set_ends([(ends_at + by, execution_id) for ends_at, execution_id in cell.ends])
        if cell.poll is not None:
            cell.poll.until += by
            t.timers.set(cell.poll.until, TimerKind.POLL, cell.worker.id)
        if cell.worker.state is not WorkerState.OFFLINE:
            _watch(t, cell, cell.check_at + by)
    for job in t.jobs.values():
        if job.life.due_at is not None:
            due_at = job.life.due_at + by
            t.set_life(job, replace(job.life, due_at=due_at))
            t.timers.set(due_at, TimerKind.JOB, job.id)
    for queue in t.queues.values():
        delay_starts(queue, by)
        t.check_queue_limits(queue, now)
    t.ready_queue.order.follow_clock(by)
    t.affinity.follow_clock(by)
    t.arrival_rates.start_over(t.ready_queue.classes, now)
    t.recently_finished.follow_clock(by)
    t.schedule_index.follow_clock(by)
    t.trigger_index.follow_clock(by)
