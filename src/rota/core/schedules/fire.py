"""Fires due schedules: decides each instant (fire, misfire, catch-up, skip) and submits its job.

The job, the record of the instant and the watermark that says it is decided are written in the same
turn, so that none of them is ever there without the others
(docs/decisions/0020-schedules-record-every-occurrence.md).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from rota.core.commands import NewJob
from rota.core.deadlines import deadline_from_template
from rota.core.entries import JobEntry
from rota.core.errors import Refusal
from rota.core.ids import run_id
from rota.core.jobs.job_commands import cancel_job
from rota.core.jobs.submit import submit_independent
from rota.core.limits import (
    FIRES_PER_SCHEDULE,
    FIRES_PER_TURN,
    MISSED_AFTER_MS,
    ON_TIME_MS,
    SCHEDULE_RUNS_MAX,
)
from rota.core.model import (
    Concurrency,
    Instant,
    JobState,
    Millis,
    Origin,
    RunCause,
    ScheduleId,
    Spec,
)
from rota.core.schedule_model import (
    CatchUp,
    Occurrence,
    OccurrenceDecision,
    Overlap,
    ScheduleDefinition,
    ScheduleState,
    SkipReason,
)
from rota.core.schedules.schedule_index import ScheduleEntry
from rota.core.state import SchedulerState
from rota.core.templates import fill_schedule_template, schedule_values


class FireDecision(msgspec.Struct, frozen=True):
    """Decision on an instant of a schedule."""

    decision: OccurrenceDecision
    reason: SkipReason = SkipReason.NOT
    detail: str = ""


def timer_fired(t: SchedulerState, schedule_id: ScheduleId, when: Instant) -> None:
    """Adds a schedule whose timer fired to those that are due."""
    entry = t.schedule_index.entries.get(schedule_id)
    if entry is not None and entry.due_at == when:
        t.schedule_index.due[schedule_id] = when


def fire_due(t: SchedulerState, now: Instant) -> None:
    """Decides a bounded number of due instants, each schedule in turn."""
    due, left = t.schedule_index.due, FIRES_PER_TURN
    while due and left > 0:
        schedule_id = next(iter(due))
        del due[schedule_id]
        entry = t.schedule_index.entries[schedule_id]
        left -= max(1, _decide_due(t, entry, min(left, FIRES_PER_SCHEDULE), now))
        t.schedule_index.set_timer(entry)
        if entry.due_at is not None and entry.due_at <= now:
            due[schedule_id] = entry.due_at


def _decide_due(t: SchedulerState, entry: ScheduleEntry, limit: int, now: Instant) -> int:
    """Decides instants of one schedule in order; returns how many."""
    for spent in range(limit):
        if entry.due_at is None or entry.due_at > now:
            return spent
        _decide_next(t, entry, entry.due_at, now)
        t.schedule_index.find_next(entry)
    return limit


def _decide_next(t: SchedulerState, entry: ScheduleEntry, due_at: Instant, now: Instant) -> None:
    schedule, nominal = entry.schedule, entry.next_at
    assert nominal is not None
    late_ms = max(0, now - due_at)
    missed = _is_misfire(entry, nominal, late_ms)
    if missed and nominal < now - schedule.definition.catch_up_window_ms:
        skip_until(
            t, entry, now - schedule.definition.catch_up_window_ms - 1, SkipReason.TOO_OLD, now
        )
        return
    if missed:
        wanted = _catch_up_decision(entry, nominal, now)
    else:
        wanted = FireDecision(
            OccurrenceDecision.FIRED if late_ms <= ON_TIME_MS else OccurrenceDecision.LATE
        )
    decision = _fire_decision(t, entry, nominal, wanted, now)
    job: JobEntry | None = None
    if decision.decision is not OccurrenceDecision.SKIPPED:
        origin = Origin(schedule.id, nominal)
        try:
            job = submit_independent(t, _new_job(entry, origin, now), now)
        except Refusal as refusal:
            decision = FireDecision(OccurrenceDecision.SKIPPED, SkipReason.REFUSED, refusal.detail)
    occurrence = Occurrence(
        schedule.id,
        nominal,
        decision.decision,
        now,
        decision.reason,
        decision.detail,
        None if job is None else job.id,
        late_ms=late_ms,
        revision=schedule.revision,
    )
    t.schedule_index.record(occurrence)
    t.schedule_index.set_state(
        entry, _state_after(schedule.definition, schedule.state, occurrence, now)
    )


def _state_after(
    definition: ScheduleDefinition, state: ScheduleState, occurrence: Occurrence, now: Instant
) -> ScheduleState:
    """State of the schedule after this instant was decided."""
    reached = max(state.watermark, occurrence.until or occurrence.nominal)
    moved = replace(
        state,
        watermark=reached,
        last_at=occurrence.nominal,
        last_decision=occurrence.decision,
        last_job_id=occurrence.job_id or state.last_job_id,
    )
    if not definition.timetable.from_finish:
        return moved
    if occurrence.job_id is not None:
        return replace(moved, awaits_finish=True)
    return replace(moved, anchor=next_from_finish(definition, moved, now))


def skip_until(
    t: SchedulerState, entry: ScheduleEntry, until: Instant, why: SkipReason, now: Instant
) -> None:
    """Writes one record for all undecided instants up to `until`; nobody reads one each."""
    schedule, first = entry.schedule, entry.next_at
    assert first is not None
    assert entry.recurrence is not None
    second = entry.recurrence.next_after(first)
    several = second is not None and second <= until
    occurrence = Occurrence(
        schedule.id,
        first,
        OccurrenceDecision.SKIPPED,
        now,
        why,
        late_ms=max(0, now - first),
        until=until if several else None,
        revision=schedule.revision,
    )
    t.schedule_index.record(occurrence)
    t.schedule_index.set_state(
        entry, _state_after(schedule.definition, schedule.state, occurrence, now)
    )


def _is_misfire(entry: ScheduleEntry, nominal: Instant, late_ms: Millis) -> bool:
    """Whether it is a misfire, too late to run as merely late, so that `catch_up` decides.

    A frequent schedule misfires sooner: with `none` or `latest`, not even a few seconds of instants
    may pile up.
    """
    if late_ms <= ON_TIME_MS:
        return False
    if late_ms > MISSED_AFTER_MS:
        return True
    assert entry.recurrence is not None
    following = entry.recurrence.next_after(nominal)
    return following is not None and 2 * late_ms > following - nominal


def _fire_decision(
    t: SchedulerState, entry: ScheduleEntry, nominal: Instant, wanted: FireDecision, now: Instant
) -> FireDecision:
    schedule, recurrence = entry.schedule, entry.recurrence
    assert recurrence is not None
    if schedule.state.paused:
        return FireDecision(OccurrenceDecision.SKIPPED, SkipReason.PAUSED)
    listed = recurrence.holiday(nominal)
    if listed is not None:
        return FireDecision(OccurrenceDecision.SKIPPED, SkipReason.HOLIDAY, f"calendar {listed}")
    if wanted.decision is OccurrenceDecision.SKIPPED:
        return wanted
    return apply_overlap_policy(t, schedule.id, schedule.definition, now) or wanted


def _catch_up_decision(entry: ScheduleEntry, nominal: Instant, now: Instant) -> FireDecision:
    """Decision on a misfire, by the catch-up policy."""
    catch_up = entry.schedule.definition.catch_up
    if catch_up is CatchUp.NONE:
        return FireDecision(OccurrenceDecision.SKIPPED, SkipReason.MISSED)
    if catch_up is CatchUp.LATEST:
        assert entry.recurrence is not None
        later = entry.recurrence.next_after(nominal)
        if later is not None and later + entry.recurrence.jitter(entry.schedule.id, later) <= now:
            return FireDecision(OccurrenceDecision.SKIPPED, SkipReason.SUPERSEDED)
    return FireDecision(OccurrenceDecision.CAUGHT_UP)


def apply_overlap_policy(
    t: SchedulerState, schedule_id: ScheduleId, definition: ScheduleDefinition, now: Instant
) -> FireDecision | None:
    """Applies `overlap` to the schedule's live jobs; None: another run may start."""
    live_jobs = t.schedule_index.live_jobs_of(schedule_id)
    if len(live_jobs) >= SCHEDULE_RUNS_MAX:
        return FireDecision(
            OccurrenceDecision.SKIPPED, SkipReason.BACKLOG, f"{len(live_jobs)} runs have not ended"
        )
    if definition.overlap in (Overlap.ALLOW, Overlap.QUEUE):
        return None
    runs = [t.jobs[job_id] for job_id in live_jobs if _is_scheduled(t.jobs[job_id])]
    if definition.overlap is Overlap.REPLACE:
        running = [job for job in runs if job.life.state is not JobState.CANCELLING]
        for job in running[: max(0, len(running) - definition.max_concurrency + 1)]:
            cancel_job(t, job, now)
    elif len(runs) >= definition.max_concurrency:
        return FireDecision(
            OccurrenceDecision.SKIPPED, SkipReason.OVERLAP, f"job {runs[0].id} has not ended"
        )
    return None


