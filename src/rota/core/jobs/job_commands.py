"""Job commands on existing jobs: cancel, delete, execute on a worker, purge."""

from __future__ import annotations

import sys

from msgspec.structs import replace

from rota.core.commands import (
    Cancel,
    Delete,
    Execute,
    Purge,
)
from rota.core.dispatch.dispatcher import add_order
from rota.core.entries import JobEntry, WorkerEntry
from rota.core.errors import (
    Conflict,
    IllegalTransition,
    NoFreeCapacity,
    NotFound,
    StalePreload,
)
from rota.core.groups import arrays, members
from rota.core.jobs.finish import finish_job, group_id_of, is_in_gang, stop_running
from rota.core.jobs.spill import JobLookup
from rota.core.jobs.start import claim
from rota.core.lifecycle import JOB_WAITING, JobVerb, move_job
from rota.core.model import (
    GroupMember,
    Instant,
    JobId,
    JobRecord,
    JobState,
    WorkerState,
    member_delete_refusal,
)
from rota.core.outcome import (
    CountReceipt,
    ExecutionAnswer,
    JobAnswer,
    JobGone,
)
from rota.core.placement.feasibility import infeasible_reasons
from rota.core.ready_queue.limits_and_quotas import over_quota, queue_full
from rota.core.resources import Shortfall, shortfall_text, shortfalls
from rota.core.state import SchedulerState


def cancel(t: SchedulerState, event: Cancel, now: Instant) -> JobAnswer:
    """Cancels a waiting job at once; a running one ends when its worker has stopped it."""
    lookup = JobLookup(t, event.preloaded, now)
    job = lookup.live(event.job_id)
    if job is None:
        record = lookup.require_ended(event.job_id)
        raise IllegalTransition("job", record.id, record.life.state, JobVerb.CANCEL)
    cancel_job(t, job, now)
    return JobAnswer(job.record())


