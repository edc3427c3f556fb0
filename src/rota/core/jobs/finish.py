"""How executions and jobs finish: reported, lost, stopped, preempted, expired; then retried or not.

Finishing a job releases or skips the jobs that depend on it, in the same turn. The execution
prefetched behind an ended one takes its place. Ended executions update runtime estimates and usage;
a job that ran out of memory may ask for more. What the end of a gang's member means is noted for
the gang; `groups/gangs.py` decides on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rota.core.commands import Completion
from rota.core.dependency_graph import accepts
from rota.core.entries import ExecutionEntry, JobEntry
from rota.core.errors import Conflict, NotFound, StaleFence
from rota.core.jobs.retry_policy import EXIT_RETRY_NOW, failure_reason, may_retry, retry_delay_ms
from rota.core.jobs.wait_states import dequeue, enter_wait_state
from rota.core.lifecycle import ExecutionVerb, JobVerb, move_execution, move_job
from rota.core.limits import LOSSES_MAX, STOP_WINDOW_MS
from rota.core.model import (
    Execution,
    ExecutionState,
    GroupMember,
    Instant,
    JobId,
    JobState,
    Life,
    Millis,
    RuntimeStats,
    Semantics,
    Stop,
    Terms,
)
from rota.core.placement.feasibility import infeasible_reasons
from rota.core.ready_queue.ready_queue import TermsEntry
from rota.core.state import SchedulerState


def error_json(message: str) -> bytes:
    """An error of the scheduler's own, as JSON text."""
    return msgspec.json.encode({"message": message})


def finish_job(t: SchedulerState, cell: JobEntry, verb: JobVerb, life: Life, now: Instant) -> None:
    """The job ends by `verb` with `life`; what it held comes back, its dependents go on or not.

    Iterative, because skipping may run down a chain of any length.
    """
    dequeue(t, cell, now)
    t.finish(cell, verb, life, now)
    ended = [cell]
    while ended:
        upstream = ended.pop()
        for child_id, lives, when in t.dependencies.take(upstream.id):
            child = t.jobs.get(child_id)
            if child is None or child.life.lives != lives:
                continue
            if accepts(when, upstream.life.state):
                child.unmet -= 1
                t.affinity.note_upstream(child, upstream)
                if not child.unmet and child.life.state is JobState.PENDING:
                    enter_wait_state(t, child, now)
            else:
                _skip(t, child, upstream, now)
                ended.append(child)


def _skip(t: SchedulerState, child: JobEntry, upstream: JobEntry, now: Instant) -> None:
    error = error_json(
        f"job {upstream.id}, which it depends on, {describe_end(upstream.life.state)}"
    )
    life = replace(child.life, reason="upstream", error=error)
    t.finish(child, JobVerb.SKIP, life, now)


def describe_end(state: JobState) -> str:
    """How a job ended, as the end of a sentence."""
    return state.value if state in (JobState.SUCCEEDED, JobState.FAILED) else f"was {state.value}"


def expire_job(t: SchedulerState, cell: JobEntry, now: Instant) -> None:
    """The job waited past its `expires_at`."""
    life = replace(cell.life, reason="expires_at", error=error_json("it had not started in time"))
    finish_job(t, cell, JobVerb.EXPIRE, life, now)


GANG_RETRY = "retry"
"""A member failed, and the gang may be tried again."""
GANG_FAILED = "failed"
"""A member failed, and there is no further try."""
GANG_LOST = "lost"
"""A member's worker was lost."""
GANG_UNDELIVERED = "undelivered"
"""A member's worker never collected it, so it was not tried."""
GANG_PREEMPTED = "preempted"
"""A member had to make room."""
GANG_CANCELLED = "cancelled"
"""A member's worker stopped it without being told to."""


def is_in_gang(job: JobEntry) -> bool:
    """Whether its end is its gang's to decide on."""
    band = job.spec.group
    return isinstance(band, GroupMember) and band.in_gang


