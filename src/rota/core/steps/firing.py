"""Schedules whose time has come: decides what becomes of each instant, and makes its job.

The job, the record of the instant and the watermark that says it is decided are written in the
same turn, so that none of them is ever there without the others.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from rota.core.errors import Refusal
from rota.core.ids import run_id
from rota.core.inputs import NewJob
from rota.core.limits import (
    FIRES_PER_SCHEDULE,
    FIRES_PER_TURN,
    MISSED_AFTER_MS,
    ON_TIME_MS,
    SCHEDULE_RUNS_MAX,
)
from rota.core.memory.cells import JobCell
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
from rota.core.records.schedules import CatchUp, Course, Decision, Occurrence, Overlap, Plan, Why
from rota.core.steps.control import cancel_job
from rota.core.steps.intake import submit_independent
from rota.core.tables import Tables
from rota.core.times.agenda import ScheduleEntry
from rota.core.times.slack import deadline_from_template
from rota.core.times.templates import fill_schedule_template, schedule_values


class FireDecision(msgspec.Struct, frozen=True):
    """What is to become of an instant."""

    decision: Decision
    reason: Why = Why.NOT
    detail: str = ""


def timer_fired(t: Tables, schedule_id: ScheduleId, when: Instant) -> None:
    """A schedule's timer rang: it takes its turn among those that are due."""
    cell = t.agenda.entries.get(schedule_id)
    if cell is not None and cell.due_at == when:
        t.agenda.due[schedule_id] = when


def fire_due(t: Tables, now: Instant) -> None:
    """Decides what is due, a bounded piece of it, everybody in turn."""
    due, left = t.agenda.due, FIRES_PER_TURN
    while due and left > 0:
        schedule_id = next(iter(due))
        del due[schedule_id]
        cell = t.agenda.entries[schedule_id]
        left -= max(1, _decide_due(t, cell, min(left, FIRES_PER_SCHEDULE), now))
        t.agenda.set_timer(cell)
        if cell.due_at is not None and cell.due_at <= now:
            due[schedule_id] = cell.due_at


def _decide_due(t: Tables, cell: ScheduleEntry, limit: int, now: Instant) -> int:
    """Decides the instants of one schedule in order; answers how many."""
    for spent in range(limit):
        if cell.due_at is None or cell.due_at > now:
            return spent
        _decide_next(t, cell, cell.due_at, now)
        t.agenda.find_next(cell)
    return limit


def _decide_next(t: Tables, cell: ScheduleEntry, due_at: Instant, now: Instant) -> None:
    schedule, nominal = cell.schedule, cell.next_at
    assert nominal is not None
    late_ms = max(0, now - due_at)
    missed = _is_misfire(cell, nominal, late_ms)
    if missed and nominal < now - schedule.plan.catch_up_window_ms:
        skip_until(t, cell, now - schedule.plan.catch_up_window_ms - 1, Why.TOO_OLD, now)
        return
    if missed:
        wanted = _catch_up_decision(cell, nominal, now)
    else:
        wanted = FireDecision(Decision.FIRED if late_ms <= ON_TIME_MS else Decision.LATE)
    verdict = _fire_decision(t, cell, nominal, wanted, now)
    job: JobCell | None = None
    if verdict.decision is not Decision.SKIPPED:
        origin = Origin(schedule.id, nominal)
        try:
            job = submit_independent(t, _new_job(cell, origin, now), now)
        except Refusal as refusal:
            verdict = FireDecision(Decision.SKIPPED, Why.REFUSED, refusal.detail)
    occurrence = Occurrence(
        schedule.id,
        nominal,
        verdict.decision,
        now,
        verdict.reason,
        verdict.detail,
        None if job is None else job.id,
        late_ms=late_ms,
        revision=schedule.revision,
    )
    t.agenda.record(occurrence)
    t.agenda.set_state(cell, _state_after(schedule.plan, schedule.course, occurrence, now))


def _state_after(plan: Plan, course: Course, occurrence: Occurrence, now: Instant) -> Course:
    """How far the schedule has come with this instant decided."""
    reached = max(course.watermark, occurrence.until or occurrence.nominal)
    moved = replace(
        course,
        watermark=reached,
        last_at=occurrence.nominal,
        last_decision=occurrence.decision,
        last_job_id=occurrence.job_id or course.last_job_id,
    )
    if not plan.timetable.from_finish:
        return moved
    if occurrence.job_id is not None:
        return replace(moved, awaits=True)
    return replace(moved, anchor=next_from_finish(plan, moved, now))


def skip_until(t: Tables, cell: ScheduleEntry, until: Instant, why: Why, now: Instant) -> None:
    """One record for all undecided instants up to `until`: nobody wants one each."""
    schedule, first = cell.schedule, cell.next_at
    assert first is not None
    assert cell.recurrence is not None
    second = cell.recurrence.next_after(first)
    several = second is not None and second <= until
    occurrence = Occurrence(
        schedule.id,
        first,
        Decision.SKIPPED,
        now,
        why,
        late_ms=max(0, now - first),
        until=until if several else None,
        revision=schedule.revision,
    )
    t.agenda.record(occurrence)
    t.agenda.set_state(cell, _state_after(schedule.plan, schedule.course, occurrence, now))


