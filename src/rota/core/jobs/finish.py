"""Finishes executions and jobs: reported, lost, stopped, preempted, expired; then retried or not.

Finishing a job releases or skips its downstream jobs in the same turn. The execution that was
prefetched behind an ended one takes its place. Ended executions update the estimates of runtime and
usage; a job that ran out of memory may request more. The end of a gang's member is only noted for
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
    return msgspec.json.encode({"message": message})


def finish_job(t: SchedulerState, job: JobEntry, verb: JobVerb, life: Life, now: Instant) -> None:
    """Ends the job by `verb` with `life`: releases what it held, and releases or skips its
    downstream jobs.

    Iterative, because skipping may follow a chain of any length.
    """
    dequeue(t, job, now)
    t.finish(job, verb, life, now)
    ended = [job]
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
    error = upstream_error(upstream.id, upstream.life.state)
    life = replace(child.life, reason="upstream", error=error)
    t.finish(child, JobVerb.SKIP, life, now)


def upstream_error(upstream: JobId, state: JobState) -> bytes:
    """Error of a job that is skipped because an upstream job ended in this state."""
    was = "" if state in (JobState.SUCCEEDED, JobState.FAILED) else "was "
    return error_json(f"job {upstream}, which it depends on, {was}{state.value}")


def expire_job(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    life = replace(
        job.life, reason="expires_at", error=error_json("it had not started by expires_at")
    )
    finish_job(t, job, JobVerb.EXPIRE, life, now)


GANG_RETRY = "retry"
"""A member failed, and the gang has another attempt."""
GANG_FAILED = "failed"
"""A member failed, and the gang has no further attempt."""
GANG_LOST = "lost"
GANG_UNDELIVERED = "undelivered"
"""A member's worker never collected it, so the attempt does not count."""
GANG_PREEMPTED = "preempted"
GANG_CANCELLED = "cancelled"
"""A member was stopped by its worker although nothing had asked for it."""


def is_in_gang(job: JobEntry) -> bool:
    """Whether the job is a member of a gang, so that the gang decides what its end means."""
    group = job.spec.group
    return isinstance(group, GroupMember) and group.in_gang


def group_id_of(job: JobEntry) -> JobId:
    """Id of the array or gang that a member belongs to."""
    assert isinstance(job.spec.group, GroupMember)
    return JobId(job.spec.group.parent)


def finish_gang_member(
    t: SchedulerState,
    job: JobEntry,
    execution: Execution,
    outcome: tuple[str, Millis, str],
    now: Instant,
) -> None:
    """Ends the member; its gang is updated in this turn.

    `outcome` is (cause for the gang, delay before another attempt in ms, reason of the member); a
    delay of -1 means that of the retry policy.
    """
    cause, delay, reason = outcome
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
    """Copies the result of the first member to the gang."""
    assert isinstance(job.spec.group, GroupMember)
    if job.spec.group.index == 0 and execution.result is not None:
        gang = t.jobs[group_id_of(job)]
        t.set_life(gang, replace(gang.life, result=execution.result))


def _note_gang_cause(t: SchedulerState, job: JobEntry, cause: str, delay: Millis) -> None:
    """Notes why the gang stops: the first member that does not succeed decides."""
    member, group = job.spec.group, t.groups.of(job)
    assert isinstance(member, GroupMember)
    if group.cause:
        return
    group.cause, group.delay_ms = cause, delay
    gang = t.jobs[group_id_of(job)]
    error = error_json(
        f"member {member.index} of {group.size} {_GANG_CAUSE_TEXTS[cause]}: see job {job.id}"
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
    t: SchedulerState, entry: ExecutionEntry, execution: Execution, now: Instant
) -> JobEntry:
    """Ends the execution as given; the one prefetched behind it moves up. Returns its job."""
    worker = t.fleet.workers[execution.worker_id]
    was_prefetched = worker.is_prefetched(entry.execution)
    follower = worker.prefetched.pop(execution.id, None)
    if was_prefetched and entry.execution.behind is not None:
        del worker.prefetched[entry.execution.behind]
    job = t.end_execution(entry, execution, now)
    if follower is None:
        return job
    prefetched_id, amount = follower
    behind = t.executions[prefetched_id]
    if was_prefetched and entry.execution.behind is not None:
        worker.prefetched[entry.execution.behind] = follower
        t.put_execution(behind, replace(behind.execution, behind=entry.execution.behind))
    else:
        worker.take_over(prefetched_id, amount)
        t.fleet.offer(worker)
        behind.since = now
    return job


