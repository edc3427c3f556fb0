"""Manual retry: starts ended jobs over, with the jobs that were skipped because of them."""

from __future__ import annotations

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
from rota.core.model import Array, GroupMember, Instant, JobRecord, JobState, Life
from rota.core.outcome import JobAnswer
from rota.core.state import SchedulerState
from rota.core.timers import TimerKind


def retry(t: SchedulerState, event: Retry, now: Instant) -> JobAnswer:
    """An ended job starts over, and with it what was skipped because of it.

    Its own upstream jobs that have ended count as settled: a person has said to go on.
    """
    memory = JobLookup(t, event.preloaded, now)
    live = memory.live(event.job_id)
    if live is not None:
        move_job(live.id, live.life.state, JobVerb.REVIVE)
    record = memory.require_ended(event.job_id)
    if record.life.reason == INVALID:
        raise Conflict(f"job {event.job_id} was never a valid one: submit it anew, corrected")
    if record.life.reason == DUPLICATE:
        raise Conflict(f"job {event.job_id} is another one under a second id: see its error")
    move_job(record.id, record.life.state, JobVerb.REVIVE)
    if isinstance(record.spec.group, GroupMember):
        raise Conflict(f"job {record.id} is a member of {record.spec.group.parent}: retry that")
    cell = _start_over(t, record, now, event.failed)
    count_unmet(t, cell)
    _start_skipped_over(t, event, memory, now)
    enter_wait_state(t, cell, now)
    return JobAnswer(cell.record())


def _start_over(
    t: SchedulerState, record: JobRecord, now: Instant, failed: tuple[int, ...] | None = None
) -> JobEntry:
    spec, tally = record.spec, None
    if isinstance(spec.group, Array) and record.life.group_progress is not None:
        spec, tally = restarted(record, failed)
    t.queue(spec.terms.queue, now)
    life = Life(
        JobState.PENDING,
        fence=record.life.fence,
        lives=record.life.lives + 1,
        reason="retried",
        group_progress=tally,
    )
    if spec.expires_at is not None and spec.expires_at <= now:
        # Its time had run out; whoever starts it over wants it all the same.
        spec = replace(spec, expires_at=None, revision=spec.revision + 1)
    cell = t.add_job(record.id, spec, life)
    t.recently_finished.returned(record.id)
    t.put_job(cell)
    if spec.expires_at is not None:
        t.timers.set(spec.expires_at, TimerKind.JOB, cell.id)
    deadline_watch.watch_deadline(t, cell, now)
    return cell


def _start_skipped_over(t: SchedulerState, event: Retry, memory: JobLookup, now: Instant) -> None:
    """Downstream jobs that were skipped wait again, if nothing else rules them out.

    An upstream job that was deleted since counts as one that succeeded: it holds nobody back.
    """
    assert event.preloaded is not None
    skipped = {
        record.id: record
        for record in event.preloaded.jobs
        if record.life.state is JobState.SKIPPED and record.id not in t.jobs
    }
    # A job's upstream jobs must be back before it is looked at.
    for job_id in upstream_first(
        {r.id: [d.job_id for d in r.spec.dependencies] for r in skipped.values()}
    ):
        record = skipped[job_id]
        states = {d.job_id: memory.state(d.job_id) for d in record.spec.dependencies}
        is_downstream = any(job_id in t.jobs for job_id in states)
        ruled_out = any(
            d.job_id not in t.jobs and not accepts(d.when, states[d.job_id] or JobState.SUCCEEDED)
            for d in record.spec.dependencies
        )
        if not is_downstream or ruled_out:
            continue
        cell = _start_over(t, record, now)
        count_unmet(t, cell)
        enter_wait_state(t, cell, now)
