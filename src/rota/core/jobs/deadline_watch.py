"""Watches the deadlines of live jobs: warns in time, and notes a missed deadline."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.deadlines import AT_RISK, MISSED, warn_at
from rota.core.entries import JobEntry
from rota.core.info_model import DeadlineInfo
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Instant, JobId, JobRecord, Millis
from rota.core.state import SchedulerState
from rota.core.timers import TimerKind

ON_TIME = "on_time"
LATE = "late"


def watch_deadline(t: SchedulerState, job: JobEntry, now: Instant) -> None:
    """Sets the timers of a live job's deadline: one to warn in time, one for the deadline."""
    finish_by = job.spec.finish_by
    if finish_by is None or job.life.deadline == MISSED:
        return
    if job.life.lives > 1 and finish_by <= now:
        return  # whoever retried it knows that the deadline is over
    if not job.life.deadline:
        warn = warn_at(job.spec, t.runtime_estimates.estimate(job.spec.terms))
        t.timers.set(max(now, warn), TimerKind.DEADLINE, job.id)
    t.timers.set(max(now, finish_by), TimerKind.DEADLINE, job.id)


def timer_fired(t: SchedulerState, job_id: JobId, now: Instant) -> None:
    """Notes that the job's deadline is at risk, or missed."""
    job = t.jobs.get(job_id)
    finish_by = None if job is None else job.spec.finish_by
    if job is None or finish_by is None:
        return
    if finish_by <= now:
        t.note_deadline(job, MISSED)
    elif not job.life.deadline and warn_at(job.spec, _estimate(t, job)) <= now:
        end = _expected_end(t, job)
        if end is None or end > finish_by:
            t.note_deadline(job, AT_RISK)


def is_timer_current(t: SchedulerState, job_id: JobId, when: Instant) -> bool:
    """Whether a timer that was set for a job's deadline may still have something to note."""
    job = t.jobs.get(job_id)
    finish_by = None if job is None else job.spec.finish_by
    if job is None or finish_by is None:
        return False
    return when <= finish_by and job.life.deadline != MISSED


def deadline_info(
    t: SchedulerState, job: JobRecord, start: Instant | None, now: Instant
) -> DeadlineInfo | None:
    """Describes a job's deadline; `start` is its expected start, if known.

    Once the job has started, or the deadline is over, nothing has to be estimated.
    """
    spec, life = job.spec, job.life
    if spec.finish_by is None:
        return None
    if life.state in JOB_FINAL:
        end = life.finished_at or now
        return DeadlineInfo(spec.finish_by, life.deadline or MISSED, spec.finish_by - end, end)
    entry = t.jobs.get(job.id)
    running = None if entry is None else _expected_end(t, entry)
    length = t.runtime_estimates.estimate(spec.terms)
    end = running if running is not None else max(now, start or now) + length
    slack = spec.finish_by - end
    status = LATE if slack < 0 else life.deadline or ON_TIME
    known = running is not None or start is not None
    return DeadlineInfo(spec.finish_by, status, slack, end if known else None)


def _estimate(t: SchedulerState, job: JobEntry) -> Millis:
    return t.runtime_estimates.estimate(job.spec.terms)


def _expected_end(t: SchedulerState, job: JobEntry) -> Instant | None:
    """When a running job will probably end."""
    execution = None if job.life.execution_id is None else t.executions.get(job.life.execution_id)
    return None if execution is None else execution.ends_at


def reset_deadline(t: SchedulerState, job: JobEntry, before: Instant | None) -> None:
    """Clears the status of the deadline that the job had before an update."""
    if job.spec.finish_by != before and job.life.deadline:
        t.set_life(job, replace(job.life, deadline=""))
