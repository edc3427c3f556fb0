"""How a member of a gang ends, and what of that is the gang's to decide."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.band import Member
from rota.core.life.ending import conclude, said
from rota.core.lifecycle import JobVerb
from rota.core.memory.cells import JobCell
from rota.core.model import Execution, ExecutionState, Instant, JobId, JobState, Millis
from rota.core.tables import Tables

RETRY = "retry"
"""A member failed, and the gang may be tried again."""
FAILED = "failed"
"""A member failed, and there is no further try."""
LOST = "lost"
"""A member's worker was lost."""
UNDELIVERED = "undelivered"
"""A member's worker never collected it, so it was not tried."""
PREEMPTED = "preempted"
"""A member had to make room."""
CANCELLED = "cancelled"
"""A member's worker stopped it without being told to."""


def is_in_gang(job: JobCell) -> bool:
    """Whether its end is its gang's to decide on."""
    band = job.spec.band
    return isinstance(band, Member) and band.in_gang


def parent_of(job: JobCell) -> JobId:
    """The band that a member is of."""
    assert isinstance(job.spec.band, Member)
    return JobId(job.spec.band.parent)


def end_member(
    t: Tables, job: JobCell, execution: Execution, verdict: tuple[str, Millis, str], now: Instant
) -> None:
    """The member ends for good, as far as it is concerned; the gang is looked after this turn.

    `verdict` is what its end means for the gang, how long that waits before another try (-1: as its
    policy says), and why in a word.
    """
    cause, delay, reason = verdict
    life = replace(job.life, result=execution.result, error=execution.error, reason=reason)
    if execution.state is ExecutionState.SUCCEEDED:
        _note_result(t, job, execution)
        conclude(t, job, JobVerb.SUCCEED, replace(life, reason=""), now)
    elif job.life.state is JobState.CANCELLING:
        conclude(t, job, JobVerb.STOP, replace(life, reason=job.life.reason), now)
    elif execution.state is ExecutionState.CANCELLED:
        _note_cause(t, job, CANCELLED, -1)
        conclude(t, job, JobVerb.STOP, replace(life, reason="cancelled"), now)
    else:
        _note_cause(t, job, cause, delay)
        verb = JobVerb.FAIL if cause in (RETRY, FAILED) else JobVerb.STOP
        conclude(t, job, verb, life, now)


def _note_result(t: Tables, job: JobCell, execution: Execution) -> None:
    """What the first member returns is what the gang returns."""
    assert isinstance(job.spec.band, Member)
    if job.spec.band.index == 0 and execution.result is not None:
        gang = t.jobs[parent_of(job)]
        t.set_life(gang, replace(gang.life, result=execution.result))


def _note_cause(t: Tables, job: JobCell, cause: str, delay: Millis) -> None:
    """The first member that does not end well says what becomes of the gang."""
    band, mine = job.spec.band, t.bands.of(job)
    assert isinstance(band, Member)
    if mine.cause:
        return
    mine.cause, mine.delay_ms = cause, delay
    gang = t.jobs[parent_of(job)]
    error = said(f"member {band.index} of {mine.size} {_WORDS[cause]}: see job {job.id}")
    t.set_life(gang, replace(gang.life, reason="stopping", error=error))


_WORDS = {
    RETRY: "failed",
    FAILED: "failed",
    LOST: "was lost with its worker",
    UNDELIVERED: "was not collected by its worker",
    PREEMPTED: "was preempted",
    CANCELLED: "was stopped",
}
