"""Workers: registration, polls, heartbeats, leases and their loss, and reported progress.

A lease is renewed for the executions that a worker names in a call. A worker that is silent for
longer than its leases loses them, and their jobs run again
(docs/decisions/0012-redelivery-losses-and-late-cancels.md).
"""

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


def confirm_running(
    t: SchedulerState, entry: ExecutionEntry, report: Running, now: Instant
) -> None:
    """Marks an execution as running that its worker named, and notes its progress."""
    before = entry.execution
    worker = t.fleet.workers[before.worker_id]
    # A prefetched execution is named while it waits: it runs once the one before it has ended.
    if before.state is ExecutionState.CLAIMED and not worker.is_prefetched(before):
        state = move_execution(before.id, before.state, ExecutionVerb.START)
        t.put_execution(entry, replace(before, state=state, started_at=now))
        worker.named[before.id] = None
    if report.progress is not None or report.message is not None:
        _note_progress(t, entry, report, now)


def report_progress(t: SchedulerState, report: Running, now: Instant) -> ExecutionAnswer:
    """Notes the progress of an execution. This alone renews no lease."""
    entry = t.executions.get(report.execution_id)
    if entry is None:
        raise NotFound("live execution", report.execution_id)
    if report.fence is not None and report.fence != entry.execution.fence:
        raise StaleFence(f"execution {report.execution_id} has fence {entry.execution.fence}")
    confirm_running(t, entry, report, now)
    return ExecutionAnswer(entry.execution)


def _note_progress(t: SchedulerState, entry: ExecutionEntry, report: Running, now: Instant) -> None:
    """Writes the first change at once, further ones at most once per PROGRESS_EVERY_MS."""
    value = entry.progress if report.progress is None else report.progress
    message = entry.message if report.message is None else report.message
    if (value, message) == (entry.progress, entry.message):
        return
    entry.progress, entry.message = value, message
    due = entry.progress_at + PROGRESS_EVERY_MS
    if now >= due:
        _write_progress(t, entry, now)
    elif not entry.progress_due:
        entry.progress_due = True
        t.timers.set(due, TimerKind.PROGRESS, entry.execution.id)


def progress_timer_fired(t: SchedulerState, execution_id: ExecutionId, now: Instant) -> None:
    """Writes the newest progress that was delayed."""
    entry = t.executions.get(execution_id)
    if entry is not None and entry.progress_due:
        _write_progress(t, entry, now)


def _write_progress(t: SchedulerState, entry: ExecutionEntry, now: Instant) -> None:
    entry.progress_at, entry.progress_due = now, False
    job = t.jobs[entry.execution.job_id]
    t.set_life(job, replace(job.life, progress=entry.progress, message=entry.message))


_OFFLINE = WorkerState.OFFLINE
NO_SESSION = ""
"""Session of a worker that has left: no call is accepted until it registers again."""


def register(t: SchedulerState, event: Register, now: Instant) -> WorkerAnswer:
    """Adds or updates a worker; from now on only the newer session may call for it."""
    known = t.fleet.workers.get(event.worker_id)
    # Registering again must not postpone the check of leases that is already set.
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
        entry = t.fleet.add(worker, now)
    else:
        entry = known
        if entry.poll is not None:
            refusal = Superseded("this worker has a newer registration")
            t.changeset.answers.append(PollAnswer(entry.poll.id, refusal=refusal))
            close_poll(t, entry)
        t.fleet.update(entry, worker)
    t.put_worker(entry, worker)
    entry.last_seen = now
    if not is_watched:
        _watch(t, entry, lease_until(t, now))
    return WorkerAnswer(worker)