def group_id_of(job: JobEntry) -> JobId:
    """The band that a member is of."""
    assert isinstance(job.spec.group, GroupMember)
    return JobId(job.spec.group.parent)


def finish_gang_member(
    t: SchedulerState,
    job: JobEntry,
    execution: Execution,
    verdict: tuple[str, Millis, str],
    now: Instant,
) -> None:
    """The member ends for good, as far as it is concerned; the gang is looked after this turn.

    `verdict` is what its end means for the gang, how long that waits before another try (-1: as its
    policy says), and why in a word.
    """
    cause, delay, reason = verdict
    life = replace(job.life, result=execution.result, error=execution.error, reason=reason)
    if execution.state is ExecutionState.SUCCEEDED:
        _note_gang_result(t, job, execution)
        finish_job(t, job, JobVerb.SUCCEED, replace(life, reason=""), now)
    elif job.life.state is JobState.CANCELLING:
        finish_job(t, job, JobVerb.STOP, replace(life, reason=job.life.reason), now)
    elif execution.state is ExecutionState.CANCELLED:
        _note_gang_cause(t, job, GANG_CANCELLED, -1)
        finish_job(t, job, JobVerb.STOP, replace(life, reason="cancelled"), now)
    else:
        _note_gang_cause(t, job, cause, delay)
        verb = JobVerb.FAIL if cause in (GANG_RETRY, GANG_FAILED) else JobVerb.STOP
        finish_job(t, job, verb, life, now)


def _note_gang_result(t: SchedulerState, job: JobEntry, execution: Execution) -> None:
    """What the first member returns is what the gang returns."""
    assert isinstance(job.spec.group, GroupMember)
    if job.spec.group.index == 0 and execution.result is not None:
        gang = t.jobs[group_id_of(job)]
        t.set_life(gang, replace(gang.life, result=execution.result))


def _note_gang_cause(t: SchedulerState, job: JobEntry, cause: str, delay: Millis) -> None:
    """The first member that does not end well says what becomes of the gang."""
    band, mine = job.spec.group, t.groups.of(job)
    assert isinstance(band, GroupMember)
    if mine.cause:
        return
    mine.cause, mine.delay_ms = cause, delay
    gang = t.jobs[group_id_of(job)]
    error = error_json(
        f"member {band.index} of {mine.size} {_GANG_CAUSE_TEXTS[cause]}: see job {job.id}"
    )
    t.set_life(gang, replace(gang.life, reason="stopping", error=error))


_GANG_CAUSE_TEXTS = {
    GANG_RETRY: "failed",
    GANG_FAILED: "failed",
    GANG_LOST: "was lost with its worker",
    GANG_UNDELIVERED: "was not collected by its worker",
    GANG_PREEMPTED: "was preempted",
    GANG_CANCELLED: "was stopped",
}


def end_execution(
    t: SchedulerState, cell: ExecutionEntry, execution: Execution, now: Instant
) -> JobEntry:
    """The execution has ended, as given; who was behind it moves up. Answers with its job."""
    worker = t.fleet.workers[execution.worker_id]
    was_prefetched = worker.is_prefetched(cell.execution)
    follower = worker.prefetched.pop(execution.id, None)
    if was_prefetched and cell.execution.behind is not None:
        del worker.prefetched[cell.execution.behind]
    job = t.end_execution(cell, execution, now)
    if follower is None:
        return job
    prefetched_id, amount = follower
    behind = t.executions[prefetched_id]
    if was_prefetched and cell.execution.behind is not None:
        worker.prefetched[cell.execution.behind] = follower
        t.put_execution(behind, replace(behind.execution, behind=cell.execution.behind))
    else:
        worker.take_over(prefetched_id, amount)
        t.fleet.offer(worker)
        behind.since = now
    return job


