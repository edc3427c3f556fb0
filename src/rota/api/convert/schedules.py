"""Conversion of schedules and calendars between wire and core."""

from __future__ import annotations

import difflib
from datetime import date, datetime
from typing import Any

import msgspec

from rota.api.convert.jobs import check_relative, instant_of, spec_of, submitted_form
from rota.api.limits import RUNS_SHOWN
from rota.api.problems import invalid
from rota.core.errors import Invalid
from rota.core.info_model import ScheduleInfo
from rota.core.model import Instant, JobId, JobRecord, JobState, Life, Spec
from rota.core.outcome import Deployed
from rota.core.schedule_model import (
    SKIP_REASON_MEANING,
    Calendar,
    CatchUp,
    Gap,
    Occurrence,
    OnHoliday,
    Overlap,
    RepeatedTime,
    Schedule,
    ScheduleDefinition,
    Timetable,
)
from rota.core.schedules.recurrence import PreviewedInstant
from rota.engine.time_zones import zone_names
from rota.wire.formats import from_instant, from_instant_or_none, number
from rota.wire.jobs import JobSpec, Noop
from rota.wire.problems import FieldError, ProblemError
from rota.wire.schedules import (
    CalendarSpec,
    CalendarView,
    DeployAnswer,
    DstView,
    ForeseenView,
    LastView,
    OccurrenceView,
    PreviewSpec,
    ScheduleFields,
    ScheduleSpec,
    ScheduleView,
)

_UNNAMED = JobSpec(name="preview", task=Noop())


def definition_of(
    spec: ScheduleSpec | PreviewSpec, owner: str = "", where: str = ""
) -> ScheduleDefinition:
    """Converts a schedule; `where` is its path in a deployment."""
    return ScheduleDefinition(
        name=spec.name or _UNNAMED.name,
        timetable=_recurrence(spec, where),
        job=_template(spec.job or _UNNAMED, where + "job."),
        catch_up=CatchUp(spec.catch_up),
        catch_up_window_ms=spec.catch_up_window.ms,
        overlap=Overlap(spec.overlap),
        max_concurrency=spec.max_concurrency,
        owner=owner,
    )


def _recurrence(spec: ScheduleFields, where: str) -> Timetable:
    return Timetable(
        cron=spec.cron or "",
        interval_ms=None if spec.interval is None else spec.interval.ms,
        at=instant_in(spec.at, where + "at"),
        timezone=spec.timezone,
        gap=Gap(spec.dst.gap),
        fold=RepeatedTime(spec.dst.overlap),
        from_finish=spec.origin == "finish",
        starts_at=instant_in(spec.starts_at, where + "starts_at"),
        ends_at=instant_in(spec.ends_at, where + "ends_at"),
        jitter_ms=spec.jitter.ms,
        calendars=tuple(dict.fromkeys(spec.calendars)),
        on_holiday=OnHoliday(spec.on_holiday),
    )


def instant_in(moment: datetime | None, field: str) -> Instant | None:
    return None if moment is None else instant_of(moment, field)


def _template(job: JobSpec, where: str) -> Spec:
    if job.dependencies:
        raise invalid(where + "dependencies", "the job of a schedule cannot depend on another job")
    for name in ("run_at", "expires_at"):
        if getattr(job, name) is not None:
            raise invalid(where + name, "the schedule says when: leave it out")
    check_relative(job, where)
    return spec_of(job, 0, (), where)


def schedule_problem(refusal: Invalid) -> ProblemError:
    """Converts a refused definition; an unknown time zone gets a suggestion."""
    detail, field = refusal.detail, refusal.field
    if field.endswith("timezone"):
        asked = detail.partition("'")[2].partition("'")[0]
        near = difflib.get_close_matches(asked, zone_names(), n=1, cutoff=0.6)
        if near:
            detail += f"; did you mean {near[0]}?"
    return ProblemError(422, refusal.code, detail, errors=[FieldError(field, detail)])


