"""The state machines of jobs and executions, as tables; docs/job-lifecycle.md is drawn from them.

A move that is not in a table is a refusal (`IllegalTransition`), never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rota.core.errors import IllegalTransition
from rota.core.model import ExecutionId, ExecutionState, JobId, JobState


class JobVerb(StrEnum):
    """What can happen to a job."""

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
    """What can happen to an execution."""

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
    # The work was done before the cancel reached it: the record says what is true.
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
    # A short job's first and last message are often the same one.
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
    _J.PENDING: "It waits for its time, its dependencies or the delay before a retry;"
    " found in the timers or under the jobs it waits for.",
    _J.QUEUED: "It is ready and waits for a worker;"
    " found in the heap of its class, or in the line of its concurrency key.",
    _J.RUNNING: "An execution of it holds a lease; found under its worker.",
    _J.CANCELLING: "Its worker was told to stop it and has not yet said that it has.",
    _J.SUCCEEDED: "It ended well.",
    _J.FAILED: "Its tries are used up, or it asked for no more: the dead letters.",
    _J.CANCELLED: "Somebody called it off.",
    _J.SKIPPED: "A job it depends on ended in a way that it does not accept.",
    _J.EXPIRED: "It had not started when its `expires_at` came.",
}
JOB_VERB_MEANING: Mapping[JobVerb, str] = {
    _V.RELEASE: "nothing but a worker is missing any more",
    _V.HOLD: "an update gave it something to wait for",
    _V.CLAIM: "a worker was chosen, and an execution made",
    _V.SUCCEED: "its execution succeeded",
    _V.FAIL: "its execution failed, and there is no further try",
    _V.TRY_AGAIN: "its execution failed, and there is another try after a delay",
    _V.REQUEUE: "its worker was lost, preempted it or gave it back, and it may run again",
    _V.CANCEL: "somebody called it off",
    _V.STOP: "its worker stopped it",
    _V.SKIP: "an upstream job ended in a way that it does not accept",
    _V.REJECT: "it was promised before anybody could check it, and is not a job that can run",
    _V.EXPIRE: "its `expires_at` came while it waited",
    _V.REVIVE: "a person, or the retry of an upstream job, starts it over",
    _V.UPDATE: "what was asked for was changed",
}
EXECUTION_STATE_MEANING: Mapping[ExecutionState, str] = {
    _X.CLAIMED: "It was given to a worker that has not named it yet, or waits there for a place.",
    _X.RUNNING: "Its worker has named it.",
    _X.SUCCEEDED: "It ended well.",
    _X.FAILED: "It ended badly.",
    _X.TIMED_OUT: "It was stopped because it ran longer than its timeout.",
    _X.CANCELLED: "It was stopped because its job was called off.",
    _X.LOST: "Its lease ran out; whatever it says now is refused.",
    _X.PREEMPTED: "It was stopped to make room for a more urgent job, or given back unbegun.",
}
EXECUTION_VERB_MEANING: Mapping[ExecutionVerb, str] = {
    _Y.START: "the worker's first message that names it",
    _Y.SUCCEED: "the worker says so",
    _Y.FAIL: "the worker says so",
    _Y.TIME_OUT: "the worker says so, or its lease ended after it was told to stop",
    _Y.CANCEL: "the worker says so, or its lease ended after it was told to stop",
    _Y.LOSE: "no message named it until its lease had run out",
    _Y.PREEMPT: "the worker has stopped it as told, or gives it back before it began",
}


def move_job(job_id: JobId, state: JobState, verb: JobVerb) -> JobState:
    """The state after `verb`, or the refusal."""
    after = JOB_TRANSITIONS.get((state, verb))
    if after is None:
        raise IllegalTransition("job", job_id, state, verb)
    return after


def move_execution(
    execution_id: ExecutionId, state: ExecutionState, verb: ExecutionVerb
) -> ExecutionState:
    """The state after `verb`, or the refusal."""
    after = EXECUTION_TRANSITIONS.get((state, verb))
    if after is None:
        raise IllegalTransition("execution", execution_id, state, verb)
    return after
