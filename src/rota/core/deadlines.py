"""Deadline arithmetic: slack, latest start, time of the warning, and the outcome.

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
"""More milliseconds than any time has: one step of priority, where priority comes before all."""
_WARN_PART = 5
_WARN_MS_MIN = 60_000


def latest_start(spec: Spec) -> Instant:
    """When it has to start at the latest, by what it says of itself: so this never changes.

    Not before it came: one that was too late from the beginning has no time to lose, but nothing
    is gained by others giving way to it for ever.
    """
    assert spec.finish_by is not None
    length = spec.terms.expected_runtime_ms
    return max(spec.created_at, spec.finish_by - (RUNTIME_GUESS_MS if length is None else length))


def deadline_from_template(template: Spec, now: Instant) -> Instant | None:
    """The deadline of a job that is made now after a schedule's or trigger's template."""
    return None if template.finish_by is None else now + template.finish_by


def urgent_since(spec: Spec) -> Instant:
    """Since when it may be said to wait, for an order by age."""
    return latest_start(spec) - DEADLINE_LEAD_MS


def strict_sort_key(spec: Spec) -> int:
    """Its place where priority comes first: those with a deadline before the others, by slack."""
    place = -spec.terms.priority * _SPAN
    return place if spec.finish_by is None else place - _SPAN + latest_start(spec)


def warn_at(spec: Spec, length: Millis) -> Instant:
    """When somebody should know that it has not started: while there is still time to act.

    `length` is how long it will probably run, by all that is known.
    """
    assert spec.finish_by is not None
    latest = max(spec.created_at, spec.finish_by - length)
    early = max(_WARN_MS_MIN, (latest - spec.created_at) // _WARN_PART)
    return max(spec.created_at, latest - early)


def outcome_of(spec: Spec, state: JobState, now: Instant) -> str:
    """What became of its deadline, now that the job has ended so."""
    assert spec.finish_by is not None
    return MET if state is JobState.SUCCEEDED and now <= spec.finish_by else MISSED
