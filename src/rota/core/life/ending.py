"""How a job ends, and how those who depend on it hear of it, all in the same step."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from rota.core.graph import accepts
from rota.core.life.waiting import dequeue, enter_wait_state
from rota.core.lifecycle import JobVerb
from rota.core.memory.cells import JobEntry
from rota.core.model import Instant, JobState, Life
from rota.core.tables import SchedulerState


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
