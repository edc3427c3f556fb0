"""Wait states of a job: it waits for time, other jobs, a concurrency key, or a worker."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rota.core.entries import JobEntry
from rota.core.lifecycle import JobVerb, move_job
from rota.core.model import Instant, JobId, JobState, Spec
from rota.core.ready_queue.classes import JobClass
from rota.core.ready_queue.ready_queue import TermsEntry
from rota.core.state import NEW_LIFE, SchedulerState
from rota.core.timers import TimerKind

_QUEUED = JobState.QUEUED
WAITS_FOR_JOBS = "dependencies"
"""Reason of a job that waits for others; stored, and a restore relies on it."""


def due_at(job: JobEntry) -> Instant | None:
    """Earliest start: the end of a retry's delay, or the requested time."""
    return job.life.due_at if job.life.due_at is not None else job.spec.run_at


def enter_wait_state(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Puts a job that is in no queue where it has to wait."""
    when = due_at(job)
    if job.unmet:
        _make_pending(t, job, WAITS_FOR_JOBS)
    elif when is not None and when > now:
        t.timers.set(when, TimerKind.JOB, job.id)
        _make_pending(t, job, "run_at" if job.life.due_at is None else "retry")
    else:
        if job.life.state is JobState.PENDING:
            move_job(job.id, job.life.state, JobVerb.RELEASE)
            t.set_life(job, t.ready_life(job.life, now))
        enqueue(t, job, now)


def _make_pending(t: SchedulerState, job: JobEntry, reason: str) -> None:
    life = job.life
    if life.state is JobState.QUEUED:
        state = move_job(job.id, life.state, JobVerb.HOLD)
        t.set_life(job, replace(life, state=state, reason=reason, ready_at=None))
    elif life.reason != reason:
        t.set_life(job, replace(life, reason=reason))


def enqueue(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Adds a ready job to the queue of its class, or to the waiters of its concurrency key."""
    has_slot, displaced = t.concurrency_keys.admit(job)
    if displaced is not None:
        t.ready_queue.remove(displaced)
    if has_slot:
        t.queue(job.spec.terms.queue, now)
        _join_class_queue(t, job, t.terms.of(job.spec.terms), now)


def add_ready_job(t: SchedulerState, job_id: JobId, spec: Spec, now: Instant) -> JobEntry:
    """Adds a new job that waits only for a worker: accepted and queued in one step.

    Its terms must be interned and its queue must exist.
    """
    ready_queue, terms = t.ready_queue, spec.terms
    terms_entry = t.terms.of(terms)
    estimate = terms_entry.estimate(t.runtime_estimates)
    life, sort_key = t.ready_life(NEW_LIFE, now), ready_queue.order.sort_key(spec)
    job = JobEntry(job_id, spec, life, sort_key=sort_key, estimate=estimate)
    t.jobs[job_id] = t.changeset.put[job_id] = job
    terms_entry.count_queued()
    job_class = ready_queue.add(job, terms_entry, now)
    job_class.arrived += 1
    job_class.arrived_work += estimate
    if job_class.waiting == 1:
        _prepare_class(t, job_class, terms_entry, now)
    return job


def add_ready_jobs(
    t: SchedulerState, ids: Sequence[JobId], specs: Sequence[Spec], now: Instant
) -> list[JobEntry]:
    """Adds alike jobs, each behind the one before."""
    first = add_ready_job(t, ids[0], specs[0], now)
    rest = {
        job_id: JobEntry(job_id, spec, first.life, sort_key=first.sort_key)
        for job_id, spec in zip(ids[1:], specs[1:], strict=True)
    }
    t.jobs.update(rest)
    t.changeset.put.update(rest)
    t.terms.of(first.spec.terms).count_queued(len(rest))
    entries = list(rest.values())
    t.ready_queue.add_behind(first, entries, now)
    job_class = t.ready_queue.classes[first.class_index]
    job_class.arrived += len(rest)
    job_class.arrived_work += len(rest) * first.estimate
    return [first, *entries]


def _join_class_queue(
    t: SchedulerState, job: JobEntry, terms_entry: TermsEntry, now: Instant
) -> None:
    job.estimate = estimate = t.runtime_estimates.estimate(terms_entry.terms)
    job_class = t.ready_queue.add(job, terms_entry, now)
    if not job.life.line:  # a spilled job was counted when it arrived
        job_class.arrived += 1
        job_class.arrived_work += estimate
    if job_class.waiting == 1:
        _prepare_class(t, job_class, terms_entry, now)


def _prepare_class(
    t: SchedulerState, job_class: JobClass, terms_entry: TermsEntry, now: Instant
) -> None:
    """Checks what holds for all jobs of a class once, when its first job is queued."""
    if job_class.bit & t.ready_queue.new_classes:  # once for a class, not for each refill
        t.fleet.track_labels(job_class.needs)
        t.check_queue_limits(terms_entry.queue, now)
        for tenant in t.tenants.limited():
            t.check_quota(tenant, now)


def dequeue(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Removes the job from its queue and releases its slot of a concurrency key."""
    t.ready_queue.remove(job)
    if job.spec.concurrency is not None:
        for admitted in t.concurrency_keys.release(job):
            _join_class_queue(t, admitted, t.terms.of(admitted.spec.terms), now)


def timer_fired(t: SchedulerState, job: JobEntry, now: Instant) -> bool:
    """Releases the job if its time has come. True: the job has expired instead."""
    expires = job.spec.expires_at
    if job.life.state not in (JobState.PENDING, JobState.QUEUED):
        return False
    if expires is not None and expires <= now:
        return True
    when = due_at(job)
    is_due = when is None or when <= now
    if job.life.state is JobState.PENDING and not job.unmet and is_due:
        enter_wait_state(t, job, now)
    return False
