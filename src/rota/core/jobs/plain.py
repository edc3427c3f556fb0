"""Plain jobs, which concern nothing but their worker: starts and ends each in a single step.

Most jobs are plain. The general path (`jobs/start.py`, `jobs/finish.py`) checks at every step who
else is concerned; here that is checked once, before. Both come to the same result
(docs/performance.md, "Plain jobs take one short path").
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec.structs import replace

from rota.core.commands import Completion
from rota.core.entries import ExecutionEntry, JobEntry, PendingPoll, WorkerEntry
from rota.core.ids import execution_id
from rota.core.jobs.finish import (
    ended_as_reported,
    learn_one_runtime,
    learn_runtimes,
    started_at_of,
)
from rota.core.jobs.start import probable_end, running_life
from rota.core.model import Execution, ExecutionState, Instant, JobState, Life
from rota.core.outcome import Ended, Order
from rota.core.ready_queue.fair_share import share_of
from rota.core.ready_queue.ready_queue import TermsEntry
from rota.core.state import SchedulerState

_CLAIMED, _GONE_WELL = ExecutionState.CLAIMED, ExecutionState.SUCCEEDED
_QUEUED, _RUNNING, _SUCCEEDED = JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED

Report: TypeAlias = tuple[ExecutionEntry, JobEntry, TermsEntry, Completion]
"""Report of a plain job that succeeded."""


def start_alone(
    t: SchedulerState, job: JobEntry, terms_entry: TermsEntry, worker: WorkerEntry, now: Instant
) -> None:
    """Starts a queued plain job on the worker, whose open poll will be answered with it."""
    before, changeset, order = job.life, t.changeset, t.ready_queue.order
    resources, queue, tenant = terms_entry.resources, terms_entry.queue, terms_entry.tenant
    handle, poll = terms_entry.handle, worker.poll
    assert before.state is _QUEUED
    assert poll is not None
    job_id, ready_at = job.id, before.ready_at
    fence = max(before.fence, t.fence_floor) + 1
    new_id, worker_id = execution_id(job_id, fence, now), worker.worker.id
    attempt, memory = before.attempt + 1, resources.memory
    execution = Execution(new_id, job_id, worker_id, attempt, fence, _CLAIMED, now, memory=memory)
    ends_at = now + terms_entry.estimate(t.runtime_estimates)
    if ends_at <= now:
        ends_at = probable_end(t, terms_entry.terms, now, now)
    share = share_of(t.ready_queue.classes[job.class_index], t.fleet.capacity)
    if handle is not None and handle.leave_first(job):
        account = handle.account
    else:
        t.ready_queue.remove(job)
        account = terms_entry.account(order)
    rate = order.charge(account, share, (now, ends_at))
    entry = ExecutionEntry(execution, now + t.lease_ms, now, ends_at=ends_at, rate=rate)
    t.executions[new_id] = entry
    changeset.executions[new_id] = execution
    changeset.waits.append(0 if ready_at is None else now - ready_at)
    if before.line:
        t.leave_spill_queue(job)
    job.life = running_life(before, execution)
    changeset.moved[job_id] = job
    terms_entry.count_started()
    worker.hold(new_id, resources, ends_at)
    queue.running += 1
    tenant.held[new_id] = resources
    if len(t.tenants.entries) > 1:
        t.note_start(tenant, now)
    poll.orders.append(Order(execution, job.spec, queue.queue.limits))
    took_room(t, worker, poll, 1)


def took_room(t: SchedulerState, worker: WorkerEntry, poll: PendingPoll, count: int) -> None:
    """Counts the orders of an open poll; the worker stays open while it has slots left."""
    t.answer_now[worker.worker.id] = None
    poll.free_slots -= count
    if poll.free_slots > 0:
        t.fleet.offer_less(worker)
    else:
        t.fleet.withdraw(worker)


def plain_report(t: SchedulerState, worker: WorkerEntry, completion: Completion) -> Report | None:
    """The report, if the execution is the worker's own, succeeded, and its job is plain."""
    entry = t.executions.get(completion.execution_id)
    if entry is None or completion.state is not _GONE_WELL:
        return None
    execution = entry.execution
    if (
        execution.fence != completion.fence
        or execution.worker_id != worker.worker.id
        or execution.stop is not None
        or (execution.behind is not None and worker.is_prefetched(execution))
    ):
        return None
    job = t.jobs[execution.job_id]
    life, spec = job.life, job.spec
    if (
        life.state is not _RUNNING
        or life.delete_when_finished
        or spec.group is not None
        or spec.concurrency is not None
        or spec.origin is not None
        or spec.finish_by is not None
        or job.id in t.dependencies.downstream
    ):
        return None
    terms_entry = t.terms.of(spec.terms)
    return (entry, job, terms_entry, completion) if terms_entry.is_plain else None


def end_alone(t: SchedulerState, worker: WorkerEntry, report: Report, now: Instant) -> None:
    """Ends a plain job that succeeded; nothing may be prefetched behind it."""
    (entry, job, terms_entry, completion), changeset = report, t.changeset
    terms, rate, ends_at, job_id = terms_entry.terms, entry.rate, entry.ends_at, job.id
    execution = ended_as_reported(entry, completion, _GONE_WELL, now)
    new_id = execution.id
    changeset.executions[new_id] = execution
    del t.executions[new_id]
    worker.release(new_id, ends_at)
    terms_entry.queue.running -= 1
    del terms_entry.tenant.held[new_id]
    if rate:
        order = t.ready_queue.order
        order.settle_charge(terms_entry.account(order), rate, (now, ends_at))
    if completion.used is not None:
        learn_runtimes(t, terms, ((execution, completion),), now)
    elif terms.expected_runtime_ms is None:
        learn_one_runtime(t, terms_entry, execution, now)
    life = job.life = ended_well(job.life, execution, now)
    changeset.moved[job_id] = job
    changeset.ends.append(Ended(terms.queue, _SUCCEEDED, now - (life.started_at or 0)))
    del t.jobs[job_id]
    t.recently_finished.remember_execution_and_job(execution, job_id, now)
    terms_entry.count_ended()


def ended_well(life: Life, execution: Execution, now: Instant) -> Life:
    """Life of a job that ended with this successful execution."""
    began = life.started_at if execution.behind is None else started_at_of(life, execution)
    return replace(
        life,
        state=_SUCCEEDED,
        reason="",
        due_at=None,
        started_at=began,
        finished_at=now,
        progress=None if life.progress is None else 1.0,
        result=execution.result,
        error=execution.error,
    )
