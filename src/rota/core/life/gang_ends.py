"""How a member of a gang ends, and what of that is the gang's to decide."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.band import GroupMember
from rota.core.life.ending import error_json, finish_job
from rota.core.lifecycle import JobVerb
from rota.core.memory.cells import JobEntry
from rota.core.model import Execution, ExecutionState, Instant, JobId, JobState, Millis
from rota.core.tables import SchedulerState

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
