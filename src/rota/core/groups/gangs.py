"""Gangs: all members start in one turn, and the end of one decides for all.

When a member fails, is lost or preempted, the others are stopped. When all have stopped, the gang
as a whole is retried, requeued, or fails. The cause is part of its stored progress, so that a
restart in between loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rota.core.entries import ExecutionEntry, GroupEntry, JobEntry, WorkerEntry
from rota.core.ids import member_id
from rota.core.jobs.finish import (
    GANG_CANCELLED,
    GANG_FAILED,
    GANG_LOST,
    GANG_PREEMPTED,
    GANG_RETRY,
    GANG_UNDELIVERED,
    error_json,
    finish_job,
    is_in_gang,
    request_stop,
    requeue_or_expire,
    stop_running,
)
from rota.core.jobs.retry_policy import retry_delay_ms
from rota.core.lifecycle import JobVerb, move_job
from rota.core.limits import LOSSES_MAX
from rota.core.model import GroupMember, Instant, JobState, Life, Semantics, Spec, Stop, Worker
from rota.core.placement.feasibility import HOST
from rota.core.state import SchedulerState


def start_gang(
    t: SchedulerState, job: JobEntry, now: Instant
) -> Iterator[tuple[JobEntry, WorkerEntry]]:
    """Starts the gang; yields each member with its worker."""
    group, life = t.groups.entries[job.id], job.life
    workers = [t.fleet.workers[worker_id] for worker_id in group.places]
    t.ready_queue.remove(job)
    group.reset()
    group.places, group.hosts = [], tuple(_host_of(worker.worker) for worker in workers)
    t.groups.add_waiting(job, -group.waiting)
    group.drawn = group.size
    state = move_job(job.id, life.state, JobVerb.CLAIM)
    t.set_life(
        job,
        Life(
            state,
            attempt=life.attempt + 1,
            fence=life.fence + 1,
            losses=life.losses,
            lives=life.lives,
            started_at=now,
            ready_at=life.ready_at,
            deadline=life.deadline,
        ),
    )
    t.groups.changed[job.id] = None
    template = _member_template(job.spec)
    for index, worker in enumerate(workers):
        yield _new_member(t, job, template, index), worker


def _host_of(worker: Worker) -> str:
    """Host name by which the other members find this one: a worker's label `host`, or its name."""
    return dict(worker.labels).get(HOST) or worker.name


def _member_template(spec: Spec) -> Spec:
    """Spec of every member. The payload stays with the gang and is not repeated in each row."""
    needs = replace(spec.terms.needs, copies=1)
    return replace(
        spec,
        terms=replace(spec.terms, needs=needs),
        payload=b"",
        dependencies=(),
        expires_at=None,
        finish_by=None,
        concurrency=None,
        origin=None,
        trigger_origin=None,
        revision=0,
    )


def _new_member(t: SchedulerState, job: JobEntry, template: Spec, index: int) -> JobEntry:
    life, spec = job.life, replace(template, group=GroupMember(job.id, index, in_gang=True))
    fresh = Life(
        JobState.QUEUED,
        reason="ready",
        attempt=life.attempt - 1,
        fence=t.fence_floor + life.fence - 1,
        lives=life.fence,
        ready_at=life.ready_at,
    )
    member = t.add_job(member_id(job.id, index), spec, fresh)
    t.recently_finished.returned(member.id)
    t.put_job(member)
    t.changeset.submitted += life.fence == 1
    return member


def update_gang(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Stops the other members after one ended badly; decides on the gang when all have ended."""
    group = t.groups.entries[job.id]
    t.groups.changed[job.id] = None
    if group.cause and group.live:
        stop_others(t, job, now)
    if not group.live:
        _decide(t, job, group, now)


def stop_others(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Asks the workers to stop all running members."""
    for job_id in list(t.groups.entries[job.id].live):
        member = t.jobs[job_id]
        if member.life.state is JobState.RUNNING:
            stop_running(t, member, "gang", now)


def stop_gangs_of(t: SchedulerState, victims: Sequence[ExecutionEntry], now: Instant) -> None:
    """Stops the rest of each gang that has a preempted member."""
    for victim in victims:
        job = t.jobs[victim.execution.job_id]
        if job.spec.group is None or not is_in_gang(job):
            continue
        for job_id in t.groups.of(job).live:
            execution_id = t.jobs[job_id].life.execution_id
            assert execution_id is not None
            if t.executions[execution_id].execution.stop is None:
                request_stop(t, t.executions[execution_id], Stop.PREEMPT, now)


def _decide(t: SchedulerState, job: JobEntry, group: GroupEntry, now: Instant) -> None:
    """Finishes, retries or requeues a gang whose members have all ended."""
    life = replace(job.life, progress=None)
    if group.succeeded == group.size:
        finish_job(t, job, JobVerb.SUCCEED, replace(life, reason="", error=None), now)
    elif job.life.state is JobState.CANCELLING or group.cause == GANG_CANCELLED:
        finish_job(t, job, JobVerb.STOP, replace(life, reason="cancelled"), now)
    elif group.cause == GANG_RETRY:
        _retry(t, job, group, now)
    elif group.cause == GANG_FAILED:
        finish_job(t, job, JobVerb.FAIL, replace(life, reason="gang"), now)
    else:
        _decide_loss(t, job, group, now)


def _decide_loss(t: SchedulerState, job: JobEntry, group: GroupEntry, now: Instant) -> None:
    """Requeues a gang after a loss or preemption; fails it after too many losses."""
    losses = job.life.losses + (group.cause == GANG_LOST)
    life = replace(job.life, losses=losses, reason=group.cause, progress=None)
    if group.cause == GANG_LOST and job.spec.terms.semantics is Semantics.AT_MOST_ONCE:
        error = error_json("a worker was lost while it ran, and it may start at most once")
        finish_job(t, job, JobVerb.FAIL, replace(life, error=error), now)
    elif group.cause == GANG_LOST and losses >= LOSSES_MAX:
        error = error_json(
            f"its workers were lost {losses} times: the job itself may be what ends them"
        )
        finish_job(t, job, JobVerb.FAIL, replace(life, error=error), now)
    else:
        assert group.cause in (GANG_LOST, GANG_UNDELIVERED, GANG_PREEMPTED), (
            f"a gang stopped because of {group.cause!r}"
        )
        reason = GANG_PREEMPTED if group.cause == GANG_PREEMPTED else GANG_LOST
        state = move_job(job.id, life.state, JobVerb.REQUEUE)
        again = replace(life, state=state, reason=reason, attempt=life.attempt - 1, ready_at=now)
        _wait_again(t, job, again, now)


def _retry(t: SchedulerState, job: JobEntry, group: GroupEntry, now: Instant) -> None:
    life = job.life
    wait = group.delay_ms
    if wait < 0:
        wait = retry_delay_ms(job.spec.terms.retry, job.id, life.attempt)
    state = move_job(job.id, life.state, JobVerb.TRY_AGAIN)
    again = replace(life, state=state, reason="retry", due_at=now + wait, progress=None)
    _wait_again(t, job, again, now)


def _wait_again(t: SchedulerState, job: JobEntry, life: Life, now: Instant) -> None:
    t.set_life(job, replace(life, group_progress=None))
    group = t.groups.entries[job.id]
    group.reset()
    t.groups.add_waiting(job, group.size)
    requeue_or_expire(t, job, now)
