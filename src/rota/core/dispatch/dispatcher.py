"""Dispatcher: gives ready jobs to workers with free capacity, and answers the workers' polls."""

from __future__ import annotations

from rota.core.dispatch.backfill_scheduling import BackfillScan
from rota.core.dispatch.preempt import preempt
from rota.core.dispatch.prefetch import Prefetcher
from rota.core.entries import ExecutionEntry, WorkerEntry
from rota.core.groups.gangs import start_gang
from rota.core.groups.members import member_order
from rota.core.groups.placement import pick_worker
from rota.core.jobs.plain import start_alone, took_room
from rota.core.jobs.start import claim
from rota.core.jobs.stretch import FEW, start_together, stretch
from rota.core.model import ExecutionId, Gang, Instant
from rota.core.outcome import Order, PollAnswer
from rota.core.policy import BackfillKind
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.reservations.conservative import ConservativePlan
from rota.core.reservations.reserve import Candidate
from rota.core.state import SchedulerState
from rota.core.timers import TimerKind


def dispatch(t: SchedulerState, now: Instant) -> None:
    """Starts all that can start: the first in order that may, where it fits best."""
    if not t.fleet.open:
        pass
    elif t.policy.backfill is BackfillKind.GREEDY and not t.being_preempted:
        _dispatch_greedily(t, now)
    elif t.policy.backfill is BackfillKind.CONSERVATIVE and not t.being_preempted:
        _dispatch_by_plan(t, now)
    else:
        _dispatch_with_backfill(t, now)
    if t.fleet.spare and t.policy.backfill is not BackfillKind.CONSERVATIVE:
        _prefetch(t, now)
    preempt(t, now)


def _is_full(t: SchedulerState) -> bool:
    limit = t.policy.max_running
    return limit is not None and len(t.executions) >= limit


def _dispatch_greedily(t: SchedulerState, now: Instant) -> None:
    """Whoever fits goes, whoever does not is passed."""
    lines, fleet = t.ready_queue, t.fleet
    in_vain = 0  # room only shrinks here, so a class that fits nowhere will not fit later either
    while fleet.open and not _is_full(t):
        mask = fleet.placeable_classes() & ~t.blocked_classes & ~in_vain
        line = lines.first(mask)
        if line is None:
            return
        job_class = line.job_class
        worker = pick_worker(t, line, now) if job_class.has_preference else fleet.choose(job_class)
        if worker is None:
            if not job_class.has_preference:
                fleet.mark_unplaceable(job_class.bit)
            in_vain |= job_class.bit
            continue
        head = lines.head(line)
        if is_spill_marker(head):
            # It goes first, and the store is asked for it: whoever else went now went before it.
            lines.note_empty(head)
            return
        _start(t, Candidate(t.jobs[head[2]], worker, 0 if job_class.has_preference else mask), now)


def _start(t: SchedulerState, candidate: Candidate, now: Instant) -> None:
    """The job and those who follow it, an array's next member, or all members of a gang start."""
    job, worker = candidate.job, candidate.worker
    spec = job.spec
    if spec.group is not None and isinstance(spec.group, Gang):
        for member, place in start_gang(t, job, now):
            add_order(t, place, claim(t, member, place, now))
        return
    kind = t.terms.of(spec.terms)
    if spec.group is not None or not kind.is_plain:
        add_order(t, worker, claim(t, job, worker, now))
        return
    # Where workers have room for a few, nobody can follow.
    if worker.free_capacity.free.cpu_milli >= FEW * kind.resources.cpu_milli:
        jobs = stretch(t, job, worker, candidate.mask)
        if len(jobs) > 1:
            start_together(t, jobs, worker, now)
            return
    start_alone(t, job, kind, worker, now)


def _dispatch_with_backfill(t: SchedulerState, now: Instant) -> None:
    """Whoever does not fit holds up those behind it, or has a place kept that they leave free."""
    one_pass, most = BackfillScan(t, now), t.policy.max_running
    reserved = one_pass.reservations.by_worker
    while most is None or len(t.executions) < most:
        candidate = one_pass.next()
        if candidate is None:
            return
        if reserved:
            one_pass.note_started(candidate, t.ready_queue.classes[candidate.job.class_index])
        _start(t, candidate, now)


def _dispatch_by_plan(t: SchedulerState, now: Instant) -> None:
    """Whoever's time has come, by a plan in which nobody delays another."""
    if not t.fleet.open or not t.ready_queue.ready:
        return
    for candidate in ConservativePlan(t, now).candidates():
        if _is_full(t):
            return
        _start(t, candidate, now)


def _prefetch(t: SchedulerState, now: Instant) -> None:
    """Who goes next waits where a place is about to become free, if both are known to be short."""
    prefetch = Prefetcher(t, now)
    while not _is_full(t) and (choice := prefetch.next()) is not None:
        cell = claim(t, choice.job, choice.worker, now, choice.slot.last)
        prefetch.note_given(choice, cell)
        add_order(t, choice.worker, cell)


def add_order(t: SchedulerState, worker: WorkerEntry, cell: ExecutionEntry) -> None:
    """The worker's open poll will be answered with this execution."""
    poll = worker.poll
    assert poll is not None
    cell.delivered = True
    execution, is_prefetched = cell.execution, worker.is_prefetched(cell.execution)
    worker.undelivered.pop(execution.id, None)
    spec = t.jobs[execution.job_id].spec
    limits = t.queues[spec.terms.queue].queue.limits
    if spec.group is None:
        poll.orders.append(Order(execution, spec, limits, is_prefetched=is_prefetched))
    else:
        poll.orders.append(member_order(t, execution, spec, limits))
    if is_prefetched:
        t.answer_now[worker.worker.id] = None
        poll.spare -= 1
        t.fleet.spare.pop(worker.worker.id, None)  # to the end: each has its turn
        if poll.spare > 0:
            t.fleet.spare[worker.worker.id] = None
        return
    took_room(t, worker, poll, 1)


def answer_polls(t: SchedulerState, now: Instant) -> None:
    """Ends the polls that have something to say, or have waited long enough."""
    for worker_id in t.answer_now:
        worker = t.fleet.workers.get(worker_id)
        if worker is None or worker.poll is None:
            continue
        poll = worker.poll
        t.changeset.answers.append(
            PollAnswer(poll.id, tuple(poll.orders), stops_for(t, worker), tuple(poll.lost))
        )
        close_poll(t, worker)
    t.answer_now.clear()
    for worker_id in t.opened_now:
        # Most polls of a busy fleet are answered in the turn they come in: those need no timer.
        opened = t.fleet.workers.get(worker_id)
        if opened is not None and opened.poll is not None:
            t.timers.set(opened.poll.until, TimerKind.POLL, worker_id)
    t.opened_now.clear()


def stops_for(t: SchedulerState, worker: WorkerEntry) -> tuple[ExecutionId, ...]:
    """What the worker is to stop; it has been told, once this is answered."""
    for execution_id in worker.stops:
        t.executions[execution_id].stop_delivered = True
    return tuple(worker.stops)


def close_poll(t: SchedulerState, worker: WorkerEntry) -> None:
    """The worker waits no longer."""
    worker.poll = None
    t.fleet.spare.pop(worker.worker.id, None)
    t.fleet.withdraw(worker)
