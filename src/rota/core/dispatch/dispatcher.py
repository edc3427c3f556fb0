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
    """Starts all jobs that can start: the first in order that may, on the worker that fits best."""
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
    """Starts whatever fits, and passes over what does not."""
    ready_queue, fleet = t.ready_queue, t.fleet
    unplaceable = 0  # bits of classes; free capacity only shrinks here, so they stay unplaceable
    while fleet.open and not _is_full(t):
        mask = fleet.placeable_classes() & ~t.blocked_classes & ~unplaceable
        class_queue = ready_queue.first(mask)
        if class_queue is None:
            return
        job_class = class_queue.job_class
        worker = (
            pick_worker(t, class_queue, now)
            if job_class.has_preference
            else fleet.choose(job_class)
        )
        if worker is None:
            if not job_class.has_preference:
                fleet.mark_unplaceable(job_class.bit)
            unplaceable |= job_class.bit
            continue
        head = ready_queue.head(class_queue)
        if is_spill_marker(head):
            # The head is in the store and must be loaded first: any other job would overtake it.
            ready_queue.note_empty(head)
            return
        _start(t, Candidate(t.jobs[head[2]], worker, 0 if job_class.has_preference else mask), now)


def _start(t: SchedulerState, candidate: Candidate, now: Instant) -> None:
    """Starts the job and alike ones behind it, an array's next member, or all members of a gang."""
    job, worker = candidate.job, candidate.worker
    spec = job.spec
    if spec.group is not None and isinstance(spec.group, Gang):
        for member, member_worker in start_gang(t, job, now):
            add_order(t, member_worker, claim(t, member, member_worker, now))
        return
    terms_entry = t.terms.of(spec.terms)
    if spec.group is not None or not terms_entry.is_plain:
        add_order(t, worker, claim(t, job, worker, now))
        return
    # With capacity for a few jobs only, nothing can start together with this one.
    if worker.free_capacity.free.cpu_milli >= FEW * terms_entry.resources.cpu_milli:
        jobs = stretch(t, job, worker, candidate.mask)
        if len(jobs) > 1:
            start_together(t, jobs, worker, now)
            return
    start_alone(t, job, terms_entry, worker, now)


def _dispatch_with_backfill(t: SchedulerState, now: Instant) -> None:
    """Starts jobs in order; one that does not fit blocks those behind it, or gets a reservation."""
    scan, limit = BackfillScan(t, now), t.policy.max_running
    reserved = scan.reservations.by_worker
    while limit is None or len(t.executions) < limit:
        candidate = scan.next()
        if candidate is None:
            return
        if reserved:
            scan.note_started(candidate, t.ready_queue.classes[candidate.job.class_index])
        _start(t, candidate, now)


def _dispatch_by_plan(t: SchedulerState, now: Instant) -> None:
    """Starts the jobs whose planned time has come, by a plan in which no job delays another."""
    if not t.fleet.open or not t.ready_queue.ready:
        return
    for candidate in ConservativePlan(t, now).candidates():
        if _is_full(t):
            return
        _start(t, candidate, now)


def _prefetch(t: SchedulerState, now: Instant) -> None:
    """Prefetches the jobs that are next behind short executions, if they are short too."""
    prefetch = Prefetcher(t, now)
    while not _is_full(t) and (choice := prefetch.next()) is not None:
        entry = claim(t, choice.job, choice.worker, now, choice.slot.last)
        prefetch.note_prefetched(choice, entry)
        add_order(t, choice.worker, entry)


def add_order(t: SchedulerState, worker: WorkerEntry, entry: ExecutionEntry) -> None:
    """Adds the execution to the answer of the worker's open poll."""
    poll = worker.poll
    assert poll is not None
    entry.delivered = True
    execution, is_prefetched = entry.execution, worker.is_prefetched(entry.execution)
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
        t.fleet.spare.pop(
            worker.worker.id, None
        )  # to the end of the order, so that all workers take turns
        if poll.spare > 0:
            t.fleet.spare[worker.worker.id] = None
        return
    took_room(t, worker, poll, 1)


def answer_polls(t: SchedulerState, now: Instant) -> None:
    """Answers the polls that have something to say, or whose time is over."""
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
    """Executions that the worker is asked to stop by the answer that is being made."""
    for execution_id in worker.stops:
        t.executions[execution_id].stop_delivered = True
    return tuple(worker.stops)


def close_poll(t: SchedulerState, worker: WorkerEntry) -> None:
    worker.poll = None
    t.fleet.spare.pop(worker.worker.id, None)
    t.fleet.withdraw(worker)
