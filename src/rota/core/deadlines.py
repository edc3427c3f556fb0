"""Deadline arithmetic: slack, latest start, time of the warning, and the final result.

A deadline changes the order of jobs and warns; it does not end a job. `jobs/deadline_watch.py`
watches the deadlines of live jobs.
"""

from __future__ import annotations

from rota.core.limits import DEADLINE_LEAD_MS, RUNTIME_GUESS_MS
from rota.core.model import Instant, JobState, Millis, Spec

AT_RISK = "at_risk"
MISSED = "missed"
MET = "met"

_SPAN = 1 << 44
"""More milliseconds than any time has: one step of priority in a sort key made of both."""
_WARN_PART = 5
_WARN_MS_MIN = 60_000


def latest_start(spec: Spec) -> Instant:
    """Latest start of a job, from its own spec alone, so that it never changes.

    Not before its creation: if the job was too late from the beginning, others must not wait for it
    for ever.
    """
    assert spec.finish_by is not None
    length = spec.terms.expected_runtime_ms
    return max(spec.created_at, spec.finish_by - (RUNTIME_GUESS_MS if length is None else length))


def deadline_from_template(template: Spec, now: Instant) -> Instant | None:
    """Deadline of a job that a schedule or trigger makes now from its template."""
    return None if template.finish_by is None else now + template.finish_by


def urgent_since(spec: Spec) -> Instant:
    """Instant from which the job counts as waiting, under an order by age."""
    return latest_start(spec) - DEADLINE_LEAD_MS


def strict_sort_key(spec: Spec) -> int:
    """Sort key under strict priority: jobs with a deadline before the others, by slack."""
    place = -spec.terms.priority * _SPAN
    return place if spec.finish_by is None else place - _SPAN + latest_start(spec)


def warn_at(spec: Spec, length: Millis) -> Instant:
    """When to warn that the job has not started, so that there is still time to act.

    `length` is its expected run time.
    """
    assert spec.finish_by is not None
    latest = max(spec.created_at, spec.finish_by - length)
    early = max(_WARN_MS_MIN, (latest - spec.created_at) // _WARN_PART)
    return max(spec.created_at, latest - early)


def outcome_of(spec: Spec, state: JobState, now: Instant) -> str:
    """Result for the deadline of a job that ended in this state."""
    assert spec.finish_by is not None
    return MET if state is JobState.SUCCEEDED and now <= spec.finish_by else MISSED