def _calling_worker(
    t: SchedulerState, worker_id: WorkerId, session: str | None, now: Instant
) -> WorkerEntry:
    """The worker that calls, marked as alive; refuses calls of an older session."""
    worker = t.worker(worker_id)
    if worker.worker.session == NO_SESSION:
        raise NotFound("worker", worker_id, "it has left or was removed: register again")
    if session is not None and session != worker.worker.session:
        raise Superseded(f"worker {worker_id} has a newer registration")
    worker.last_seen = now
    if worker.worker.state is _OFFLINE:
        t.put_worker(worker, replace(worker.worker, state=WorkerState.ONLINE, gone_at=None))
        _watch(t, worker, lease_until(t, now))
    return worker


def heartbeat(t: SchedulerState, event: Heartbeat, now: Instant) -> HeartbeatReply:
    """Renews the leases of the named executions; without names, of all named before."""
    worker = _calling_worker(t, event.worker_id, event.session, now)
    lost = _renew(t, worker, event.executions, now)
    return HeartbeatReply(stops_for(t, worker), tuple(lost))


def poll(t: SchedulerState, event: Poll, now: Instant) -> PollOpened:
    """Takes reports, renews leases and opens the poll; the end of this turn may answer it."""
    worker = _calling_worker(t, event.worker_id, event.session, now)
    if worker.poll is not None:
        t.changeset.answers.append(
            PollAnswer(worker.poll.id, tuple(worker.poll.orders), (), tuple(worker.poll.lost))
        )
        close_poll(t, worker)
    lost = take_reports(t, worker, event.completed, now)
    if worker.named or event.executions is not None:
        lost.extend(_renew(t, worker, event.executions, now))
    worker.poll = PendingPoll(
        event.poll_id, event.until, event.max_orders, [], lost, spare=event.spare
    )
    if event.spare > 0:
        t.fleet.spare[event.worker_id] = None
    t.opened_now[event.worker_id] = None
    if worker.undelivered or event.executions is not None:
        _redeliver(t, worker, event.executions, now)
    reports = event.completed and not (event.patient and event.max_orders)
    if (
        lost
        or reports
        or event.until <= now
        or (worker.stops and _has_undelivered_stops(t, worker))
    ):
        t.answer_now[event.worker_id] = None
    t.fleet.offer(worker)
    return PollOpened(event.poll_id)


def _has_undelivered_stops(t: SchedulerState, worker: WorkerEntry) -> bool:
    return any(not t.executions[execution_id].stop_delivered for execution_id in worker.stops)


def _renew(
    t: SchedulerState, worker: WorkerEntry, named: Iterable[Running] | None, now: Instant
) -> list[ExecutionId]:
    """Renews leases; returns what was named but is not the worker's."""
    if named is None:
        for execution_id in worker.named:
            _extend(t, t.executions[execution_id], now)
        return []
    lost: list[ExecutionId] = []
    for report in named:
        entry = t.executions.get(report.execution_id)
        is_its_own = entry is not None and report.execution_id in worker.held
        if entry is None or not is_its_own or report.fence not in (None, entry.execution.fence):
            lost.append(report.execution_id)
        else:
            confirm_running(t, entry, report, now)
            _extend(t, entry, now)
    return lost


def _extend(t: SchedulerState, entry: ExecutionEntry, now: Instant) -> None:
    """Renews a lease, unless the worker has not stopped in time what it was asked to stop."""
    if entry.stop_until is None or now <= entry.stop_until:
        entry.lease_until = lease_until(t, now)


def _redeliver(
    t: SchedulerState, worker: WorkerEntry, named: tuple[Running, ...] | None, now: Instant
) -> None:
    """Delivers orders again that the worker should have and, by its own report, has not."""
    missing = list(worker.undelivered)
    if named is not None:
        named_ids = {report.execution_id: None for report in named}
        missing.extend(
            execution_id
            for execution_id in worker.held
            if execution_id not in named_ids and execution_id not in worker.undelivered
        )
    for execution_id in missing:
        entry = t.executions[execution_id]
        if entry.execution.state is ExecutionState.CLAIMED and _may_deliver(t, entry, now):
            # The worker counts its lease from its poll plus the time until the answer: from now.
            entry.lease_until = lease_until(t, now)
            add_order(t, worker, entry)