def began_at(entry: ExecutionEntry) -> Instant:
    """Start of the execution as far as the scheduler knows."""
    execution = entry.execution
    if execution.started_at is not None:
        return execution.started_at
    return execution.claimed_at if execution.behind is None else entry.since


_MIB = 1 << 20
_EXECUTION_SUCCEEDED = ExecutionState.SUCCEEDED


def learn_runtimes(
    t: SchedulerState, terms: Terms, ended: Sequence[tuple[Execution, Completion]], now: Instant
) -> None:
    """Updates estimates of runtime and usage by ended executions with these terms."""
    runtimes: list[Millis] = []
    has_changed = False
    for execution, completion in ended:
        runtime = _runtime_of(execution, now)
        if execution.state is _EXECUTION_SUCCEEDED:
            runtimes.append(runtime)
        if completion.used is not None:
            has_changed |= t.runtime_estimates.usages.learn(terms, completion.used, runtime, now)
    if runtimes:
        has_changed |= t.runtime_estimates.learn(terms, runtimes)
    if has_changed:
        _write_runtime(t, terms)


def learn_one_runtime(
    t: SchedulerState, terms_entry: TermsEntry, execution: Execution, now: Instant
) -> None:
    """Like `learn_runtimes`, for one success without measured usage or a stated runtime."""
    runtime = (
        now - execution.claimed_at if execution.behind is None else _runtime_of(execution, now)
    )
    if t.runtime_estimates.learn_one(terms_entry.name, runtime):
        _write_runtime(t, terms_entry.terms)


def _runtime_of(execution: Execution, now: Instant) -> Millis:
    """A prefetched execution waited on its worker first; that time is not part of the runtime."""
    began_at = execution.claimed_at if execution.behind is None else execution.started_at
    return now - (execution.claimed_at if began_at is None else began_at)


def _write_runtime(t: SchedulerState, terms: Terms) -> None:
    key = (terms.tenant, terms.name)
    t.changeset.runtimes[key] = RuntimeStats(
        *key, t.runtime_estimates.recent(key), t.runtime_estimates.usages.record(key)
    )


def restore_runtime(t: SchedulerState, known: RuntimeStats, now: Instant) -> None:
    """Restores what was learned before a restart."""
    if known.recent:
        t.runtime_estimates.restore(known)
    if known.usage is not None:
        t.runtime_estimates.usages.restore((known.tenant, known.name), known.usage, now)


def raise_memory_request(t: SchedulerState, job: JobEntry, completion: Completion | None) -> None:
    """Raises the memory request of a job that ran out of memory, where its retry policy says so."""
    terms = job.spec.terms
    if completion is None or completion.used is None or not completion.used.out_of_memory:
        return
    if terms.retry.memory_factor <= 1:
        return
    memory = _more_memory(t, terms, completion.used.memory_peak or 0)
    if memory > terms.needs.resources.memory:
        resources = replace(terms.needs.resources, memory=memory)
        terms = replace(terms, needs=replace(terms.needs, resources=resources))
        t.set_spec(job, replace(job.spec, terms=terms, revision=job.spec.revision + 1))


