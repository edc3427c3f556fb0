"""Starts alike jobs together: those that one worker would take one after the other anyway.

A worker with free capacity for hundreds of short jobs takes hundreds in one turn. Order and place
are then decided once for all of them, and their bookkeeping is done once. The result is that of
starting them one by one (docs/performance.md, "Alike jobs start and end together").
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.entries import ExecutionEntry, JobEntry, OrderKey, WorkerEntry
from rota.core.jobs.plain import took_room
from rota.core.jobs.start import lease_until, new_execution, probable_end, running_life
from rota.core.model import ExecutionId, Instant, JobState, Terms
from rota.core.outcome import Order
from rota.core.ready_queue.classes import ClassQueue
from rota.core.ready_queue.fair_share import share_of
from rota.core.resources import how_often_fits
from rota.core.state import SchedulerState

FEW = 8
"""From this many jobs on it pays to start them together."""
_QUEUED, _RUNNING = JobState.QUEUED, JobState.RUNNING


def stretch(t: SchedulerState, job: JobEntry, worker: WorkerEntry, mask: int) -> Sequence[JobEntry]:
    """The plain job that goes first among these classes to this worker, and those that follow it
    there.

    The worker stays the best one while it has capacity, because its fit only becomes tighter. The
    class queue stays first while no other account waits and no other queue of the account has an
    earlier head. So no other job can come between them.
    """
    terms = job.spec.terms
    if not mask:
        return (job,)
    limit = _how_many_fit(t, terms, worker)
    account = t.ready_queue.order.only(mask & t.ready_queue.ready) if limit > 1 else None
    if account is None:
        return (job,)
    class_queue = account.class_queues[job.class_index]
    next_head = account.heads.first(mask & account.ready & ~class_queue.bit)
    until = None if next_head is None else (next_head[0], next_head[1])
    return _take(t, class_queue, terms, (limit, until)) or (job,)


def _how_many_fit(t: SchedulerState, terms: Terms, worker: WorkerEntry) -> int:
    """How many such jobs the worker takes at most before anything else has to be checked."""
    poll, limit = worker.poll, t.policy.max_running
    assert poll is not None
    limit = poll.free_slots if limit is None else min(poll.free_slots, limit - len(t.executions))
    if limit >= FEW:
        limit = how_often_fits(terms.needs.resources, worker.free, limit)
    return limit if limit >= FEW else 1


def _take(
    t: SchedulerState,
    class_queue: ClassQueue,
    terms: Terms,
    limit: tuple[int, tuple[int, OrderKey] | None],
) -> list[JobEntry]:
    """Takes the first alike jobs of the queue; their keys are removed from it."""
    found = class_queue.jobs.first_run()
    if found is None:
        return []
    (run, rest), (most, until) = found, limit
    jobs: list[JobEntry] = []
    passed = 0
    for entry in run:
        if len(jobs) == most or (rest is not None and rest < entry):
            break
        if until is not None and until < (class_queue.rank, entry):
            break
        if t.ready_queue.is_current(entry, class_queue):
            job = t.jobs[entry[2]]
            if job.spec.terms is not terms or job.spec.group is not None:
                break
            jobs.append(job)
        passed += 1
    class_queue.jobs.drop_from_first_run(passed)
    class_queue.first = None
    return jobs


def start_together(
    t: SchedulerState, jobs: Sequence[JobEntry], worker: WorkerEntry, now: Instant
) -> None:
    """Starts all of them on the worker, whose open poll will be answered with them."""
    terms = jobs[0].spec.terms
    ends_at = probable_end(t, terms, now, now)
    share = share_of(t.ready_queue.classes[jobs[0].class_index], t.fleet.capacity)
    # The last one leaves the queue empty, so it is charged after the others, like any other job.
    order, terms_entry = t.ready_queue.order, t.terms.of(terms)
    account = terms_entry.account(order)
    rate = order.charge(account, share, (now, ends_at), len(jobs) - 1)
    t.ready_queue.remove_together(jobs)
    order.charge(account, share, (now, ends_at))
    lease = lease_until(t, now)
    started = [
        ExecutionEntry(
            new_execution(t, job, worker.worker.id, now), lease, now, ends_at=ends_at, rate=rate
        )
        for job in jobs
    ]
    _hold_together(t, terms, started, worker)
    _move_together(t, jobs, started, now)
    _hand_over_together(t, jobs, started, worker)


def _hold_together(
    t: SchedulerState, terms: Terms, started: Sequence[ExecutionEntry], worker: WorkerEntry
) -> None:
    """Counts what they hold: of their worker, their queue, their tenant."""
    ids: list[ExecutionId] = []
    for entry in started:
        execution = entry.execution
        ids.append(execution.id)
        t.executions[execution.id] = entry
        t.changeset.executions[execution.id] = execution
    each, tenant = terms.needs.resources, t.tenants.entries[terms.tenant]
    worker.hold_together(ids, each, started[0].ends_at)
    t.queues[terms.queue].running += len(ids)
    tenant.held.update(dict.fromkeys(ids, each))
    t.note_start(tenant, started[0].since)


def _move_together(
    t: SchedulerState, jobs: Sequence[JobEntry], started: Sequence[ExecutionEntry], now: Instant
) -> None:
    waits, moved = t.changeset.waits, t.changeset.moved
    for job, entry in zip(jobs, started, strict=True):
        before = job.life
        assert before.state is _QUEUED
        waits.append(0 if before.ready_at is None else now - before.ready_at)
        if before.line:
            t.leave_spill_queue(job)
        job.life = running_life(before, entry.execution)
        moved[job.id] = job
    t.terms.of(jobs[0].spec.terms).count_started(len(jobs))


def _hand_over_together(
    t: SchedulerState,
    jobs: Sequence[JobEntry],
    started: Sequence[ExecutionEntry],
    worker: WorkerEntry,
) -> None:
    limits, poll = t.queues[jobs[0].spec.terms.queue].queue.limits, worker.poll
    assert poll is not None
    poll.orders += [
        Order(entry.execution, job.spec, limits) for job, entry in zip(jobs, started, strict=True)
    ]
    took_room(t, worker, poll, len(jobs))