def _may_deliver(t: SchedulerState, entry: ExecutionEntry, now: Instant) -> bool:
    """Whether the order may be delivered again: not endlessly if it is never acknowledged.

    An at-most-once order goes only to a worker that has registered since: a process before that may
    have begun it.
    """
    execution = entry.execution
    if t.jobs[execution.job_id].spec.terms.semantics is Semantics.AT_MOST_ONCE:
        registered_at = t.fleet.workers[execution.worker_id].worker.registered_at
        if entry.delivered and execution.claimed_at <= registered_at:
            return False
    redelivery_ms = REDELIVER_LEASES * t.timing.lease_ttl_ms
    return execution.stop is None and now < entry.since + redelivery_ms


def cancel_poll(t: SchedulerState, event: ClosePoll) -> None:
    """Closes the poll of a caller that has gone: no order may go to an unread answer."""
    worker = t.fleet.workers.get(event.worker_id)
    if worker is not None and worker.poll is not None and worker.poll.id == event.poll_id:
        close_poll(t, worker)


def drain(t: SchedulerState, event: Drain, now: Instant) -> WorkerAnswer:
    """Lets the worker finish what it has and gives it nothing new."""
    worker = t.worker(event.worker_id)
    if worker.worker.state is WorkerState.OFFLINE:
        raise Conflict(f"worker {event.worker_id} is offline")
    if worker.worker.state is WorkerState.ONLINE:
        t.put_worker(worker, replace(worker.worker, state=WorkerState.DRAINING))
        t.fleet.withdraw(worker)
    return WorkerAnswer(worker.worker)


def resume(t: SchedulerState, event: Resume, now: Instant) -> WorkerAnswer:
    """Gives a drained worker work again; its open poll may be answered in this turn."""
    worker = t.worker(event.worker_id)
    if worker.worker.state is WorkerState.OFFLINE:
        raise Conflict(f"worker {event.worker_id} is offline: start it again")
    if worker.worker.state is WorkerState.DRAINING:
        t.put_worker(worker, replace(worker.worker, state=WorkerState.ONLINE))
        t.fleet.offer(worker)
    return WorkerAnswer(worker.worker)


def deregister(t: SchedulerState, event: Deregister, now: Instant) -> WorkerAnswer:
    """Takes a worker out that is gone for good: what it still held is lost at once."""
    worker = t.worker(event.worker_id)
    if worker.poll is not None:
        t.changeset.answers.append(PollAnswer(worker.poll.id))
        close_poll(t, worker)
    _lose_all(t, worker, now, "its worker left")
    _go_offline(t, worker, now)
    if worker.worker.session != NO_SESSION:
        t.put_worker(worker, replace(worker.worker, session=NO_SESSION))
    return WorkerAnswer(worker.worker)


def _lose_all(t: SchedulerState, worker: WorkerEntry, now: Instant, why: str) -> None:
    for execution_id in list(worker.held):
        lose_execution(t, t.executions[execution_id], now, why)


def _go_offline(t: SchedulerState, worker: WorkerEntry, now: Instant) -> None:
    if worker.worker.state is not WorkerState.OFFLINE:
        t.put_worker(worker, replace(worker.worker, state=WorkerState.OFFLINE, gone_at=now))
    _watch(t, worker, now + OFFLINE_KEPT_MS)


def _watch(t: SchedulerState, worker: WorkerEntry, when: Instant) -> None:
    worker.check_at = when
    t.timers.set(when, TimerKind.WORKER, worker.worker.id)


def watch_all_leases(t: SchedulerState, now: Instant) -> None:
    """Gives every worker a whole lease to be heard from again, after a restore."""
    for worker in t.fleet.workers.values():
        if worker.worker.state is WorkerState.OFFLINE:
            _watch(t, worker, (worker.worker.gone_at or now) + OFFLINE_KEPT_MS)
        else:
            _watch(t, worker, lease_until_after_failover(t, now))