def _is_scheduled(job: JobEntry) -> bool:
    """Jobs of a schedule_backfill run beside the schedule and do not count for `overlap`."""
    return job.spec.origin is not None and job.spec.origin.cause is not RunCause.BACKFILL


def _new_job(entry: ScheduleEntry, origin: Origin, now: Instant) -> NewJob:
    return NewJob(id=run_id(origin, now), spec=spec_for(entry, origin, now))


def spec_for(entry: ScheduleEntry, origin: Origin, now: Instant) -> Spec:
    """Spec of the schedule's job for one instant."""
    schedule, job = entry.schedule, entry.schedule.definition.job
    task, payload = job.task, job.payload
    if b"{{" in task or b"{{" in payload:
        assert entry.recurrence is not None
        known = schedule_values(
            (schedule.id, schedule.definition.name), entry.recurrence.zone, origin.nominal
        )
        task, payload = fill_schedule_template(task, known), fill_schedule_template(payload, known)
    concurrency = job.concurrency
    if schedule.definition.overlap in (Overlap.QUEUE, Overlap.REPLACE):
        # The key makes runs start one after the other, even while a replaced one is still stopping.
        key = f"rota.schedule.{schedule.id}"
        concurrency = Concurrency(key, schedule.definition.max_concurrency)
    return replace(
        job,
        task=task,
        payload=payload,
        created_at=now,
        run_at=min(origin.nominal, now),
        finish_by=deadline_from_template(job, now),
        concurrency=concurrency,
        origin=origin,
    )


