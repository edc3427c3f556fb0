"""How an execution starts: its lease, what it holds, and when it will probably end."""

from __future__ import annotations

from rota.core.entries import NO_CLASS, ExecutionEntry, JobEntry, WorkerEntry
from rota.core.groups.arrays import start_member
from rota.core.ids import execution_id
from rota.core.lifecycle import JOB_TRANSITIONS, JobVerb, move_job
from rota.core.model import (
    Array,
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobState,
    Life,
    Semantics,
    Terms,
    WorkerId,
)
from rota.core.ready_queue.fair_share import share_of
from rota.core.ready_queue.limits_and_quotas import has_limits, has_quota, spend_start
from rota.core.resources import NOTHING
from rota.core.runtime_estimates import next_estimate
from rota.core.state import SchedulerState

# A member of an enumeration costs several look-ups each time it is named: these are named for every
# job that starts.
_CLAIMED, _CLAIM = ExecutionState.CLAIMED, JobVerb.CLAIM
STATE_WHEN_STARTED = JOB_TRANSITIONS[JobState.QUEUED, _CLAIM]
"""The state of a job whose execution was made."""


def lease_until(t: SchedulerState, now: Instant) -> Instant:
    """When a lease renewed now has surely ended, by whatever clock its holder has."""
    return now + t.lease_ms


def lease_until_after_failover(t: SchedulerState, now: Instant) -> Instant:
    """The same for one found at a take-over: the leader before may have renewed it since."""
    return lease_until(t, now) + t.timing.handover_ms


def claim(
    t: SchedulerState,
    job: JobEntry,
    worker: WorkerEntry,
    now: Instant,
    behind: ExecutionId | None = None,
) -> ExecutionEntry:
    """The job is the worker's: a new execution with a higher fence than any before.

    At once, or prefetched: then it has nothing of the worker until the one it is behind has ended.
    """
    if job.spec.group is not None and isinstance(job.spec.group, Array):
        job = start_member(t, job, now)
    life, terms = job.life, job.spec.terms
    execution = new_execution(job, worker.worker.id, now, behind)
    if behind is not None:
        worker.prefetched[behind] = (execution.id, terms.needs.resources)
    cell = t.executions[execution.id] = ExecutionEntry(execution, lease_until(t, now), now)
    t.changeset.executions[execution.id] = execution
    if job.class_index == NO_CLASS:
        share = t.dominant_share_of(terms)  # an array's or gang's member, or put there by hand
    else:
        share = share_of(t.ready_queue.classes[job.class_index], t.fleet.capacity)
    t.ready_queue.remove(job)
    t.changeset.waits.append(0 if life.ready_at is None else now - life.ready_at)
    move_job(job.id, life.state, _CLAIM)
    t.set_life(job, running_life(life, execution))
    occupy(t, cell, terms, share, now)
    queue = t.queues[terms.queue]
    if has_limits(queue):
        spend_start(queue, now)
        t.check_queue_limits(queue, now)
    return cell


def new_execution(
    job: JobEntry, worker_id: WorkerId, now: Instant, behind: ExecutionId | None = None
) -> Execution:
    """The next execution of a job."""
    life, fence = job.life, job.life.fence + 1
    return Execution(
        execution_id(job.id, fence, now),
        job.id,
        worker_id,
        life.attempt + 1,
        fence,
        _CLAIMED,
        now,
        memory=job.spec.terms.needs.resources.memory,
        behind=behind,
    )


def running_life(life: Life, execution: Execution) -> Life:
    """The life of a job that waited and whose execution this is."""
    return Life(
        STATE_WHEN_STARTED,
        attempt=execution.attempt,
        fence=execution.fence,
        losses=life.losses,
        lives=life.lives,
        started_at=execution.claimed_at,
        execution_id=execution.id,
        worker_id=execution.worker_id,
        ready_at=life.ready_at,
        deadline=life.deadline,
    )


def occupy(
    t: SchedulerState, cell: ExecutionEntry, terms: Terms, share: float, now: Instant
) -> None:
    """What the execution holds is held: of its worker, its queue, its tenant."""
    execution, resources = cell.execution, terms.needs.resources
    cell.ends_at = probable_end(t, terms, cell.since, now)
    worker = t.fleet.workers[execution.worker_id]
    worker.hold(
        execution.id, NOTHING if worker.is_prefetched(execution) else resources, cell.ends_at
    )
    queue = t.queues.get(terms.queue) or t.queue(terms.queue, now)
    queue.begin(execution.id)
    if terms.preemptible and terms.semantics is Semantics.AT_LEAST_ONCE:
        t.preemptible[execution.id] = None
    if terms.needs.affinity is not None:
        t.affinity.note_start(execution.id, terms, worker)
    tenant = t.tenants.entries.get(terms.tenant) or t.tenants.entry(terms.tenant)
    tenant.hold(execution.id, resources)
    payer = t.ready_queue.order.account(terms.tenant, queue)
    cell.rate = t.ready_queue.order.charge(payer, share, (now, cell.ends_at))
    if has_quota(tenant):
        t.check_quota(tenant, now)
    t.note_start(tenant, now)


def probable_end(t: SchedulerState, terms: Terms, since: Instant, now: Instant) -> Instant:
    """When an execution will probably end that began then."""
    ends_at = since + t.runtime_estimates.estimate(terms)
    return ends_at if ends_at > now else next_estimate(since, terms.timeout_ms, now)


def extend_estimate(t: SchedulerState, cell: ExecutionEntry, now: Instant) -> None:
    """If it runs longer than was thought, another end is guessed, and charged for."""
    if cell.ends_at > now:
        return
    terms = t.jobs[cell.execution.job_id].spec.terms
    ends_at = next_estimate(cell.since, terms.timeout_ms, now)
    if cell.rate:
        payer = t.ready_queue.order.account(terms.tenant, t.queues[terms.queue])
        t.ready_queue.order.charge_more(payer, cell.rate, ends_at - cell.ends_at)
    worker = t.fleet.workers[cell.execution.worker_id]
    worker.move_end(cell.execution.id, cell.ends_at, ends_at)
    cell.ends_at = ends_at