def schedule_view(info: ScheduleInfo) -> ScheduleView:
    schedule, definition = info.schedule, info.schedule.definition
    table, state = definition.timetable, schedule.state
    return ScheduleView(
        schedule_id=schedule.id,
        name=definition.name,
        cron=table.cron or None,
        interval=None if table.interval_ms is None else number(table.interval_ms),
        at=from_instant_or_none(table.at),
        timezone=table.timezone,
        origin="finish" if table.from_finish else "start",
        starts_at=from_instant_or_none(table.starts_at),
        ends_at=from_instant_or_none(table.ends_at),
        dst=DstView(table.gap.value, table.fold.value),
        jitter=number(table.jitter_ms),
        calendars=list(table.calendars),
        on_holiday=table.on_holiday.value,
        catch_up=definition.catch_up.value,
        catch_up_window=number(definition.catch_up_window_ms),
        overlap=definition.overlap.value,
        max_concurrency=definition.max_concurrency,
        paused=state.paused,
        job=job_form(definition.job),
        status=_status(info),
        next_at=None if state.paused else from_instant_or_none(info.next_at),
        last=_last(schedule),
        running=list(info.runs[:RUNS_SHOWN]),
        owner=definition.owner or None,
        trouble=info.problem or None,
        revision=schedule.revision,
        created_at=from_instant(schedule.created_at),
        updated_at=from_instant(schedule.updated_at),
    )


def _status(info: ScheduleInfo) -> Any:
    state = info.schedule.state
    if state.paused:
        return "paused"
    over = info.next_at is None and not state.awaits_finish and not info.problem
    return "ended" if over else "active"


def _last(schedule: Schedule) -> LastView | None:
    state = schedule.state
    if state.last_at is None or state.last_decision is None:
        return None
    return LastView(from_instant(state.last_at), state.last_decision.value, state.last_job_id)


def job_form(job: Spec) -> dict[str, Any]:
    """Returns a job template as it would be submitted, without what the schedule determines."""
    form = submitted_form(JobRecord(JobId(""), job, Life(JobState.PENDING)))
    form["payload"] = msgspec.json.decode(job.payload or b"{}")
    form["finish_by"] = None if job.finish_by is None else number(job.finish_by)
    return {
        name: value
        for name, value in form.items()
        if name not in ("dependencies", "run_at", "expires_at")
    }


def schedule_form(schedule: Schedule) -> dict[str, Any]:
    """Returns a schedule as it would be submitted again: what a patch is merged into."""
    view = msgspec.to_builtins(schedule_view(ScheduleInfo(schedule, None, None, ())))
    known = [field.encode_name for field in msgspec.structs.fields(ScheduleSpec)]
    return {name: view[name] for name in known}


def occurrence_view(one: Occurrence) -> OccurrenceView:
    """Converts an occurrence from the schedule's history."""
    message = SKIP_REASON_MEANING.get(one.skip_reason, "")
    text = "; ".join(part for part in (message, one.detail) if part)
    return OccurrenceView(
        schedule_id=one.schedule_id,
        at=from_instant(one.nominal),
        outcome=one.decision.value,
        reason=one.skip_reason.value or None,
        message=text or None,
        job_id=one.job_id,
        cause=one.cause.value,
        decided_at=from_instant(one.decided_at),
        late=number(one.late_ms),
        until=from_instant_or_none(one.until),
        revision=one.revision,
    )


def deploy_answer(deployed: Deployed) -> DeployAnswer:
    """Converts what a deployment of schedules or triggers changed."""
    return DeployAnswer(
        created=list(deployed.created),
        changed=list(deployed.changed),
        unchanged=list(deployed.unchanged),
        retired=list(deployed.retired),
    )


def preview_view(one: PreviewedInstant) -> ForeseenView:
    return ForeseenView(from_instant(one.at), one.local, one.note or None)


def calendar_of(name: str, spec: CalendarSpec) -> Calendar:
    return Calendar(name, tuple(sorted({day.toordinal() for day in spec.dates})))


def calendar_view(calendar: Calendar, users: int) -> CalendarView:
    """Converts a calendar, with the number of schedules that use it."""
    dates = [date.fromordinal(day) for day in calendar.days]
    return CalendarView(calendar.name, dates, users, from_instant(calendar.updated_at))