def run_now(t: SchedulerState, entry: ScheduleEntry, origin: Origin, now: Instant) -> JobEntry:
    """Submits a job for an instant outside the timetable."""
    return submit_independent(t, _new_job(entry, origin, now), now)


def next_from_finish(definition: ScheduleDefinition, state: ScheduleState, now: Instant) -> Instant:
    """When the next run is due if its interval begins now; never before a decided instant."""
    assert definition.timetable.interval_ms is not None
    return max(now, state.watermark) + definition.timetable.interval_ms


def restart_intervals(t: SchedulerState, now: Instant) -> None:
    """Starts the next interval of schedules that count from the end of a run."""
    ended, t.schedule_index.ended_origins = t.schedule_index.ended_origins, []
    for origin in ended:
        entry = t.schedule_index.entries.get(origin.schedule_id)
        if entry is None or not entry.schedule.state.awaits_finish:
            continue
        if not any(
            _is_scheduled(t.jobs[job_id])
            for job_id in t.schedule_index.live_jobs_of(origin.schedule_id)
        ):
            state = entry.schedule.state
            anchor = next_from_finish(entry.schedule.definition, state, now)
            t.schedule_index.set_state(entry, replace(state, awaits_finish=False, anchor=anchor))
            t.schedule_index.set_timer(entry)