def _is_misfire(cell: ScheduleEntry, nominal: Instant, late_ms: Millis) -> bool:
    """Whether it is too late for it to be only late, so that `catch_up` is asked.

    A schedule that comes often misses one sooner: what a few seconds have piled up is not to run
    either where `none` or `latest` is said.
    """
    if late_ms <= ON_TIME_MS:
        return False
    if late_ms > MISSED_AFTER_MS:
        return True
    assert cell.recurrence is not None
    following = cell.recurrence.next_after(nominal)
    return following is not None and 2 * late_ms > following - nominal


def _fire_decision(
    t: Tables, cell: ScheduleEntry, nominal: Instant, wanted: FireDecision, now: Instant
) -> FireDecision:
    schedule, ways = cell.schedule, cell.recurrence
    assert ways is not None
    if schedule.course.paused:
        return FireDecision(Decision.SKIPPED, Why.PAUSED)
    listed = ways.holiday(nominal)
    if listed is not None:
        return FireDecision(Decision.SKIPPED, Why.HOLIDAY, f"calendar {listed}")
    if wanted.decision is Decision.SKIPPED:
        return wanted
    return apply_overlap_policy(t, schedule.id, schedule.plan, now) or wanted


def _catch_up_decision(cell: ScheduleEntry, nominal: Instant, now: Instant) -> FireDecision:
    """Nobody was there when it was due."""
    catch_up = cell.schedule.plan.catch_up
    if catch_up is CatchUp.NONE:
        return FireDecision(Decision.SKIPPED, Why.MISSED)
    if catch_up is CatchUp.LATEST:
        assert cell.recurrence is not None
        later = cell.recurrence.next_after(nominal)
        if later is not None and later + cell.recurrence.jitter(cell.schedule.id, later) <= now:
            return FireDecision(Decision.SKIPPED, Why.SUPERSEDED)
    return FireDecision(Decision.CAUGHT_UP)


def apply_overlap_policy(
    t: Tables, schedule_id: ScheduleId, plan: Plan, now: Instant
) -> FireDecision | None:
    """Asks the runs that are not done whether there may be another; None: there may."""
    everything = t.agenda.live_jobs_of(schedule_id)
    if len(everything) >= SCHEDULE_RUNS_MAX:
        return FireDecision(Decision.SKIPPED, Why.BACKLOG, f"{len(everything)} runs have not ended")
    if plan.overlap in (Overlap.ALLOW, Overlap.QUEUE):
        return None
    runs = [t.jobs[job_id] for job_id in everything if _is_scheduled(t.jobs[job_id])]
    if plan.overlap is Overlap.REPLACE:
        going_on = [job for job in runs if job.life.state is not JobState.CANCELLING]
        for job in going_on[: max(0, len(going_on) - plan.max_concurrency + 1)]:
            cancel_job(t, job, now)
    elif len(runs) >= plan.max_concurrency:
        return FireDecision(Decision.SKIPPED, Why.OVERLAP, f"job {runs[0].id} has not ended")
    return None


def _is_scheduled(job: JobCell) -> bool:
    """Runs of a backfill are beside the schedule, and in nobody's way."""
    return job.spec.origin is not None and job.spec.origin.cause is not RunCause.BACKFILL


def _new_job(cell: ScheduleEntry, origin: Origin, now: Instant) -> NewJob:
    return NewJob(id=run_id(origin, now), spec=spec_for(cell, origin, now))


def spec_for(cell: ScheduleEntry, origin: Origin, now: Instant) -> Spec:
    """The schedule's job for one instant."""
    schedule, job = cell.schedule, cell.schedule.plan.job
    task, payload = job.task, job.payload
    if b"{{" in task or b"{{" in payload:
        assert cell.recurrence is not None
        known = schedule_values(
            (schedule.id, schedule.plan.name), cell.recurrence.zone, origin.nominal
        )
        task, payload = fill_schedule_template(task, known), fill_schedule_template(payload, known)
    concurrency = job.concurrency
    if schedule.plan.overlap in (Overlap.QUEUE, Overlap.REPLACE):
        # The key lets one run after the other start, also while a replaced one is still stopping.
        key = f"rota.schedule.{schedule.id}"
        concurrency = Concurrency(key, schedule.plan.max_concurrency)
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


def run_now(t: Tables, cell: ScheduleEntry, origin: Origin, now: Instant) -> JobCell:
    """A job for an instant that the schedule itself would not have come to now."""
    return submit_independent(t, _new_job(cell, origin, now), now)


def next_from_finish(plan: Plan, course: Course, now: Instant) -> Instant:
    """When the next run is due whose interval begins now; never before what was decided."""
    assert plan.timetable.interval_ms is not None
    return max(now, course.watermark) + plan.timetable.interval_ms


def restart_intervals(t: Tables, now: Instant) -> None:
    """Schedules that count from the end of a run begin to count."""
    ended, t.agenda.ended_origins = t.agenda.ended_origins, []
    for origin in ended:
        cell = t.agenda.entries.get(origin.schedule_id)
        if cell is None or not cell.schedule.course.awaits:
            continue
        if not any(
            _is_scheduled(t.jobs[job_id]) for job_id in t.agenda.live_jobs_of(origin.schedule_id)
        ):
            course = cell.schedule.course
            anchor = next_from_finish(cell.schedule.plan, course, now)
            t.agenda.set_state(cell, replace(course, awaits=False, anchor=anchor))
            t.agenda.set_timer(cell)