def began_at(cell: ExecutionEntry) -> Instant:
    """When its worker began it, as far as is known here."""
    execution = cell.execution
    if execution.started_at is not None:
        return execution.started_at
    return execution.claimed_at if execution.behind is None else cell.since


_MIB = 1 << 20
_EXECUTION_SUCCEEDED = ExecutionState.SUCCEEDED


def learn_runtimes(
    t: SchedulerState, terms: Terms, ended: Sequence[tuple[Execution, Completion]], now: Instant
) -> None:
    """Executions of such jobs were reported to have ended, one after the other."""
    runs: list[Millis] = []
    is_news = False
    for execution, done in ended:
        ran = _runtime_of(execution, now)
        if execution.state is _EXECUTION_SUCCEEDED:
            runs.append(ran)
        if done.used is not None:
            is_news |= t.runtime_estimates.usages.learn(terms, done.used, ran, now)
    if runs:
        is_news |= t.runtime_estimates.learn(terms, runs)
    if is_news:
        _write_runtime(t, terms)


def learn_one_runtime(
    t: SchedulerState, kind: TermsEntry, execution: Execution, now: Instant
) -> None:
    """The same of one that went well, was not measured, and did not say how long it would run."""
    ran = now - execution.claimed_at if execution.behind is None else _runtime_of(execution, now)
    if t.runtime_estimates.learn_one(kind.name, ran):
        _write_runtime(t, kind.terms)


def _runtime_of(execution: Execution, now: Instant) -> Millis:
    """A prefetched one has waited on its worker, which teaches nothing."""
    began_at = execution.claimed_at if execution.behind is None else execution.started_at
    return now - (execution.claimed_at if began_at is None else began_at)


def _write_runtime(t: SchedulerState, terms: Terms) -> None:
    key = (terms.tenant, terms.name)
    t.changeset.runtimes[key] = RuntimeStats(
        *key, t.runtime_estimates.recent(key), t.runtime_estimates.usages.record(key)
    )


def restore_runtime(t: SchedulerState, known: RuntimeStats, now: Instant) -> None:
    """What was learned before a restart."""
    if known.recent:
        t.runtime_estimates.restore(known)
    if known.usage is not None:
        t.runtime_estimates.usages.restore((known.tenant, known.name), known.usage, now)


def raise_memory_request(t: SchedulerState, job: JobEntry, done: Completion | None) -> None:
    """A job that ran out of memory and is tried again asks for more, if it was told to."""
    terms = job.spec.terms
    if done is None or done.used is None or not done.used.out_of_memory:
        return
    if terms.retry.memory_factor <= 1:
        return
    memory = _more_memory(t, terms, done.used.memory_peak or 0)
    if memory > terms.needs.resources.memory:
        resources = replace(terms.needs.resources, memory=memory)
        terms = replace(terms, needs=replace(terms.needs, resources=resources))
        t.set_spec(job, replace(job.spec, terms=terms, revision=job.spec.revision + 1))


def _more_memory(t: SchedulerState, terms: Terms, peak: int) -> int:
    """So many times what it asked for, or took; no more than it may, nor than any worker has.

    Asking for more than there is anywhere would be the end of it.
    """
    asked = terms.needs.resources.memory
    wanted = -(-round((asked or peak) * terms.retry.memory_factor) // _MIB) * _MIB
    if terms.retry.memory_max is not None:
        wanted = min(wanted, terms.retry.memory_max)
    if not asked:
        return wanted
    return min(wanted, _largest_for(t, terms) or wanted)


def _largest_for(t: SchedulerState, terms: Terms) -> int:
    """The most memory of a worker that could run it otherwise; 0: there is none."""
    needs = terms.needs
    rest = replace(needs, resources=replace(needs.resources, memory=0))
    return max(
        (
            machine.capacity.memory
            for machine in t.fleet.machines.values()
            if machine.workers and not infeasible_reasons(terms.queue, rest, machine)
        ),
        default=0,
    )


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
