"""How an execution ends; every way out is here."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.errors import Conflict, NotFound, StaleFence
from rota.core.inputs import Completion
from rota.core.life.ending import error_json, expire_job, finish_job
from rota.core.life.gang_ends import (
    GANG_FAILED,
    GANG_LOST,
    GANG_PREEMPTED,
    GANG_RETRY,
    GANG_UNDELIVERED,
    finish_gang_member,
    group_id_of,
    is_in_gang,
)
from rota.core.life.learning import learn_runtimes, raise_memory_request
from rota.core.life.prefetched import began_at, end_execution
from rota.core.life.retry import EXIT_RETRY_NOW, failure_reason, may_retry, retry_delay_ms
from rota.core.life.waiting import dequeue, enter_wait_state
from rota.core.lifecycle import ExecutionVerb, JobVerb, move_execution, move_job
from rota.core.limits import LOSSES_MAX, STOP_WINDOW_MS
from rota.core.memory.cells import ExecutionEntry, JobEntry
from rota.core.model import (
    Execution,
    ExecutionState,
    Instant,
    JobState,
    Life,
    Millis,
    Semantics,
    Stop,
)
from rota.core.tables import SchedulerState

# A member of an enumeration costs several look-ups each time it is named: these are named for every
# job that starts or ends.
_CLAIMED, _SUCCEEDED = ExecutionState.CLAIMED, ExecutionState.SUCCEEDED
_CLAIM, _SUCCEED = JobVerb.CLAIM, JobVerb.SUCCEED
_VERB_OF = {
    ExecutionState.SUCCEEDED: ExecutionVerb.SUCCEED,
    ExecutionState.FAILED: ExecutionVerb.FAIL,
    ExecutionState.TIMED_OUT: ExecutionVerb.TIME_OUT,
    ExecutionState.CANCELLED: ExecutionVerb.CANCEL,
    ExecutionState.PREEMPTED: ExecutionVerb.PREEMPT,
}
_STOPPED = {
    Stop.CANCEL: ExecutionVerb.CANCEL,
    Stop.TIMEOUT: ExecutionVerb.TIME_OUT,
    Stop.PREEMPT: ExecutionVerb.PREEMPT,
}
"""How an execution ended that was stopped as told."""
RETURNED = "its worker gave it back before it began"


def complete_execution(t: SchedulerState, done: Completion, now: Instant) -> Execution:
    """The worker says how it ended. A repeat changes nothing; a stale one is refused."""
    cell = t.executions.get(done.execution_id)
    if cell is None:
        return _repeated(t, done)
    if cell.execution.fence != done.fence:
        raise StaleFence(
            f"execution {done.execution_id} has fence {cell.execution.fence}, not {done.fence}"
        )
    verb, before = _VERB_OF[done.state], cell.execution
    if before.stop is not None and verb is ExecutionVerb.CANCEL:
        verb = _STOPPED[before.stop]  # all its worker knows is that it was told to stop
    is_returned = done.state is ExecutionState.PREEMPTED
    if is_returned and before.state is not _CLAIMED:
        raise Conflict(f"execution {done.execution_id} has begun: it cannot be given back")
    execution = ended_as_reported(
        cell, done, move_execution(done.execution_id, before.state, verb), now
    )
    if is_returned:
        execution = replace(execution, started_at=None, reason=RETURNED)
    job = end_execution(t, cell, execution, now)
    t.recently_finished.remember_execution(execution, done.state, now)
    learn_runtimes(t, job.spec.terms, [(execution, done)], now)
    _decide_job(t, job, execution, done, now)
    return execution


def ended_as_reported(
    cell: ExecutionEntry, done: Completion, state: ExecutionState, now: Instant
) -> Execution:
    """The execution as it has ended, by what its worker says."""
    return replace(
        cell.execution,
        state=state,
        started_at=began_at(cell),
        ended_at=now,
        result=done.result,
        error=done.error,
        exit_code=done.exit_code,
        usage=done.usage,
        reason="",
    )


def _repeated(t: SchedulerState, done: Completion) -> Execution:
    ended = t.recently_finished.ended(done.execution_id)
    if ended is None:
        raise NotFound("live execution", done.execution_id)
    reported, execution = ended
    if execution.fence != done.fence or reported is not done.state:
        raise StaleFence(f"execution {done.execution_id} has already ended: {reported}")
    return execution


def _decide_job(
    t: SchedulerState, job: JobEntry, execution: Execution, done: Completion | None, now: Instant
) -> None:
    """What the end of its execution means for the job; `done` is what its worker said of it."""
    retryable = done is None or done.retryable
    if job.spec.group is not None and is_in_gang(job):
        _decide_in_gang(t, job, execution, done, now)
        return
    if execution.state is _SUCCEEDED:
        finish_job(t, job, _SUCCEED, _succeeded_life(job.life, execution), now)
        return
    started_at = started_at_of(job.life, execution)
    ended = replace(job.life, started_at=started_at, result=execution.result, error=execution.error)
    if execution.state is ExecutionState.CANCELLED or job.life.state is JobState.CANCELLING:
        finish_job(t, job, JobVerb.STOP, replace(ended, reason="cancelled"), now)
    elif execution.state is ExecutionState.PREEMPTED:
        word = "preempted" if execution.stop is not None else "returned"
        _requeue(t, job, job.life.losses, word, now)
    elif _has_another_attempt(job, execution, retryable=retryable):
        raise_memory_request(t, job, done)
        _retry(t, job, ended, _delay_before_retry_ms(job, execution, done), now)
    else:
        life = replace(ended, reason=failure_reason(execution, done))
        finish_job(t, job, JobVerb.FAIL, life, now)


def _succeeded_life(life: Life, execution: Execution) -> Life:
    """The life of a job whose execution went well, but for its state."""
    progress = None if life.progress is None else 1.0
    result, error = execution.result, execution.error
    started_at = started_at_of(life, execution)
    return replace(
        life, started_at=started_at, result=result, error=error, reason="", progress=progress
    )


def started_at_of(life: Life, execution: Execution) -> Instant | None:
    """A prefetched one began later than it was given."""
    return life.started_at if execution.behind is None else execution.started_at or life.started_at


def _decide_in_gang(
    t: SchedulerState, job: JobEntry, execution: Execution, done: Completion | None, now: Instant
) -> None:
    """What the end of a member's execution means for its gang, which is tried again as a whole."""
    gang = t.jobs[group_id_of(job)]
    if execution.state is ExecutionState.PREEMPTED:
        finish_gang_member(t, job, execution, (GANG_PREEMPTED, -1, "preempted"), now)
    elif _has_another_attempt(job, execution, retryable=done is None or done.retryable):
        raise_memory_request(t, gang, done)
        delay = _delay_before_retry_ms(gang, execution, done)
        finish_gang_member(t, job, execution, (GANG_RETRY, delay, "retry"), now)
    else:
        reason = failure_reason(execution, done)
        finish_gang_member(t, job, execution, (GANG_FAILED, -1, reason), now)


