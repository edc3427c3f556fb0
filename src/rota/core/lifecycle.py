"""State machines of jobs and executions, as tables; docs/job-lifecycle.md is generated from them.

A transition that is not in a table is refused (`IllegalTransition`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rota.core.errors import IllegalTransition
from rota.core.model import ExecutionId, ExecutionState, JobId, JobState


class JobVerb(StrEnum):
    """Event that moves a job to another state."""

    RELEASE = "release"
    HOLD = "hold"
    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"
    TRY_AGAIN = "try again"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    STOP = "stop"
    SKIP = "skip"
    REJECT = "reject"
    EXPIRE = "expire"
    REVIVE = "retry"
    UPDATE = "update"


class ExecutionVerb(StrEnum):
    """Event that moves an execution to another state."""

    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    TIME_OUT = "time out"
    CANCEL = "cancel"
    LOSE = "lose"
    PREEMPT = "preempt"


_J, _V = JobState, JobVerb

JOB_TRANSITIONS: Mapping[tuple[JobState, JobVerb], JobState] = {
    (_J.PENDING, _V.RELEASE): _J.QUEUED,
    (_J.QUEUED, _V.HOLD): _J.PENDING,
    (_J.PENDING, _V.CLAIM): _J.RUNNING,
    (_J.QUEUED, _V.CLAIM): _J.RUNNING,
    (_J.PENDING, _V.UPDATE): _J.PENDING,
    (_J.QUEUED, _V.UPDATE): _J.QUEUED,
    (_J.PENDING, _V.CANCEL): _J.CANCELLED,
    (_J.QUEUED, _V.CANCEL): _J.CANCELLED,
    (_J.RUNNING, _V.CANCEL): _J.CANCELLING,
    (_J.CANCELLING, _V.CANCEL): _J.CANCELLING,
    (_J.PENDING, _V.SKIP): _J.SKIPPED,
    (_J.PENDING, _V.REJECT): _J.FAILED,
    (_J.PENDING, _V.EXPIRE): _J.EXPIRED,
    (_J.QUEUED, _V.EXPIRE): _J.EXPIRED,
    (_J.RUNNING, _V.SUCCEED): _J.SUCCEEDED,
    (_J.RUNNING, _V.FAIL): _J.FAILED,
    (_J.RUNNING, _V.TRY_AGAIN): _J.PENDING,
    (_J.RUNNING, _V.REQUEUE): _J.QUEUED,
    (_J.RUNNING, _V.STOP): _J.CANCELLED,
    # The work was done before the cancel reached the worker: the record says what is true.
    (_J.CANCELLING, _V.SUCCEED): _J.SUCCEEDED,
    (_J.CANCELLING, _V.STOP): _J.CANCELLED,
    (_J.FAILED, _V.REVIVE): _J.PENDING,
    (_J.CANCELLED, _V.REVIVE): _J.PENDING,
    (_J.SKIPPED, _V.REVIVE): _J.PENDING,
    (_J.EXPIRED, _V.REVIVE): _J.PENDING,
}

_X, _Y = ExecutionState, ExecutionVerb

EXECUTION_TRANSITIONS: Mapping[tuple[ExecutionState, ExecutionVerb], ExecutionState] = {
    (_X.CLAIMED, _Y.START): _X.RUNNING,
    # A short job's first report is often its last one.
    (_X.CLAIMED, _Y.SUCCEED): _X.SUCCEEDED,
    (_X.CLAIMED, _Y.FAIL): _X.FAILED,
    (_X.CLAIMED, _Y.TIME_OUT): _X.TIMED_OUT,
    (_X.CLAIMED, _Y.CANCEL): _X.CANCELLED,
    (_X.CLAIMED, _Y.LOSE): _X.LOST,
    (_X.CLAIMED, _Y.PREEMPT): _X.PREEMPTED,
    (_X.RUNNING, _Y.SUCCEED): _X.SUCCEEDED,
    (_X.RUNNING, _Y.FAIL): _X.FAILED,
    (_X.RUNNING, _Y.TIME_OUT): _X.TIMED_OUT,
    (_X.RUNNING, _Y.CANCEL): _X.CANCELLED,
    (_X.RUNNING, _Y.LOSE): _X.LOST,
    (_X.RUNNING, _Y.PREEMPT): _X.PREEMPTED,
}

JOB_FINAL: tuple[JobState, ...] = (
    _J.SUCCEEDED,
    _J.FAILED,
    _J.CANCELLED,
    _J.SKIPPED,
    _J.EXPIRED,
)
JOB_WAITING: tuple[JobState, ...] = (_J.PENDING, _J.QUEUED)
EXECUTION_FINAL: tuple[ExecutionState, ...] = (
    _X.SUCCEEDED,
    _X.FAILED,
    _X.TIMED_OUT,
    _X.CANCELLED,
    _X.LOST,
    _X.PREEMPTED,
)

JOB_STATE_MEANING: Mapping[JobState, str] = {
    _J.PENDING: "It waits for its time, its dependencies or the backoff before a retry;"
    " kept in the timers or under the jobs it waits for.",
    _J.QUEUED: "It is ready and waits for a worker;"
    " kept in the queue of its class, or of its concurrency key.",
    _J.RUNNING: "An execution of it holds a lease; kept under its worker.",
    _J.CANCELLING: "Its worker was told to stop it and has not reported its end yet.",
    _J.SUCCEEDED: "It succeeded.",
    _J.FAILED: "Its attempts are used up, or its error is not retryable: a dead letter.",
    _J.CANCELLED: "Somebody cancelled it.",
    _J.SKIPPED: "An upstream job ended in a way that its dependency does not accept.",
    _J.EXPIRED: "It had not started by its `expires_at`.",
}
JOB_VERB_MEANING: Mapping[JobVerb, str] = {
    _V.RELEASE: "it waits for nothing but a worker any more",
    _V.HOLD: "an update gave it something else to wait for",
    _V.CLAIM: "a worker was chosen, and an execution created",
    _V.SUCCEED: "its execution succeeded",
    _V.FAIL: "its execution failed, and it is not retried",
    _V.TRY_AGAIN: "its execution failed, and it is retried after a backoff",
    _V.REQUEUE: "its worker was lost, preempted it or gave it back, and it may run again",
    _V.CANCEL: "somebody cancelled it",
    _V.STOP: "its worker stopped it",
    _V.SKIP: "an upstream job ended in a way that its dependency does not accept",
    _V.REJECT: "its id was given out before it could be checked, and it is invalid",
    _V.EXPIRE: "its `expires_at` came while it waited",
    _V.REVIVE: "somebody retries it, or the upstream job because of which it was skipped",
    _V.UPDATE: "its spec was changed",
}
EXECUTION_STATE_MEANING: Mapping[ExecutionState, str] = {
    _X.CLAIMED: "It was assigned to a worker that has not reported it yet, or prefetched there.",
    _X.RUNNING: "Its worker has reported it.",
    _X.SUCCEEDED: "It succeeded.",
    _X.FAILED: "It failed.",
    _X.TIMED_OUT: "It was stopped because it ran longer than its timeout.",
    _X.CANCELLED: "It was stopped because its job was cancelled.",
    _X.LOST: "Its lease ran out; later reports of it are refused.",
    _X.PREEMPTED: "It was stopped in favour of a more urgent job, or given back before it began.",
}
EXECUTION_VERB_MEANING: Mapping[ExecutionVerb, str] = {
    _Y.START: "the worker's first report of it",
    _Y.SUCCEED: "the worker reports it",
    _Y.FAIL: "the worker reports it",
    _Y.TIME_OUT: "the worker reports it, or its lease ended after the order to stop",
    _Y.CANCEL: "the worker reports it, or its lease ended after the order to stop",
    _Y.LOSE: "its lease ran out without a report",
    _Y.PREEMPT: "the worker has stopped it as ordered, or gives it back before it began",
}


def move_job(job_id: JobId, state: JobState, verb: JobVerb) -> JobState:
    """State after `verb`; raises `IllegalTransition` if there is none."""
    after = JOB_TRANSITIONS.get((state, verb))
    if after is None:
        raise IllegalTransition("job", job_id, state, verb)
    return after


def move_execution(
    execution_id: ExecutionId, state: ExecutionState, verb: ExecutionVerb
) -> ExecutionState:
    """State after `verb`; raises `IllegalTransition` if there is none."""
    after = EXECUTION_TRANSITIONS.get((state, verb))
    if after is None:
        raise IllegalTransition("execution", execution_id, state, verb)
    return after