def _more_memory(t: SchedulerState, terms: Terms, peak: int) -> int:
    """The request or the peak times `memory_factor`, at most `memory_max` and the largest worker.

    A job that requests more than any worker has would never run again.
    """
    asked = terms.needs.resources.memory
    wanted = -(-round((asked or peak) * terms.retry.memory_factor) // _MIB) * _MIB
    if terms.retry.memory_max is not None:
        wanted = min(wanted, terms.retry.memory_max)
    if not asked:
        return wanted
    return min(wanted, _largest_for(t, terms) or wanted)


def _largest_for(t: SchedulerState, terms: Terms) -> int:
    """Most memory of a worker that meets all other requirements; 0: there is none."""
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


# Attributes of an enumeration cost several lookups each time; these are used for every job that
# starts or ends.
_CLAIMED, _SUCCEEDED = ExecutionState.CLAIMED, ExecutionState.SUCCEEDED
_CLAIM, _SUCCEED = JobVerb.CLAIM, JobVerb.SUCCEED
_VERB_OF_REPORT = {
    ExecutionState.SUCCEEDED: ExecutionVerb.SUCCEED,
    ExecutionState.FAILED: ExecutionVerb.FAIL,
    ExecutionState.TIMED_OUT: ExecutionVerb.TIME_OUT,
    ExecutionState.CANCELLED: ExecutionVerb.CANCEL,
    ExecutionState.PREEMPTED: ExecutionVerb.PREEMPT,
}
_VERB_OF_STOP = {
    Stop.CANCEL: ExecutionVerb.CANCEL,
    Stop.TIMEOUT: ExecutionVerb.TIME_OUT,
    Stop.PREEMPT: ExecutionVerb.PREEMPT,
}
"""How an execution ended that was stopped on request."""
_STOPPED_UNDELIVERED = {
    "cancelled": "cancelled before its worker collected it",
    "gang": "its gang stopped before its worker collected it",
}
RETURNED = "its worker returned it before it began"


def complete_execution(t: SchedulerState, completion: Completion, now: Instant) -> Execution:
    """Ends an execution as its worker reports; refuses stale reports, accepts repeats."""
    entry = t.executions.get(completion.execution_id)
    if entry is None:
        return _repeated(t, completion)
    if entry.execution.fence != completion.fence:
        raise StaleFence(
            f"execution {completion.execution_id} has fence {entry.execution.fence},"
            f" not {completion.fence}"
        )
    verb, before = _VERB_OF_REPORT[completion.state], entry.execution
    if before.stop is not None and verb is ExecutionVerb.CANCEL:
        verb = _VERB_OF_STOP[before.stop]  # the worker knows only that it was asked to stop
    is_returned = completion.state is ExecutionState.PREEMPTED
    if is_returned and before.state is not _CLAIMED:
        raise Conflict(f"execution {completion.execution_id} has begun: it cannot be returned")
    execution = ended_as_reported(
        entry, completion, move_execution(completion.execution_id, before.state, verb), now
    )
    if is_returned:
        execution = replace(execution, started_at=None, reason=RETURNED)
    job = end_execution(t, entry, execution, now)
    t.recently_finished.remember_execution(execution, completion.state, now)
    learn_runtimes(t, job.spec.terms, [(execution, completion)], now)
    _decide_job(t, job, execution, completion, now)
    return execution


def ended_as_reported(
    entry: ExecutionEntry, completion: Completion, state: ExecutionState, now: Instant
) -> Execution:
    return replace(
        entry.execution,
        state=state,
        started_at=began_at(entry),
        ended_at=now,
        result=completion.result,
        error=completion.error,
        exit_code=completion.exit_code,
        usage=completion.usage,
        reason="",
    )


def _repeated(t: SchedulerState, completion: Completion) -> Execution:
    ended = t.recently_finished.ended(completion.execution_id)
    if ended is None:
        raise NotFound("live execution", completion.execution_id)
    reported, execution = ended
    if execution.fence != completion.fence or reported is not completion.state:
        raise StaleFence(f"execution {completion.execution_id} has already ended: {reported}")
    return execution


def _decide_job(
    t: SchedulerState,
    job: JobEntry,
    execution: Execution,
    completion: Completion | None,
    now: Instant,
) -> None:
    """Finishes, requeues or retries the job; `done` is the worker's report, if it sent one."""
    retryable = completion is None or completion.retryable
    if job.spec.group is not None and is_in_gang(job):
        _decide_in_gang(t, job, execution, completion, now)
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
        raise_memory_request(t, job, completion)
        _retry(t, job, ended, _delay_before_retry_ms(job, execution, completion), now)
    else:
        life = replace(ended, reason=failure_reason(execution, completion))
        finish_job(t, job, JobVerb.FAIL, life, now)


def _succeeded_life(life: Life, execution: Execution) -> Life:
    """Life of a job whose execution succeeded, all but the state."""
    progress = None if life.progress is None else 1.0
    result, error = execution.result, execution.error
    started_at = started_at_of(life, execution)
    return replace(
        life, started_at=started_at, result=result, error=error, reason="", progress=progress
    )


def started_at_of(life: Life, execution: Execution) -> Instant | None:
    """Start of the job: for a prefetched execution when it began, not when it was handed out."""
    return life.started_at if execution.behind is None else execution.started_at or life.started_at


def _decide_in_gang(
    t: SchedulerState,
    job: JobEntry,
    execution: Execution,
    completion: Completion | None,
    now: Instant,
) -> None:
    """Notes the end of a member's execution for its gang, which is retried as a whole."""
    gang = t.jobs[group_id_of(job)]
    if execution.state is ExecutionState.PREEMPTED:
        finish_gang_member(t, job, execution, (GANG_PREEMPTED, -1, "preempted"), now)
    elif _has_another_attempt(job, execution, retryable=completion is None or completion.retryable):
        raise_memory_request(t, gang, completion)
        delay = _delay_before_retry_ms(gang, execution, completion)
        finish_gang_member(t, job, execution, (GANG_RETRY, delay, "retry"), now)
    else:
        reason = failure_reason(execution, completion)
        finish_gang_member(t, job, execution, (GANG_FAILED, -1, reason), now)


def _has_another_attempt(job: JobEntry, execution: Execution, *, retryable: bool) -> bool:
    """An at-most-once job has no second start, whatever its retry policy says."""
    terms = job.spec.terms
    if terms.semantics is Semantics.AT_MOST_ONCE:
        return False
    code = execution.exit_code
    return may_retry(terms.retry, execution.attempt, retryable=retryable, exit_code=code)


def _delay_before_retry_ms(
    job: JobEntry, execution: Execution, completion: Completion | None
) -> Millis:
    """Delay before the next attempt: the job's own request comes before its retry policy."""
    if execution.exit_code == EXIT_RETRY_NOW:
        return 0
    if completion is not None and completion.delay_ms is not None:
        return completion.delay_ms
    return retry_delay_ms(job.spec.terms.retry, job.id, execution.attempt)


def _retry(t: SchedulerState, job: JobEntry, ended: Life, delay: Millis, now: Instant) -> None:
    state = move_job(job.id, job.life.state, JobVerb.TRY_AGAIN)
    t.set_life(job, replace(ended, state=state, reason="retry", due_at=now + delay, progress=None))
    requeue_or_expire(t, job, now)


def lose_execution(t: SchedulerState, entry: ExecutionEntry, now: Instant, why: str) -> None:
    """Ends an execution whose lease expired, or whose worker left, without a report."""
    before = entry.execution
    job = t.jobs[before.job_id]
    verb = ExecutionVerb.LOSE if before.stop is None else _VERB_OF_STOP[before.stop]
    state = move_execution(before.id, before.state, verb)
    execution = replace(before, state=state, ended_at=now, error=error_json(why), reason=why)
    end_execution(t, entry, execution, now)
    if state is not ExecutionState.LOST:
        _decide_job(t, job, execution, None, now)
    elif job.spec.group is not None and is_in_gang(job):
        cause = GANG_LOST if entry.delivered else GANG_UNDELIVERED
        finish_gang_member(t, job, execution, (cause, -1, "lost"), now)
    elif not entry.delivered:
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
        error = error_json(
            f"its worker was lost {losses} times: the job itself may be what ends them"
        )
        finish_job(t, job, JobVerb.FAIL, replace(life, error=error), now)
    else:
        _requeue(t, job, losses, "lost", now)


def _requeue(t: SchedulerState, job: JobEntry, losses: int, reason: str, now: Instant) -> None:
    """Puts the job back in its queue; the attempt does not count."""
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
    """Releases the job's slot and puts it where it has to wait; expires it if its time is over."""
    dequeue(t, job, now)
    if job.spec.expires_at is not None and job.spec.expires_at <= now:
        expire_job(t, job, now)
    else:
        enter_wait_state(t, job, now)


def stop_running(t: SchedulerState, job: JobEntry, reason: str, now: Instant) -> None:
    """Asks the worker to stop a running job; without a worker that has it, ends it at once."""
    assert job.life.execution_id is not None
    entry = t.executions[job.life.execution_id]
    state = move_job(job.id, job.life.state, JobVerb.CANCEL)
    t.set_life(job, replace(job.life, state=state, reason=reason))
    request_stop(t, entry, Stop.CANCEL, now)
    if not entry.delivered:
        lose_execution(t, entry, now, _STOPPED_UNDELIVERED[reason])


def request_stop(t: SchedulerState, entry: ExecutionEntry, kind: Stop, now: Instant) -> None:
    """Asks the worker to stop the execution; every answer repeats it until the worker confirms."""
    if entry.execution.stop is None:
        t.put_execution(entry, replace(entry.execution, stop=kind, stop_at=now))
        entry.stop_until = now + STOP_WINDOW_MS
    entry.stop_delivered = False
    worker = t.fleet.workers[entry.execution.worker_id]
    worker.stops[entry.execution.id] = None
    if worker.poll is not None:
        t.answer_now[worker.worker.id] = None
