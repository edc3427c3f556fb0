"""Manual retry: starts ended jobs over, with the jobs that were skipped because of them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from rota.core.commands import Retry
from rota.core.dependency_graph import accepts, upstream_first
from rota.core.entries import JobEntry
from rota.core.errors import Conflict
from rota.core.groups.arrays import restarted
from rota.core.jobs import deadline_watch
from rota.core.jobs.spill import JobLookup
from rota.core.jobs.submit import DUPLICATE, INVALID, count_unmet
from rota.core.jobs.wait_states import enter_wait_state
from rota.core.lifecycle import JobVerb, move_job
from rota.core.model import Array, GroupMember, Instant, JobId, JobRecord, JobState, Life
from rota.core.outcome import JobAnswer
from rota.core.state import SchedulerState
from rota.core.timers import TimerKind


def retry(t: SchedulerState, event: Retry, now: Instant) -> JobAnswer:
    """Starts an ended job over, and the jobs that were skipped because of it.

    Its own upstream jobs that have ended count as satisfied: a person decided to go on.
    """
    lookup = JobLookup(t, event.preloaded, now)
    live = lookup.live(event.job_id)
    if live is not None:
        move_job(live.id, live.life.state, JobVerb.REVIVE)
    record = lookup.require_ended(event.job_id)
    if record.life.reason == INVALID:
        raise Conflict(
            f"job {event.job_id} was invalid when it was submitted: submit a corrected one"
        )
    if record.life.reason == DUPLICATE:
        raise Conflict(f"job {event.job_id} is a duplicate of another job: see its error")
    move_job(record.id, record.life.state, JobVerb.REVIVE)
    if isinstance(record.spec.group, GroupMember):
        raise Conflict(f"job {record.id} is a member of {record.spec.group.parent}: retry that job")
    skipped = _skipped_jobs(t, event, lookup)
    job = _start_over(t, record, now, event.failed)
    count_unmet(t, job)
    _start_skipped_over(t, skipped, lookup, now)
    enter_wait_state(t, job, now)
    return JobAnswer(job.record())


def _start_over(
    t: SchedulerState, record: JobRecord, now: Instant, failed: tuple[int, ...] | None = None
) -> JobEntry:
    spec, progress = record.spec, None
    if isinstance(spec.group, Array) and record.life.group_progress is not None:
        spec, progress = restarted(record, failed)
    t.queue(spec.terms.queue, now)
    life = Life(
        JobState.PENDING,
        fence=record.life.fence,
        lives=record.life.lives + 1,
        reason="retried",
        group_progress=progress,
    )
    if spec.expires_at is not None and spec.expires_at <= now:
        # It had expired; whoever retries it wants it to run anyway.
        spec = replace(spec, expires_at=None, revision=spec.revision + 1)
    job = t.add_job(record.id, spec, life)
    t.recently_finished.returned(record.id)
    t.put_job(job)
    if spec.expires_at is not None:
        t.timers.set(spec.expires_at, TimerKind.JOB, job.id)
    deadline_watch.watch_deadline(t, job, now)
    return job


def _skipped_jobs(t: SchedulerState, event: Retry, lookup: JobLookup) -> dict[JobId, JobRecord]:
    """Returns the other preloaded jobs that were skipped; raises StalePreload if one was deleted
    or has moved since."""
    assert event.preloaded is not None
    return {
        record.id: lookup.require_ended(record.id)
        for record in event.preloaded.jobs
        if record.life.state is JobState.SKIPPED
        and record.id not in t.jobs
        and record.id != event.job_id
    }


def _start_skipped_over(
    t: SchedulerState, skipped: Mapping[JobId, JobRecord], lookup: JobLookup, now: Instant
) -> None:
    """Starts skipped downstream jobs over, unless another upstream job still rules them out.

    An upstream job that was deleted since counts as succeeded: it blocks nothing.
    """
    # Upstream first: each job is checked against upstream jobs that are live again.
    for job_id in upstream_first(
        {r.id: [d.job_id for d in r.spec.dependencies] for r in skipped.values()}
    ):
        record = skipped[job_id]
        states = {d.job_id: lookup.state(d.job_id) for d in record.spec.dependencies}
        is_downstream = any(job_id in t.jobs for job_id in states)
        ruled_out = any(
            d.job_id not in t.jobs and not accepts(d.when, states[d.job_id] or JobState.SUCCEEDED)
            for d in record.spec.dependencies
        )
        if not is_downstream or ruled_out:
            continue
        job = _start_over(t, record, now)
        count_unmet(t, job)
        enter_wait_state(t, job, now)