def cancel_job(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Cancels the job or begins to; a member of a gang cancels the whole gang."""
    if job.spec.group is not None:
        if is_in_gang(job):
            job = t.jobs[group_id_of(job)]
        if members.is_group(job):
            _cancel_group(t, job, now)
            return
    state = move_job(job.id, job.life.state, JobVerb.CANCEL)
    if state is JobState.CANCELLED:
        finish_job(t, job, JobVerb.CANCEL, replace(job.life, reason="cancelled"), now)
        return
    if job.life.state is not JobState.CANCELLING:
        stop_running(t, job, "cancelled", now)


def _cancel_group(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Cancels an array or gang: waiting members end at once, running ones are stopped."""
    state = move_job(job.id, job.life.state, JobVerb.CANCEL)
    if state is JobState.CANCELLED:
        finish_job(t, job, JobVerb.CANCEL, replace(job.life, reason="cancelled"), now)
        return
    if job.life.state is JobState.CANCELLING:
        return
    t.set_life(job, replace(job.life, state=state, reason="cancelled"))
    arrays.stop_starting(t, job, now)
    t.groups.cancel_waiting(job)
    for job_id in list(t.groups.entries[job.id].live):
        member = t.jobs[job_id]
        if job.life.delete_when_finished:
            t.set_life(member, replace(member.life, delete_when_finished=True))
        if member.life.state is JobState.RUNNING:
            stop_running(t, member, "cancelled", now)
        elif member.life.state is not JobState.CANCELLING:
            finish_job(t, member, JobVerb.CANCEL, replace(member.life, reason="cancelled"), now)
    members.update_group(t, job, now)
    if job.id in t.jobs:
        members.write_progress(t, job)


def delete(t: SchedulerState, event: Delete, now: Instant) -> JobGone | JobAnswer:
    """Deletes an ended job; with force also a live one, which is cancelled first."""
    lookup = JobLookup(t, event.preloaded, now)
    job = lookup.live(event.job_id)
    if job is None:
        record = lookup.require_ended(event.job_id)
        _refuse_member(t, record)
        t.changeset.dropped[record.id] = None
        t.recently_finished.remember_job(record.id, now)
        return JobGone(record.id)
    if not event.force:
        raise Conflict(
            f"job {job.id} is {job.life.state}: cancel it first, or delete it with force"
        )
    _refuse_member(t, job.record())
    job.life = replace(job.life, delete_when_finished=True)
    cancel_job(t, job, now)
    if job.id in t.jobs:
        t.set_life(job, replace(job.life, delete_when_finished=True))
        return JobAnswer(job.record())
    return JobGone(job.id)


def _refuse_member(t: SchedulerState, record: JobRecord) -> None:
    """Refuses to delete a member of a live array or gang, which needs it for its progress."""
    member = record.spec.group
    parent = t.jobs.get(JobId(member.parent)) if isinstance(member, GroupMember) else None
    if parent is not None and not parent.life.delete_when_finished:
        raise Conflict(member_delete_refusal(record.id, parent.id, parent.life.state))


def execute(t: SchedulerState, event: Execute, now: Instant) -> ExecutionAnswer:
    """Executes a job on a worker now: past time, order and pause, not past limits or capacity."""
    lookup = JobLookup(t, event.preloaded, now)
    job = lookup.live(event.job_id)
    if job is None:
        record = lookup.require_ended(event.job_id)
        raise IllegalTransition("job", record.id, record.life.state, "run")
    if job.life.state not in JOB_WAITING:
        raise IllegalTransition("job", job.id, job.life.state, "run")
    if members.is_group(job):
        raise Conflict(f"job {job.id} stands for {t.groups.of(job).size} jobs: execute one of them")
    if job.unmet:
        raise Conflict(f"job {job.id} waits for {job.unmet} other jobs")
    worker = t.worker(event.worker_id)
    _refuse_unfit(job, worker)
    blocked = queue_full(t.queue(job.spec.terms.queue, now), now)
    if blocked is not None:
        raise Conflict(blocked.message)
    terms = job.spec.terms
    for exceeded in over_quota(t.tenants.entry(terms.tenant), terms.needs.resources):
        raise Conflict(exceeded.message)
    has_slot, displaced = t.concurrency_keys.force(job)
    if not has_slot:
        raise Conflict(f"job {job.id} waits for a slot of its concurrency key")
    if displaced is not None:
        t.ready_queue.remove(displaced)
    t.ready_queue.remove(job)
    entry = claim(t, job, worker, now)
    if worker.poll is not None and worker.poll.free_slots > 0:
        add_order(t, worker, entry)
    else:
        entry.delivered = False
        entry.lease_until = now + t.timing.lease_ttl_ms
        worker.undelivered[entry.execution.id] = None
    return ExecutionAnswer(entry.execution)


def _refuse_unfit(job: JobEntry, worker: WorkerEntry) -> None:
    """Refuses a worker that placement would not choose either."""
    name, terms = worker.worker.id, job.spec.terms
    if worker.worker.state is not WorkerState.ONLINE:
        raise NoFreeCapacity(f"worker {name} is {worker.worker.state}")
    reasons = infeasible_reasons(terms.queue, terms.needs, worker.machine)
    if reasons:
        raise NoFreeCapacity(f"worker {name} cannot run it: {_text(reasons[0])}")
    short = shortfalls(terms.needs.resources, worker.free)
    if short:
        raise NoFreeCapacity(f"worker {name} has too little free: {_text(short[0])}")


def _text(reason: str | Shortfall) -> str:
    if isinstance(reason, Shortfall):
        return shortfall_text(reason)
    return f"it does not have {reason}" if reason != "queue" else "it does not serve the queue"


def purge(t: SchedulerState, event: Purge, now: Instant) -> CountReceipt:
    """Cancels waiting jobs of a queue: the preloaded ones, or all in memory; `most` of them at
    most.

    Without preloaded jobs it takes time proportional to the number of live jobs; it is rare.
    """
    if event.name not in t.queues:
        raise NotFound("queue", event.name)
    preloaded = () if event.preloaded is None else event.preloaded.jobs
    lookup = JobLookup(t, event.preloaded, now)
    count = event.before
    end = sys.maxsize if event.most is None else count + event.most
    for job_id in [record.id for record in preloaded] or list(t.jobs):
        try:
            job = lookup.live(job_id)
        except StalePreload:
            continue  # it has moved since it was read: loaded into memory, or ended
        if job is not None and job.spec.terms.queue == event.name:
            if job.life.state in JOB_WAITING:
                count += t.groups.of(job).waiting if members.is_group(job) else 1
                cancel_job(t, job, now)
            elif arrays.is_started_array(job):
                count += arrays.cancel_unstarted(t, job, now)
        if count >= end:
            break
    return CountReceipt(count)
