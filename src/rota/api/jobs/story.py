"""How long a job waited for what, and ran: read from its tries, so it survives whatever they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rota.core.model import Execution, ExecutionState, Instant, JobRecord, JobState
from rota.engine.ports import ObservedCause
from rota.wire.units import from_instant, number
from rota.wire.why import PhaseView

_WAIT_AFTER = {
    ExecutionState.FAILED: "retry",
    ExecutionState.TIMED_OUT: "retry",
    ExecutionState.LOST: "lost",
    ExecutionState.PREEMPTED: "preempted",
}
"""What a job waits for after a try that ended so."""
WORKER = "worker"
PREFETCH_REASON = "ahead"
"""Public: it was on a worker, behind another."""


def job_timing(
    job: JobRecord, tries: Sequence[Execution], seen: Sequence[ObservedCause], now: Instant
) -> list[PhaseView]:
    """Stretches of the job's life, in order; `tries` are its newest, the newest last.

    `seen` are first causes that somebody was told while it waited.
    """
    spells: list[PhaseView] = []
    since, reason = job.spec.created_at, _first_wait(job)
    if tries and tries[0].fence > 1:
        since, reason = tries[0].claimed_at, WORKER  # what was before is left out
    for one in tries:
        ready = job.life.ready_at if one is tries[-1] else None
        if one.claimed_at > since:
            spells += _past_wait(since, one.claimed_at, reason, ready)
        spells += _execution_spells(one, now)
        is_returned = one.state is ExecutionState.PREEMPTED and one.stop is None
        after = WORKER if is_returned else _WAIT_AFTER.get(one.state, WORKER)
        since, reason = one.ended_at or now, after
    if job.life.state in (JobState.PENDING, JobState.QUEUED):
        spells += _current_wait(job, since, reason, now)
        spells += [_seen_cause(one) for one in seen if one.last > one.first >= since]
    return spells


def _execution_spells(one: Execution, now: Instant) -> list[PhaseView]:
    """A try; a prefetched one waited on its worker first, and may never have begun there."""
    spells = []
    began_at = one.claimed_at if one.behind is None else one.started_at
    if began_at != one.claimed_at:
        waited_until = one.ended_at if began_at is None else began_at
        spells.append(_open_spell("queued", one.claimed_at, waited_until, now))
        spells[0].reason = PREFETCH_REASON
    if began_at is not None:
        spells.append(_open_spell("running", began_at, one.ended_at, now))
        spells[-1].reason = None if one.ended_at is None else one.state.value
    for spell in spells:
        spell.worker_id = one.worker_id
    return spells


def _open_spell(
    what: Literal["queued", "running"], since: Instant, until: Instant | None, now: Instant
) -> PhaseView:
    """A stretch that may not be over."""
    spell = _spell(what, since=since, until=now if until is None else until)
    if until is None:
        spell.until = None
    return spell


def _first_wait(job: JobRecord) -> str:
    if job.spec.dependencies:
        return "dependencies"
    return "run_at" if job.spec.run_at is not None else WORKER


def _current_wait(job: JobRecord, since: Instant, reason: str, now: Instant) -> list[PhaseView]:
    """The wait that lasts."""
    if job.life.state is JobState.PENDING:
        spells = [_spell("pending", since=since, until=now)]
        spells[0].reason = job.life.reason or reason
    else:
        spells = _past_wait(since, now, reason, job.life.ready_at)
    spells[-1].until = None
    return spells


def _past_wait(
    since: Instant, until: Instant, reason: str, ready: Instant | None
) -> list[PhaseView]:
    """A wait, in two parts where it is known since when nothing but a worker was missing."""
    spells = []
    if ready is not None and since < ready <= until and reason != WORKER:
        spells.append(_spell("pending", since=since, until=ready))
        spells[0].reason = reason
        since, reason = ready, WORKER
    spells.append(_spell("queued", since=since, until=until))
    spells[-1].reason = reason
    return spells


def _seen_cause(one: ObservedCause) -> PhaseView:
    spell = _spell("queued", since=one.first, until=one.last)
    spell.reason = one.code
    return spell


def _spell(
    what: Literal["pending", "queued", "running"], *, since: Instant, until: Instant
) -> PhaseView:
    length = max(0, until - since)
    return PhaseView(what, from_instant(since), from_instant(until), number(length))
