"""Starts executions: lease, what they hold of worker, queue and tenant, and expected end."""

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

# Attributes of an enumeration cost several lookups each time; these are used for every job that
# starts.
_CLAIMED, _CLAIM = ExecutionState.CLAIMED, JobVerb.CLAIM
STATE_WHEN_STARTED = JOB_TRANSITIONS[JobState.QUEUED, _CLAIM]
"""State of a job when its execution has been created."""


def lease_until(t: SchedulerState, now: Instant) -> Instant:
    """End of a lease that is renewed now, with the tolerance for different clocks."""
    return now + t.lease_ms


def lease_until_after_failover(t: SchedulerState, now: Instant) -> Instant:
    """End of a lease found at a failover: the previous leader may have renewed it."""
    return lease_until(t, now) + t.timing.handover_ms


def claim(
    t: SchedulerState,
    job: JobEntry,
    worker: WorkerEntry,
    now: Instant,
    behind: ExecutionId | None = None,
) -> ExecutionEntry:
    """Claims the job for the worker: a new execution with a higher fence than any before.

    `behind` makes it a prefetched execution: it holds nothing of the worker until that one has
    ended.
    """
    if job.spec.group is not None and isinstance(job.spec.group, Array):
        job = start_member(t, job, now)
    life, terms = job.life, job.spec.terms
    execution = new_execution(t, job, worker.worker.id, now, behind)
    if behind is not None:
        worker.prefetched[behind] = (execution.id, terms.needs.resources)
    entry = t.executions[execution.id] = ExecutionEntry(execution, lease_until(t, now), now)
    t.changeset.executions[execution.id] = execution
    if job.class_index == NO_CLASS:
        share = t.dominant_share_of(terms)  # a member of an array or gang
    else:
        share = share_of(t.ready_queue.classes[job.class_index], t.fleet.capacity)
    t.ready_queue.remove(job)
    t.changeset.waits.append(0 if life.ready_at is None else now - life.ready_at)
    move_job(job.id, life.state, _CLAIM)
    t.set_life(job, running_life(life, execution))
    occupy(t, entry, terms, share, now)
    queue = t.queues[terms.queue]
    if has_limits(queue):
        spend_start(queue, now)
        t.check_queue_limits(queue, now)
    return entry


def new_execution(
    t: SchedulerState,
    job: JobEntry,
    worker_id: WorkerId,
    now: Instant,
    behind: ExecutionId | None = None,
) -> Execution:
    life, fence = job.life, max(job.life.fence, t.fence_floor) + 1
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
    """State of a waiting job after `execution` was created for it."""
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
    t: SchedulerState, entry: ExecutionEntry, terms: Terms, share: float, now: Instant
) -> None:
    """Counts what the execution holds: of its worker, its queue, its tenant."""
    execution, resources = entry.execution, terms.needs.resources
    entry.ends_at = probable_end(t, terms, entry.since, now)
    worker = t.fleet.workers[execution.worker_id]
    worker.hold(
        execution.id, NOTHING if worker.is_prefetched(execution) else resources, entry.ends_at
    )
    queue = t.queues.get(terms.queue) or t.queue(terms.queue, now)
    queue.begin(execution.id)
    if terms.preemptible and terms.semantics is Semantics.AT_LEAST_ONCE:
        t.preemptible[execution.id] = None
    if terms.needs.affinity is not None:
        t.affinity.note_start(execution.id, terms, worker)
    tenant = t.tenants.entries.get(terms.tenant) or t.tenants.entry(terms.tenant)
    tenant.hold(execution.id, resources)
    account = t.ready_queue.order.account(terms.tenant, queue)
    entry.rate = t.ready_queue.order.charge(account, share, (now, entry.ends_at))
    if has_quota(tenant):
        t.check_quota(tenant, now)
    t.note_start(tenant, now)


def probable_end(t: SchedulerState, terms: Terms, since: Instant, now: Instant) -> Instant:
    """When an execution that began at `since` will probably end."""
    ends_at = since + t.runtime_estimates.estimate(terms)
    return ends_at if ends_at > now else next_estimate(since, terms.timeout_ms, now)


def extend_estimate(t: SchedulerState, entry: ExecutionEntry, now: Instant) -> None:
    """Moves the expected end of an execution that runs longer than estimated; charges for it."""
    if entry.ends_at > now:
        return
    terms = t.jobs[entry.execution.job_id].spec.terms
    ends_at = next_estimate(entry.since, terms.timeout_ms, now)
    if entry.rate:
        account = t.ready_queue.order.account(terms.tenant, t.queues[terms.queue])
        t.ready_queue.order.charge_more(account, entry.rate, ends_at - entry.ends_at)
    worker = t.fleet.workers[entry.execution.worker_id]
    worker.move_end(entry.execution.id, entry.ends_at, ends_at)
    entry.ends_at = ends_at
