"""Schedule commands: create, change, pause, delete, trigger, deploy, backfill; also calendars."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from rota.core.commands import (
    AnyScheduleInput,
    BackfillSchedule,
    CancelBackfill,
    CreateSchedule,
    DeleteCalendar,
    DeleteSchedule,
    DeploySchedules,
    NewJob,
    NewSchedule,
    PauseSchedule,
    SetCalendar,
    TriggerSchedule,
    UpdateSchedule,
)
from rota.core.errors import Conflict, Invalid, NotFound, StalePreload, TooMuch
from rota.core.ids import run_id
from rota.core.jobs.job_commands import cancel_job
from rota.core.jobs.submit import submit_independent
from rota.core.limits import BACKFILL_JOBS_MAX, CALENDARS_MAX, SCHEDULES_MAX
from rota.core.model import Concurrency, Instant, JobId, Origin, RunCause
from rota.core.outcome import (
    AnyReceipt,
    Backfilled,
    CalendarAnswer,
    CountReceipt,
    Deployed,
    ScheduleAnswer,
    ScheduleGone,
    Triggered,
)
from rota.core.schedule_model import (
    Occurrence,
    OccurrenceDecision,
    Overlap,
    Schedule,
    ScheduleDefinition,
    ScheduleState,
    SkipReason,
)
from rota.core.schedules.fire import (
    FireDecision,
    apply_overlap_policy,
    next_from_finish,
    run_now,
    skip_until,
    spec_for,
)
from rota.core.schedules.recurrence import Recurrence, check_timetable
from rota.core.schedules.schedule_index import ScheduleEntry
from rota.core.state import SchedulerState
from rota.core.templates import SCHEDULE_PLACEHOLDERS, unknown_schedule_placeholders


def handle(t: SchedulerState, event: AnyScheduleInput, now: Instant) -> AnyReceipt:  # noqa: C901  (one line a case)
    match event:
        case CreateSchedule():
            return create(t, event, now)
        case UpdateSchedule():
            return update(t, event, now)
        case DeleteSchedule():
            return delete(t, event, now)
        case PauseSchedule():
            return pause(t, event, now)
        case TriggerSchedule():
            return trigger(t, event, now)
        case BackfillSchedule():
            return schedule_backfill(t, event, now)
        case CancelBackfill():
            return cancel_schedule_backfill(t, event, now)
        case DeploySchedules():
            return deploy(t, event, now)
        case SetCalendar():
            return set_calendar(t, event, now)
        case DeleteCalendar():
            return delete_calendar(t, event, now)
        case _:
            assert_never(event)


def create(t: SchedulerState, event: CreateSchedule, now: Instant) -> ScheduleAnswer:
    """Creates a schedule; its first instant is the first after now."""
    _check_new(t, event.schedule, now)
    return ScheduleAnswer(_add(t, event.schedule, now).schedule)


def _check_new(t: SchedulerState, new: NewSchedule, now: Instant) -> None:
    definition = new.definition
    check_definition(t, definition, now)
    if new.id in t.schedule_index.entries:
        raise Conflict(f"there is a schedule {new.id} already")
    existing = t.schedule_index.by_name(definition.job.terms.tenant, definition.name)
    if existing is not None:
        raise Conflict(
            f"there is a schedule {definition.name!r} already:"
            f" change it ({existing.schedule.id}), or take another name"
        )
    if len(t.schedule_index.entries) >= SCHEDULES_MAX:
        raise TooMuch(f"there are {SCHEDULES_MAX} schedules already; delete some")


def _add(t: SchedulerState, new: NewSchedule, now: Instant) -> ScheduleEntry:
    state = _initial_state(new.definition, ScheduleState(now, paused=new.paused), now)
    return t.schedule_index.put(Schedule(new.id, new.definition, state, now, now))


def _initial_state(
    definition: ScheduleDefinition, state: ScheduleState, now: Instant
) -> ScheduleState:
    """State of a schedule that begins with this timetable now."""
    table = definition.timetable
    if not table.from_finish:
        return replace(state, anchor=None, awaits_finish=False)
    starts = table.starts_at
    first = (
        starts if starts is not None and starts > now else next_from_finish(definition, state, now)
    )
    return replace(state, anchor=first)


def check_definition(t: SchedulerState, definition: ScheduleDefinition, now: Instant) -> Recurrence:
    """Recurrence of the definition; refuses one that could never run, or not as it was meant."""
    table = definition.timetable
    check_timetable(table)
    anchor = _first_anchor(definition, now)
    recurrence = t.schedule_index.check_definition(definition, anchor)
    _check_job(definition)
    if table.at is not None and table.at <= now:
        raise Invalid("that is in the past: submit the job itself to run it now", "at")
    if table.ends_at is not None and table.ends_at <= now:
        raise Invalid("that is in the past: it would never run", "ends_at")
    if recurrence.next_after(now) is None:
        raise Invalid("no instant is due between starts_at and ends_at", "ends_at")
    return recurrence


def _first_anchor(definition: ScheduleDefinition, now: Instant) -> Instant:
    """Instant that the intervals of a schedule created now count from."""
    anchor = _initial_state(definition, ScheduleState(now), now).anchor
    if anchor is not None:
        return anchor
    return now if definition.timetable.starts_at is None else definition.timetable.starts_at


def _check_job(definition: ScheduleDefinition) -> None:
    unknown = unknown_schedule_placeholders(definition.job)
    if unknown:
        known = ", ".join("{{" + name + "}}" for name in SCHEDULE_PLACEHOLDERS)
        raise Invalid(f"there is no placeholder {{{{{unknown[0]}}}}}; there are {known}", "job")
    if (
        definition.overlap in (Overlap.QUEUE, Overlap.REPLACE)
        and definition.job.concurrency is not None
    ):
        raise Invalid(
            f"overlap {definition.overlap} uses a concurrency key of its own: leave out the job's",
            "job.concurrency",
        )


def update(t: SchedulerState, event: UpdateSchedule, now: Instant) -> ScheduleAnswer:
    """Changes the definition; instants up to now stay decided as they are."""
    entry = t.schedule_index.entry(event.schedule_id)
    if entry.schedule.revision != event.revision:
        raise StalePreload(f"schedule {event.schedule_id} was changed since it was read")
    _check_change(t, entry, event.definition, now)
    return ScheduleAnswer(_change(t, entry, event.definition, event.paused, now).schedule)


def _check_change(
    t: SchedulerState, entry: ScheduleEntry, definition: ScheduleDefinition, now: Instant
) -> None:
    if definition.timetable != entry.schedule.definition.timetable:
        check_definition(t, definition, now)
    else:
        _check_job(definition)
    existing = t.schedule_index.by_name(definition.job.terms.tenant, definition.name)
    if existing is not None and existing is not entry:
        raise Conflict(
            f"there is a schedule {definition.name!r} already ({existing.schedule.id}):"
            " take another name"
        )


def _change(
    t: SchedulerState,
    entry: ScheduleEntry,
    definition: ScheduleDefinition,
    paused: bool,
    now: Instant,
) -> ScheduleEntry:
    before = entry.schedule
    if definition.timetable != before.definition.timetable:
        _skip_undecided(t, entry, SkipReason.CHANGED, now)
        state = entry.schedule.state
        state = replace(state, watermark=max(state.watermark, now))
        state = _initial_state(definition, state, now)
        if t.schedule_index.live_jobs_of(before.id) and definition.timetable.from_finish:
            state = replace(state, awaits_finish=True)
    else:
        state = entry.schedule.state
    state = replace(state, paused=paused)
    return t.schedule_index.put(
        replace(
            before, definition=definition, state=state, updated_at=now, revision=before.revision + 1
        )
    )


def _skip_undecided(t: SchedulerState, entry: ScheduleEntry, why: SkipReason, now: Instant) -> None:
    """Records instants that were due but not decided, before things change."""
    if entry.next_at is not None and entry.next_at <= now:
        skip_until(t, entry, now, why, now)


def delete(t: SchedulerState, event: DeleteSchedule, now: Instant) -> ScheduleGone:
    """Deletes the schedule; it does not fire again."""
    entry = t.schedule_index.entry(event.schedule_id)
    _skip_undecided(t, entry, SkipReason.CHANGED, now)
    t.schedule_index.drop(entry)
    return ScheduleGone(event.schedule_id)


def pause(t: SchedulerState, event: PauseSchedule, now: Instant) -> ScheduleAnswer:
    """Pauses or resumes; instants while paused are recorded as skipped."""
    entry = t.schedule_index.entry(event.schedule_id)
    state = entry.schedule.state
    if state.paused != event.paused:
        if state.paused and entry.due_at is not None and entry.due_at <= now:
            _skip_undecided(t, entry, SkipReason.PAUSED, now)
        t.schedule_index.set_state(entry, replace(entry.schedule.state, paused=event.paused))
        t.schedule_index.set_timer(entry)
    return ScheduleAnswer(entry.schedule)


def trigger(t: SchedulerState, event: TriggerSchedule, now: Instant) -> Triggered:
    """Runs the schedule once now, beside its timetable; `overlap` applies."""
    entry = t.schedule_index.entry(event.schedule_id)
    schedule = entry.schedule
    if entry.recurrence is None:
        raise Conflict(
            f"this server does not know time zone {schedule.definition.timetable.timezone}"
        )
    refused = apply_overlap_policy(t, schedule.id, schedule.definition, now)
    if refused is not None:
        raise Conflict(f"it cannot run now: {refused.detail}")
    nominal = max(now, schedule.state.triggered_at + 1)
    while (
        nominal == schedule.state.watermark or entry.recurrence.next_after(nominal - 1) == nominal
    ):
        nominal += 1  # this instant has a record of its own, or will have
    origin = Origin(schedule.id, nominal, RunCause.PERSON)
    job = run_now(t, entry, origin, now)
    occurrence = _occurrence_of(
        schedule, origin, FireDecision(OccurrenceDecision.FIRED), job.id, now
    )
    t.schedule_index.record(occurrence)
    t.schedule_index.set_state(entry, replace(schedule.state, triggered_at=nominal))
    return Triggered(occurrence, job.record())


def _occurrence_of(
    schedule: Schedule, origin: Origin, decision: FireDecision, job_id: JobId, now: Instant
) -> Occurrence:
    return Occurrence(
        schedule.id,
        origin.nominal,
        decision.decision,
        now,
        detail=decision.detail,
        job_id=job_id,
        cause=origin.cause,
        revision=schedule.revision,
    )


def schedule_backfill(t: SchedulerState, event: BackfillSchedule, now: Instant) -> Backfilled:
    """Submits runs for past instants, a limited number at once: all of them or none."""
    entry = t.schedule_index.entry(event.schedule_id)
    _check_schedule_backfill(t, entry, event, now)
    schedule = entry.schedule
    concurrency = Concurrency(f"rota.backfill.{event.backfill_id}", event.max_parallel)
    terms = replace(schedule.definition.job.terms, priority=event.priority)
    made = FireDecision(OccurrenceDecision.CAUGHT_UP, detail=f"backfill {event.backfill_id}")
    job_ids = []
    for nominal in event.instants:
        origin = Origin(schedule.id, nominal, RunCause.BACKFILL, event.backfill_id)
        spec = replace(spec_for(entry, origin, now), terms=terms, concurrency=concurrency)
        job = submit_independent(t, NewJob(id=run_id(origin, now), spec=spec), now)
        t.schedule_index.record(_occurrence_of(schedule, origin, made, job.id, now))
        job_ids.append(job.id)
    _split_skipped_ranges(t, entry, event, now)
    t.schedule_index.schedule_backfills[schedule.id] = now
    return Backfilled(event.backfill_id, tuple(job_ids))


def _check_schedule_backfill(
    t: SchedulerState, entry: ScheduleEntry, event: BackfillSchedule, now: Instant
) -> None:
    assert event.preloaded is not None, "a backfill must bring the occurrences that were read"
    read_at = event.preloaded.at
    if t.recently_finished.is_stale(read_at, now):
        raise StalePreload("the occurrences were read too long ago")
    if t.schedule_index.schedule_backfills.get(event.schedule_id, -1) >= read_at:
        raise StalePreload("another backfill has changed the occurrences since they were read")
    if entry.recurrence is None:
        raise Conflict(
            f"this server does not know time zone {entry.schedule.definition.timetable.timezone}"
        )
    if len(event.instants) > BACKFILL_JOBS_MAX:
        raise Invalid(f"more than {BACKFILL_JOBS_MAX} runs: take a shorter range", "to")
    if event.instants and max(event.instants) > entry.schedule.state.watermark:
        raise StalePreload("some of these instants are still to come")
    t.queue(entry.schedule.definition.job.terms.queue, now)


def _split_skipped_ranges(
    t: SchedulerState, entry: ScheduleEntry, event: BackfillSchedule, now: Instant
) -> None:
    """Splits a record that stands for many skipped instants at those that run now."""
    assert entry.recurrence is not None
    run = dict.fromkeys(event.instants)
    for first, until in event.ranges:
        rest = next(
            (at for at in entry.recurrence.between(first + 1, until) if at not in run), None
        )
        if first in run and rest is not None:
            t.schedule_index.record(
                Occurrence(
                    entry.schedule.id,
                    rest,
                    OccurrenceDecision.SKIPPED,
                    now,
                    SkipReason.TOO_OLD,
                    until=until,
                    revision=entry.schedule.revision,
                )
            )


def cancel_schedule_backfill(
    t: SchedulerState, event: CancelBackfill, now: Instant
) -> CountReceipt:
    """Cancels the runs of a schedule_backfill that have not ended."""
    runs = t.schedule_index.live_jobs_of(t.schedule_index.entry(event.schedule_id).schedule.id)
    count = 0
    for job_id in list(runs):
        job = t.jobs.get(job_id)
        origin = None if job is None else job.spec.origin
        if job is not None and origin is not None and origin.backfill_id == event.backfill_id:
            cancel_job(t, job, now)
            count += 1
    return CountReceipt(count)


def deploy(t: SchedulerState, event: DeploySchedules, now: Instant) -> Deployed:
    """Replaces the schedules of an app by these: everything is checked before anything changes."""
    names = [_name(new.definition) for new in event.schedules]
    if len(dict.fromkeys(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"two schedules are named {twice[1]!r}", "schedules")
    for index, new in enumerate(event.schedules):
        _check_deployed(t, event.owner, new, index, now)
    done: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": [], "retired": []}
    for new in event.schedules:
        done[_deploy_one(t, new, now)].append(new.definition.name)
    for entry in _owned(t, event):
        if _name(entry.schedule.definition) not in names:
            delete(t, DeleteSchedule(schedule_id=entry.schedule.id), now)
            done["retired"].append(entry.schedule.definition.name)
    return Deployed(**{word: tuple(found) for word, found in done.items()})


def _check_deployed(
    t: SchedulerState, owner: str, new: NewSchedule, index: int, now: Instant
) -> None:
    existing = t.schedule_index.by_name(*_name(new.definition))
    try:
        if existing is None:
            _check_new(t, new, now)
            return
        if existing.schedule.definition.owner != owner:
            owned_by = existing.schedule.definition.owner or "a person"
            raise Conflict(
                f"the schedule {new.definition.name!r} belongs to {owned_by}: take another name"
            )
        _check_change(t, existing, new.definition, now)
    except Invalid as refusal:
        raise Invalid(refusal.detail, f"schedules[{index}].{refusal.field}") from None


def _deploy_one(t: SchedulerState, new: NewSchedule, now: Instant) -> str:
    existing = t.schedule_index.by_name(*_name(new.definition))
    if existing is None:
        _add(t, new, now)
        return "created"
    if existing.schedule.definition == new.definition:
        return "unchanged"
    # A schedule that a person paused stays paused: a new version of the app must not undo that.
    _change(t, existing, new.definition, existing.schedule.state.paused, now)
    return "changed"


def _owned(t: SchedulerState, event: DeploySchedules) -> Iterable[ScheduleEntry]:
    definitions = [
        (entry, entry.schedule.definition) for entry in t.schedule_index.entries.values()
    ]
    return [
        entry
        for entry, definition in definitions
        if definition.owner == event.owner and event.tenant in (None, definition.job.terms.tenant)
    ]


def _name(definition: ScheduleDefinition) -> tuple[str, str]:
    return (definition.job.terms.tenant, definition.name)


def set_calendar(t: SchedulerState, event: SetCalendar, now: Instant) -> CalendarAnswer:
    """Sets the dates that are holidays for the schedules that name this calendar."""
    calendar = replace(event.calendar, updated_at=now)
    if (
        calendar.name not in t.schedule_index.calendars
        and len(t.schedule_index.calendars) >= CALENDARS_MAX
    ):
        raise TooMuch(f"there are {CALENDARS_MAX} calendars already")
    t.schedule_index.put_calendar(calendar)
    return CalendarAnswer(calendar)


def delete_calendar(t: SchedulerState, event: DeleteCalendar, now: Instant) -> CountReceipt:
    """Deletes a calendar that no schedule names."""
    if event.name not in t.schedule_index.calendars:
        raise NotFound("calendar", event.name)
    users = t.schedule_index.schedules_using(event.name)
    if users:
        raise Conflict(f"the schedule {users[0].schedule.definition.name!r} names this calendar")
    t.schedule_index.drop_calendar(event.name)
    return CountReceipt(1)
