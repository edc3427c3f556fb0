"""Gangs: all members start in one turn, and what happens to one of them happens to all.

When a member fails, is lost or preempted, the others are stopped. When all have stopped, the gang
as a whole is retried, requeued, or has failed. Why it stops is part of its progress record, so that
a restart in between forgets nothing.
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
    lose_execution,
    request_stop,
    requeue_or_expire,
)
from rota.core.jobs.retry_policy import retry_delay_ms
from rota.core.lifecycle import JobVerb, move_job
from rota.core.limits import LOSSES_MAX
from rota.core.model import GroupMember, Instant, JobState, Life, Semantics, Spec, Stop, Worker
from rota.core.placement.feasibility import HOST
from rota.core.state import SchedulerState


def start_gang(
    t: SchedulerState, cell: JobEntry, now: Instant
) -> Iterator[tuple[JobEntry, WorkerEntry]]:
    """The gang starts: its members, each with the worker it goes to."""
    mine, life = t.groups.entries[cell.id], cell.life
    workers = [t.fleet.workers[worker_id] for worker_id in mine.places]
    t.ready_queue.remove(cell)
    mine.reset()
    mine.places, mine.hosts = [], tuple(_host_of(worker.worker) for worker in workers)
    t.groups.add_waiting(cell, -mine.waiting)
    mine.drawn = mine.size
    state = move_job(cell.id, life.state, JobVerb.CLAIM)
    t.set_life(
        cell,
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
    t.groups.changed[cell.id] = None
    template = _member_template(cell.spec)
    for index, worker in enumerate(workers):
        yield _new_member(t, cell, template, index), worker


def _host_of(worker: Worker) -> str:
    """Where the others find a member: the machine, if its worker names that, or the worker."""
    return dict(worker.labels).get(HOST) or worker.name


def _member_template(spec: Spec) -> Spec:
    """What every member asks for; the payload is the gang's and is not repeated in each row."""
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


def _new_member(t: SchedulerState, cell: JobEntry, template: Spec, index: int) -> JobEntry:
    life, spec = cell.life, replace(template, group=GroupMember(cell.id, index, in_gang=True))
    fresh = Life(
        JobState.QUEUED,
        reason="ready",
        attempt=life.attempt - 1,
        fence=life.fence - 1,
        lives=life.fence,
        ready_at=life.ready_at,
    )
    member = t.add_job(member_id(cell.id, index), spec, fresh)
    t.recently_finished.returned(member.id)
    t.put_job(member)
    t.changeset.submitted += life.fence == 1
    return member


def update_gang(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """Members have ended: the others are to stop, or the gang has ended as a whole."""
    mine = t.groups.entries[cell.id]
    t.groups.changed[cell.id] = None
    if mine.cause and mine.live:
        stop_others(t, cell, now)
    if not mine.live:
        _decide(t, cell, mine, now)


def stop_others(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """Whatever of the gang still runs is told to stop."""
    for job_id in list(t.groups.entries[cell.id].live):
        member = t.jobs[job_id]
        if member.life.state is JobState.RUNNING:
            assert member.life.execution_id is not None
            execution = t.executions[member.life.execution_id]
            state = move_job(member.id, member.life.state, JobVerb.CANCEL)
            t.set_life(member, replace(member.life, state=state, reason="gang"))
            request_stop(t, execution, Stop.CANCEL, now)
            if not execution.delivered:
                lose_execution(t, execution, now, "its gang stopped before its worker collected it")


def stop_gangs_of(t: SchedulerState, victims: Sequence[ExecutionEntry], now: Instant) -> None:
    """Executions are to make room: what runs with them in a gang stops at the same time."""
    for victim in victims:
        job = t.jobs[victim.execution.job_id]
        if job.spec.group is None or not is_in_gang(job):
            continue
        for job_id in t.groups.of(job).live:
            execution_id = t.jobs[job_id].life.execution_id
            assert execution_id is not None
            if t.executions[execution_id].execution.stop is None:
                request_stop(t, t.executions[execution_id], Stop.PREEMPT, now)


def _decide(t: SchedulerState, cell: JobEntry, mine: GroupEntry, now: Instant) -> None:
    """All members have stopped."""
    life = replace(cell.life, progress=None)
    if mine.succeeded == mine.size:
        finish_job(t, cell, JobVerb.SUCCEED, replace(life, reason="", error=None), now)
    elif cell.life.state is JobState.CANCELLING or mine.cause == GANG_CANCELLED:
        finish_job(t, cell, JobVerb.STOP, replace(life, reason="cancelled"), now)
    elif mine.cause == GANG_RETRY:
        _retry(t, cell, mine, now)
    elif mine.cause == GANG_FAILED:
        finish_job(t, cell, JobVerb.FAIL, replace(life, reason="gang"), now)
    else:
        _decide_loss(t, cell, mine, now)


def _decide_loss(t: SchedulerState, cell: JobEntry, mine: GroupEntry, now: Instant) -> None:
    """A member was lost or preempted: the gang goes back in line, unless that is once too often."""
    losses = cell.life.losses + (mine.cause == GANG_LOST)
    life = replace(cell.life, losses=losses, reason=mine.cause, progress=None)
    if mine.cause == GANG_LOST and cell.spec.terms.semantics is Semantics.AT_MOST_ONCE:
        error = error_json("a worker was lost while it ran, and it may start at most once")
        finish_job(t, cell, JobVerb.FAIL, replace(life, error=error), now)
    elif mine.cause == GANG_LOST and losses >= LOSSES_MAX:
        error = error_json(f"workers of it were lost {losses} times: it may be what kills them")
        finish_job(t, cell, JobVerb.FAIL, replace(life, error=error), now)
    else:
        assert mine.cause in (GANG_LOST, GANG_UNDELIVERED, GANG_PREEMPTED), (
            f"it stopped because of {mine.cause!r}"
        )
        reason = GANG_PREEMPTED if mine.cause == GANG_PREEMPTED else GANG_LOST
        state = move_job(cell.id, life.state, JobVerb.REQUEUE)
        again = replace(life, state=state, reason=reason, attempt=life.attempt - 1, ready_at=now)
        _wait_again(t, cell, again, now)


def _retry(t: SchedulerState, cell: JobEntry, mine: GroupEntry, now: Instant) -> None:
    life = cell.life
    wait = mine.delay_ms
    if wait < 0:
        wait = retry_delay_ms(cell.spec.terms.retry, cell.id, life.attempt)
    state = move_job(cell.id, life.state, JobVerb.TRY_AGAIN)
    again = replace(life, state=state, reason="retry", due_at=now + wait, progress=None)
    _wait_again(t, cell, again, now)


def _wait_again(t: SchedulerState, cell: JobEntry, life: Life, now: Instant) -> None:
    t.set_life(cell, replace(life, group_progress=None))
    mine = t.groups.entries[cell.id]
    mine.reset()
    t.groups.add_waiting(cell, mine.size)
    requeue_or_expire(t, cell, now)