def make_up_for_pause(t: SchedulerState, pause_ms: Millis, now: Instant) -> None:
    """Extends leases by a time in which the leader answered no worker."""
    for entry in t.executions.values():
        entry.lease_until += pause_ms
        if entry.stop_until is not None:
            entry.stop_until += pause_ms
    for worker in t.fleet.workers.values():
        if worker.worker.state is not WorkerState.OFFLINE:
            worker.last_seen = min(now, worker.last_seen + pause_ms)
            _watch(t, worker, worker.check_at + pause_ms)


def poll_timer_fired(t: SchedulerState, worker_id: WorkerId, now: Instant) -> None:
    """Answers a poll that has waited as long as it may."""
    worker = t.fleet.workers.get(worker_id)
    if worker is not None and worker.poll is not None and worker.poll.until <= now:
        t.answer_now[worker_id] = None


def check_leases(t: SchedulerState, worker_id: WorkerId, when: Instant, now: Instant) -> None:
    """Ends executions whose lease has expired, and marks a silent worker as offline."""
    worker = t.fleet.workers.get(worker_id)
    if worker is None or worker.check_at != when:
        return
    if worker.worker.state is WorkerState.OFFLINE:
        t.forget_worker(worker)
        return
    silent_at = lease_until(t, worker.last_seen)
    times = [silent_at]
    for execution_id in list(worker.held):
        entry = t.executions[execution_id]
        if entry.lease_until <= now:
            lose_execution(t, entry, now, _loss_reason(entry))
        else:
            extend_estimate(t, entry, now)
            times += (entry.lease_until, _enforce_timeout(t, entry, now))
    if silent_at <= now and not worker.held:
        if worker.poll is not None:
            t.changeset.answers.append(PollAnswer(worker.poll.id))
            close_poll(t, worker)
        _go_offline(t, worker, now)
    else:
        _watch(t, worker, min(time for time in times if time > now))


def _loss_reason(entry: ExecutionEntry) -> str:
    if not entry.delivered:
        return "its worker did not collect it"
    if entry.execution.stop is not None:
        return "its worker did not confirm that it stopped"
    return "its lease expired: its worker did not renew it"


def _enforce_timeout(t: SchedulerState, entry: ExecutionEntry, now: Instant) -> Instant:
    """Stops an execution that its worker lets run past its timeout; returns when to check again."""
    timeout = t.jobs[entry.execution.job_id].spec.terms.timeout_ms
    worker = t.fleet.workers[entry.execution.worker_id]
    if timeout is None or entry.execution.stop is not None or worker.is_prefetched(entry.execution):
        return entry.lease_until
    deadline = entry.since + timeout + TIMEOUT_MARGIN_MS
    if deadline <= now:
        request_stop(t, entry, Stop.TIMEOUT, now)
        return entry.lease_until
    return deadline


def follow_clock(t: SchedulerState, by: Millis, now: Instant) -> None:
    """Shifts all that measures a duration after the clock was set by `by` ms.

    Times that people named stay as they are (docs/decisions/0011-clock-changes-shift-leases.md).
    Takes time proportional to the number of live jobs; it is rare.
    """
    for entry in t.executions.values():
        entry.lease_until += by
        entry.since += by
        entry.ends_at += by
        if entry.stop_until is not None:
            entry.stop_until += by
        entry.progress_at += by
    for worker in t.fleet.workers.values():
        worker.last_seen += by
        worker.set_ends([(ends_at + by, execution_id) for ends_at, execution_id in worker.ends])
        if worker.poll is not None:
            worker.poll.until += by
            t.timers.set(worker.poll.until, TimerKind.POLL, worker.worker.id)
        if worker.worker.state is not WorkerState.OFFLINE:
            _watch(t, worker, worker.check_at + by)
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