def _has_another_attempt(job: JobEntry, execution: Execution, *, retryable: bool) -> bool:
    """A job that may start at most once has started: its retry policy gives it no second start."""
    terms = job.spec.terms
    if terms.semantics is Semantics.AT_MOST_ONCE:
        return False
    code = execution.exit_code
    return may_retry(terms.retry, execution.attempt, retryable=retryable, exit_code=code)


def _delay_before_retry_ms(job: JobEntry, execution: Execution, done: Completion | None) -> Millis:
    """What the job itself asks for comes before its policy."""
    if execution.exit_code == EXIT_RETRY_NOW:
        return 0
    if done is not None and done.delay_ms is not None:
        return done.delay_ms
    return retry_delay_ms(job.spec.terms.retry, job.id, execution.attempt)


def _retry(t: SchedulerState, job: JobEntry, ended: Life, delay: Millis, now: Instant) -> None:
    state = move_job(job.id, job.life.state, JobVerb.TRY_AGAIN)
    t.set_life(job, replace(ended, state=state, reason="retry", due_at=now + delay, progress=None))
    requeue_or_expire(t, job, now)


def lose_execution(t: SchedulerState, cell: ExecutionEntry, now: Instant, why: str) -> None:
    """The execution's lease is over and its worker has not said how it ended."""
    before = cell.execution
    job = t.jobs[before.job_id]
    verb = ExecutionVerb.LOSE if before.stop is None else _STOPPED[before.stop]
    state = move_execution(before.id, before.state, verb)
    execution = replace(before, state=state, ended_at=now, error=error_json(why), reason=why)
    end_execution(t, cell, execution, now)
    if state is not ExecutionState.LOST:
        _decide_job(t, job, execution, None, now)
    elif job.spec.group is not None and is_in_gang(job):
        cause = GANG_LOST if cell.delivered else GANG_UNDELIVERED
        finish_gang_member(t, job, execution, (cause, -1, "lost"), now)
    elif not cell.delivered:
        _requeue(t, job, job.life.losses, "lost", now)
    else:
        _count_loss(t, job, execution, now)


def _count_loss(t: SchedulerState, job: JobEntry, execution: Execution, now: Instant) -> None:
    losses = job.life.losses + 1
    life = replace(job.life, losses=losses, reason="lost", error=execution.error)
    if job.spec.terms.semantics is Semantics.AT_MOST_ONCE:
        error = error_json("its worker was lost while it ran, and it may start at most once")
        finish_job(t, job, JobVerb.FAIL, replace(life, error=error), now)
    elif losses >= LOSSES_MAX:
        error = error_json(f"its worker was lost {losses} times: it may be what kills them")
        finish_job(t, job, JobVerb.FAIL, replace(life, error=error), now)
    else:
        _requeue(t, job, losses, "lost", now)


def _requeue(t: SchedulerState, job: JobEntry, losses: int, reason: str, now: Instant) -> None:
    """It runs again, and the try does not count."""
    life = replace(
        job.life,
        state=move_job(job.id, job.life.state, JobVerb.REQUEUE),
        reason=reason,
        attempt=job.life.attempt - 1,
        losses=losses,
        ready_at=now,
        progress=None,
    )
    t.set_life(job, life)
    requeue_or_expire(t, job, now)


def requeue_or_expire(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """The job gives its slot up and goes where it has to wait, unless its time is over by now."""
    dequeue(t, job, now)
    if job.spec.expires_at is not None and job.spec.expires_at <= now:
        expire_job(t, job, now)
    else:
        enter_wait_state(t, job, now)


def request_stop(t: SchedulerState, cell: ExecutionEntry, kind: Stop, now: Instant) -> None:
    """The worker is told with every answer until it says that it has."""
    if cell.execution.stop is None:
        t.put_execution(cell, replace(cell.execution, stop=kind, stop_at=now))
        cell.stop_until = now + STOP_WINDOW_MS
    cell.stop_delivered = False
    worker = t.fleet.workers[cell.execution.worker_id]
    worker.stops[cell.execution.id] = None
    if worker.poll is not None:
        t.answer_now[worker.worker.id] = None
