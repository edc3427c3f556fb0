"""Endpoints of schedules, their occurrences, previews and backfills, and of calendars."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.api.auth.roles import Permission
from rota.api.convert.schedules import (
    calendar_of,
    calendar_view,
    definition_of,
    deploy_answer,
    instant_in,
    occurrence_view,
    preview_view,
    schedule_form,
    schedule_problem,
    schedule_view,
)
from rota.api.endpoints.bundles import check_bundles
from rota.api.limits import BACKFILL_SHOWN, INSTANT_MAX, OCCURRENCES_READ_AT_ONCE
from rota.api.pagination import (
    Cursor,
    Limit,
    PageQuery,
    comma_list_of,
    cut,
    foreign_cursor,
    page_of,
    read_choices,
    read_cursor,
    read_id_cursor,
)
from rota.api.parsing.merge_patch import drop_conflicting_fields, read_merged
from rota.api.parsing.request import check_depth
from rota.api.problems import invalid, not_found
from rota.api.recall import Build, expect, post, post_recalling
from rota.api.router import Call, NoQuery, Operation, Reply
from rota.api.tenant_scope import id_in, is_own, name_in, set_default_tenant, with_default_tenant
from rota.core.commands import (
    AnyInput,
    BackfillSchedule,
    CancelBackfill,
    CreateSchedule,
    DeleteCalendar,
    DeleteSchedule,
    DeploySchedules,
    NewSchedule,
    PauseSchedule,
    Preloaded,
    SetCalendar,
    TriggerSchedule,
    UpdateSchedule,
)
from rota.core.errors import Invalid
from rota.core.info_model import ScheduleInfo
from rota.core.limits import BACKFILL_JOBS_MAX, BACKFILL_PRIORITY_STEP
from rota.core.model import Instant, ScheduleId
from rota.core.outcome import (
    AnyReceipt,
    Backfilled,
    CalendarAnswer,
    CountReceipt,
    Deployed,
    ScheduleAnswer,
    Triggered,
)
from rota.core.schedule_model import Calendar, OccurrenceDecision, Schedule
from rota.store.queries import OccurrenceQuery
from rota.wire.formats import dec_hook
from rota.wire.jobs import Moment
from rota.wire.limits import PAGE_ITEMS_DEFAULT, PRIORITY_MAX
from rota.wire.queues import CountAnswer
from rota.wire.schedules import (
    BackfillAnswer,
    BackfillSpec,
    CalendarPage,
    CalendarSpec,
    CalendarView,
    Count,
    DeployAnswer,
    DeploySpec,
    ForeseenView,
    OccurrencePage,
    OccurrenceView,
    PreviewAnswer,
    PreviewSpec,
    SchedulePage,
    ScheduleSpec,
    ScheduleView,
)

_decoder = msgspec.json.Decoder(ScheduleSpec, dec_hook=dec_hook)
_WHEN = ("cron", "interval", "at")


class SchedulesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of schedules."""

    name: str | None = None
    tenant: str | None = None
    owner: str | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


class PreviewQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Range of a preview."""

    count: Count = 10
    after: (
        Annotated[Moment, Meta(description="Only occurrences after this time; default: now.")]
        | None
    ) = None


class OccurrencesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of a schedule's occurrences."""

    outcome: Annotated[str, comma_list_of(OccurrenceDecision)] | None = None
    after: Moment | None = None
    before: Moment | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "POST",
    "/schedules",
    "Create a schedule",
    tag="Schedules",
    permission=Permission.SUBMIT,
    body=ScheduleSpec,
    answer=ScheduleView,
    status=201,
    errors=(409,),
    description=(
        "Each occurrence creates one job, once. Exactly one of `cron`, `interval` and `at` is "
        "needed. A name is unique within a tenant."
    ),
    examples={"body": "schedule_spec", "answer": "schedule"},
)
async def create_schedule(call: Call[ScheduleSpec, NoQuery]) -> Reply:
    set_default_tenant(call, [call.body.job])
    await check_bundles(call, [call.body.job], "job.")
    schedule_id = ScheduleId(call.state.ids.mint(call.deps.brain.clock.now()))
    new = NewSchedule(id=schedule_id, definition=definition_of(call.body), paused=call.body.paused)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return CreateSchedule(schedule=new, key=call.key, preloaded=preloaded)

    created = expect(await post_definition(call, build), ScheduleAnswer).schedule
    return Reply(await _view(call, created), {"Location": f"/schedules/{created.id}"})


async def post_definition(call: Call[Any, Any], build: Build) -> AnyReceipt:
    """Posts a command; a refused definition names its field."""
    try:
        return await post(call, build)
    except Invalid as refusal:
        raise schedule_problem(refusal) from None


async def _view(call: Call[Any, Any], schedule: Schedule) -> ScheduleView:
    """Returns the schedule as it is now; as answered, if it is gone or a key repeats an older
    answer."""
    await call.deps.brain.settled()
    info = call.deps.brain.schedule(schedule.id)
    if info is None or info.schedule.revision != schedule.revision:
        info = ScheduleInfo(schedule, None, None, ())
    return schedule_view(info)


@Operation(
    "GET",
    "/schedules",
    "List schedules, newest first",
    tag="Schedules",
    permission=Permission.READ,
    query=SchedulesQuery,
    answer=SchedulePage,
    examples={"answer": "list_schedules"},
)
async def list_schedules(call: Call[None, SchedulesQuery]) -> SchedulePage:
    await call.deps.brain.settled()
    asked, before = call.query, read_id_cursor(call.query.cursor)

    def is_shown(schedule: Schedule) -> bool:
        due = before is None or schedule.id < before
        return due and is_own(call, schedule.definition.job.terms) and _matches(schedule, asked)

    found = list(islice(call.deps.brain.schedules(is_shown), asked.limit + 1))
    items, next_cursor = cut(found, asked.limit, _id)
    return SchedulePage([schedule_view(one) for one in items], next_cursor)


def _id(info: ScheduleInfo) -> str:
    return info.schedule.id


def _matches(schedule: Schedule, asked: SchedulesQuery) -> bool:
    definition = schedule.definition
    return (
        asked.name in (None, definition.name)
        and asked.tenant in (None, definition.job.terms.tenant)
        and asked.owner in (None, definition.owner)
    )


@Operation(
    "GET",
    "/schedules/{schedule_id}",
    "Show a schedule",
    tag="Schedules",
    permission=Permission.READ,
    answer=ScheduleView,
    errors=(404,),
    examples={"answer": "schedule"},
)
async def show_schedule(call: Call[None, NoQuery]) -> ScheduleView:
    await call.deps.brain.settled()
    return schedule_view(existing(call))


@Operation(
    "PATCH",
    "/schedules/{schedule_id}",
    "Change a schedule",
    tag="Schedules",
    permission=Permission.SUBMIT,
    body=dict,
    patch_of=ScheduleSpec,
    answer=ScheduleView,
    errors=(404, 409),
    description=(
        "JSON Merge Patch; null restores a default. Past occurrences do not change: a new "
        "expression applies from now on."
    ),
    examples={"body": "patch_schedule_body", "answer": "schedule"},
)
async def patch_schedule(call: Call[dict[str, Any], NoQuery]) -> ScheduleView:
    """Merges the patch, validates the result and replaces the schedule unless it changed
    meanwhile."""
    schedule_id = existing(call).schedule.id
    check_depth("", call.raw, call.body)
    patch = with_default_tenant(call, call.body)

    def build(preloaded: Preloaded | None) -> AnyInput:
        before = existing(call).schedule
        spec = _patched(before, patch)
        return UpdateSchedule(
            schedule_id=schedule_id,
            definition=definition_of(spec, before.definition.owner),
            revision=before.revision,
            paused=spec.paused,
            key=call.key,
            preloaded=preloaded,
        )

    try:
        receipt = await post_recalling(call, read_nothing, build)
    except Invalid as refusal:
        raise schedule_problem(refusal) from None
    return await _view(call, expect(receipt, ScheduleAnswer).schedule)


async def read_nothing() -> Sequence[Any]:
    """Reads nothing, for commands that need only what their key was answered."""
    return ()


def _patched(schedule: Schedule, patch: dict[str, Any]) -> ScheduleSpec:
    form = schedule_form(schedule)
    if any(patch.get(name) is not None for name in _WHEN):
        # A patch that names one of cron, interval and at replaces the other.
        form |= dict.fromkeys(_WHEN)
    drop_conflicting_fields(form["job"], patch.get("job"))
    return read_merged(form, patch, ScheduleSpec, _decoder.decode)


@Operation(
    "DELETE",
    "/schedules/{schedule_id}",
    "Delete a schedule",
    tag="Schedules",
    permission=Permission.SUBMIT,
    status=204,
    errors=(404,),
    description="Its jobs continue, and its occurrences can still be read.",
)
async def delete_schedule(call: Call[None, NoQuery]) -> None:
    schedule_id = _own_id(call)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return DeleteSchedule(schedule_id=schedule_id, key=call.key, preloaded=preloaded)

    await post(call, build)


@Operation(
    "POST",
    "/schedules/{schedule_id}/pause",
    "Pause a schedule",
    tag="Schedules",
    permission=Permission.SUBMIT,
    answer=ScheduleView,
    errors=(404,),
    description="Its occurrences are recorded as skipped.",
    examples={"answer": "pause_schedule"},
)
async def pause_schedule(call: Call[None, NoQuery]) -> ScheduleView:
    return await _pause(call, paused=True)


@Operation(
    "POST",
    "/schedules/{schedule_id}/resume",
    "Resume a schedule",
    tag="Schedules",
    permission=Permission.SUBMIT,
    answer=ScheduleView,
    errors=(404,),
    description="It continues with the next occurrence.",
    examples={"answer": "schedule"},
)
async def resume_schedule(call: Call[None, NoQuery]) -> ScheduleView:
    return await _pause(call, paused=False)


async def _pause(call: Call[None, NoQuery], *, paused: bool) -> ScheduleView:
    schedule_id = _own_id(call)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return PauseSchedule(
            schedule_id=schedule_id, paused=paused, key=call.key, preloaded=preloaded
        )

    return await _view(call, expect(await post(call, build), ScheduleAnswer).schedule)


@Operation(
    "POST",
    "/schedules/{schedule_id}/trigger",
    "Run a schedule's job now",
    tag="Schedules",
    permission=Permission.SUBMIT,
    answer=OccurrenceView,
    status=201,
    errors=(404, 409),
    description=(
        "Also while it is paused. `overlap` applies: with `skip` the answer is 409 while an "
        "earlier job is running."
    ),
    examples={"answer": "trigger_schedule"},
)
async def trigger_schedule(call: Call[None, NoQuery]) -> Reply:
    schedule_id = _own_id(call)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return TriggerSchedule(schedule_id=schedule_id, key=call.key, preloaded=preloaded)

    created = expect(await post(call, build), Triggered)
    return Reply(occurrence_view(created.occurrence), {"Location": f"/jobs/{created.job.id}"})


@Operation(
    "POST",
    "/schedules/deploy",
    "Set all schedules of an app",
    tag="Schedules",
    permission=Permission.SUBMIT,
    body=DeploySpec,
    answer=DeployAnswer,
    errors=(409,),
    description=(
        "All or none. Schedules that the owner deployed before and does not name are removed."
    ),
    examples={"body": "deploy_spec", "answer": "deployed"},
)
async def deploy_schedules(call: Call[DeploySpec, NoQuery]) -> DeployAnswer:
    specs = [spec.job for spec in call.body.schedules]
    set_default_tenant(call, specs)
    await check_bundles(call, specs, "schedules[{}].job.")
    now, owner = call.deps.brain.clock.now(), call.body.owner
    new = tuple(
        NewSchedule(
            id=ScheduleId(call.state.ids.mint(now)),
            definition=definition_of(spec, owner, f"schedules[{index}]."),
            paused=spec.paused,
        )
        for index, spec in enumerate(call.body.schedules)
    )

    def build(preloaded: Preloaded | None) -> AnyInput:
        return DeploySchedules(
            owner=owner,
            schedules=new,
            tenant=call.caller.tenant,
            key=call.key,
            preloaded=preloaded,
        )

    return deploy_answer(expect(await post_definition(call, build), Deployed))


@Operation(
    "POST",
    "/schedules/preview",
    "Preview the occurrences of a new schedule",
    tag="Schedules",
    permission=Permission.READ,
    repeatable=True,
    body=PreviewSpec,
    query=PreviewQuery,
    answer=PreviewAnswer,
    description=(
        "Takes a schedule's body, checks it and stores nothing. Name and job may be left out. "
        "`note` marks occurrences that a clock change or a holiday affects."
    ),
    examples={"body": "preview_spec", "answer": "preview"},
)
async def preview_spec(call: Call[PreviewSpec, PreviewQuery]) -> PreviewAnswer:
    await call.deps.brain.settled()
    after = _after(call)
    try:
        found = call.deps.brain.foresee_plan(definition_of(call.body), after, call.query.count)
    except Invalid as refusal:
        raise schedule_problem(refusal) from None
    return PreviewAnswer([preview_view(one) for one in found])


@Operation(
    "GET",
    "/schedules/{schedule_id}/preview",
    "Preview the occurrences of a schedule",
    tag="Schedules",
    permission=Permission.READ,
    query=PreviewQuery,
    answer=PreviewAnswer,
    errors=(404,),
    examples={"answer": "preview"},
)
async def preview_schedule(call: Call[None, PreviewQuery]) -> PreviewAnswer:
    """Lists occurrences to come, also of a paused schedule."""
    await call.deps.brain.settled()
    found = call.deps.brain.foresee(_own_id(call), _after(call), call.query.count)
    return PreviewAnswer([preview_view(one) for one in found])


def _after(call: Call[Any, PreviewQuery]) -> Instant:
    asked = instant_in(call.query.after, "after")
    return call.deps.brain.clock.now() if asked is None else asked


@Operation(
    "GET",
    "/schedules/{schedule_id}/occurrences",
    "List the occurrences of a schedule with their outcomes",
    tag="Schedules",
    permission=Permission.READ,
    query=OccurrencesQuery,
    answer=OccurrencePage,
    errors=(404,),
    description="Newest first. `reason` and `message` say why one was skipped.",
    examples={"answer": "list_occurrences"},
)
async def list_occurrences(call: Call[None, OccurrencesQuery]) -> OccurrencePage:
    """Lists occurrences with their outcomes. They outlive the schedule, except for a tenant's
    token."""
    asked, schedule_id = call.query, _own_id(call)
    last = read_cursor(asked.cursor)
    if last is not None and not (last.isdecimal() and int(last) <= INSTANT_MAX):
        raise foreign_cursor()
    before = instant_in(asked.before, "before") if last is None else int(last)
    found = await call.deps.queries.find_occurrences(
        OccurrenceQuery(
            schedule_id=schedule_id,
            decisions=read_choices(asked.outcome, OccurrenceDecision, "outcome"),
            after=instant_in(asked.after, "after"),
            before=before,
            limit=asked.limit + 1,
        )
    )
    if not found and call.deps.brain.schedule(schedule_id) is None:
        raise not_found("schedule", schedule_id)
    items, next_cursor = cut(found, asked.limit, lambda one: str(one.nominal))
    return OccurrencePage([occurrence_view(one) for one in items], next_cursor)


def _id_in(call: Call[Any, Any]) -> ScheduleId:
    return ScheduleId(id_in(call, "schedule_id", "schedule"))


def _own_id(call: Call[Any, Any]) -> ScheduleId:
    """Returns the id in the path; a tenant's caller can name only its own schedules."""
    return _id_in(call) if call.caller.tenant is None else existing(call).schedule.id


def existing(call: Call[Any, Any]) -> ScheduleInfo:
    """Returns the schedule that the path names."""
    schedule_id = _id_in(call)
    info = call.deps.brain.schedule(schedule_id)
    if info is None or not is_own(call, info.schedule.definition.job.terms):
        raise not_found("schedule", schedule_id)
    return info


class PastRange(msgspec.Struct):
    """Past range of a schedule, as its occurrences show it."""

    missing: list[Instant]
    """Occurrences without a job."""
    done: int
    ranges: list[tuple[Instant, Instant]]
    """Records that stand for many occurrences."""


@Operation(
    "POST",
    "/schedules/{schedule_id}/backfill",
    "Backfill a schedule for a past range",
    tag="Schedules",
    permission=Permission.SUBMIT,
    body=BackfillSpec,
    answer=BackfillAnswer,
    status=200,
    also={201: BackfillAnswer},
    errors=(404,),
    description=(
        "Occurrences that have a job already are left out, so a repeat continues where the last "
        "one stopped. 201 when jobs were created, 200 for a `dry_run`."
    ),
    examples={"body": "backfill_spec", "answer": "backfill"},
)
async def backfill_schedule(call: Call[BackfillSpec, NoQuery]) -> BackfillAnswer | Reply:
    """Creates jobs for occurrences without one in a past range, or says which these would be."""
    schedule_id = existing(call).schedule.id
    start, end = _backfill_range(call)
    if call.body.dry_run:
        past = await _read_past(call, schedule_id, start, end)
        return _backfill_answer(call, schedule_id, past, None)
    backfill_id = call.state.ids.mint(call.deps.brain.clock.now())
    read: list[PastRange] = []

    async def read_range() -> Sequence[Any]:
        read[:] = [await _read_past(call, schedule_id, start, end)]
        return ()

    def build(preloaded: Preloaded | None) -> AnyInput:
        return BackfillSchedule(
            schedule_id=schedule_id,
            backfill_id=backfill_id,
            instants=tuple(read[0].missing),
            ranges=tuple(read[0].ranges),
            max_parallel=call.body.max_parallel,
            priority=_priority(call),
            key=call.key,
            preloaded=preloaded,
        )

    created = expect(await post_recalling(call, read_range, build), Backfilled)
    return Reply(_backfill_answer(call, schedule_id, read[0], created), {}, status=201)


def _backfill_range(call: Call[BackfillSpec, NoQuery]) -> tuple[Instant, Instant]:
    start, end = instant_in(call.body.start, "from"), instant_in(call.body.end, "to")
    assert start is not None
    assert end is not None
    if end < start:
        raise invalid("to", "`to` is before `from`")
    return start, end


async def _read_past(
    call: Call[Any, Any], schedule_id: ScheduleId, start: Instant, end: Instant
) -> PastRange:
    """Reads the occurrences in the range, and which of them have a job."""
    end = min(end, existing(call).schedule.state.watermark)
    instants = call.deps.brain.instants(schedule_id, start, end, BACKFILL_JOBS_MAX + 1)
    if len(instants) > BACKFILL_JOBS_MAX:
        raise invalid("to", f"more than {BACKFILL_JOBS_MAX} jobs: use a shorter range")
    deployed: dict[Instant, None] = {}
    ranges: list[tuple[Instant, Instant]] = []
    before = end + 1
    while True:
        page = await call.deps.queries.find_occurrences(
            OccurrenceQuery(
                schedule_id=schedule_id,
                after=start - 1,
                before=before,
                limit=OCCURRENCES_READ_AT_ONCE,
            )
        )
        deployed |= {one.nominal: None for one in page if one.job_id is not None}
        ranges += [(one.nominal, one.until) for one in page if one.until is not None]
        if len(page) < OCCURRENCES_READ_AT_ONCE:
            break
        before = page[-1].nominal
    missing = [at for at in instants if at not in deployed]
    return PastRange(missing, len(instants) - len(missing), ranges)


def _priority(call: Call[BackfillSpec, NoQuery]) -> int:
    if call.body.priority is not None:
        return call.body.priority
    own = existing(call).schedule.definition.job.terms.priority
    return max(-PRIORITY_MAX, own - BACKFILL_PRIORITY_STEP)


def _backfill_answer(
    call: Call[Any, Any], schedule_id: ScheduleId, past: PastRange, created: Backfilled | None
) -> BackfillAnswer:
    return BackfillAnswer(
        backfill_id=None if created is None else created.backfill_id,
        count=len(past.missing) if created is None else len(created.job_ids),
        already=past.done,
        job_ids=[] if created is None else list(created.job_ids),
        items=_previewed(call, schedule_id, past.missing[:BACKFILL_SHOWN]),
        dry_run=created is None,
    )


def _previewed(
    call: Call[Any, Any], schedule_id: ScheduleId, instants: Sequence[Instant]
) -> list[ForeseenView]:
    brain = call.deps.brain
    return [preview_view(one) for at in instants for one in brain.foresee(schedule_id, at - 1, 1)]


@Operation(
    "POST",
    "/schedules/{schedule_id}/backfills/{backfill_id}/cancel",
    "Cancel the remaining jobs of a backfill",
    tag="Schedules",
    permission=Permission.SUBMIT,
    answer=CountAnswer,
    errors=(404,),
    examples={"answer": "cancel_backfill"},
)
async def cancel_backfill(call: Call[None, NoQuery]) -> CountAnswer:
    schedule_id, backfill_id = existing(call).schedule.id, call.path["backfill_id"].lower()

    def build(preloaded: Preloaded | None) -> AnyInput:
        return CancelBackfill(
            schedule_id=schedule_id, backfill_id=backfill_id, key=call.key, preloaded=preloaded
        )

    return CountAnswer(expect(await post(call, build), CountReceipt).count)


@Operation(
    "GET",
    "/calendars",
    "List calendars of holidays, by name",
    tag="Schedules",
    permission=Permission.READ,
    query=PageQuery,
    answer=CalendarPage,
    examples={"answer": "list_calendars"},
)
async def list_calendars(call: Call[None, PageQuery]) -> CalendarPage:
    await call.deps.brain.settled()
    items, next_cursor = page_of(call.deps.brain.calendars(), call.query, lambda one: one.name)
    return CalendarPage([_calendar_view(call, one) for one in items], next_cursor)


@Operation(
    "GET",
    "/calendars/{name}",
    "Show a calendar",
    tag="Schedules",
    permission=Permission.READ,
    answer=CalendarView,
    errors=(404,),
    examples={"answer": "calendar"},
)
async def show_calendar(call: Call[None, NoQuery]) -> CalendarView:
    await call.deps.brain.settled()
    name = call.path["name"]
    found = next((one for one in call.deps.brain.calendars() if one.name == name), None)
    if found is None:
        raise not_found("calendar", name[:100])
    return _calendar_view(call, found)


@Operation(
    "PUT",
    "/calendars/{name}",
    "Set a calendar's dates",
    tag="Schedules",
    permission=Permission.OPERATE,
    body=CalendarSpec,
    answer=CalendarView,
    examples={"body": "put_calendar_body", "answer": "calendar"},
)
async def put_calendar(call: Call[CalendarSpec, NoQuery]) -> CalendarView:
    calendar = calendar_of(name_in(call), call.body)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return SetCalendar(calendar=calendar, key=call.key, preloaded=preloaded)

    return _calendar_view(call, expect(await post(call, build), CalendarAnswer).calendar)


@Operation(
    "DELETE",
    "/calendars/{name}",
    "Delete a calendar that no schedule uses",
    tag="Schedules",
    permission=Permission.OPERATE,
    status=204,
    errors=(404, 409),
)
async def delete_calendar(call: Call[None, NoQuery]) -> None:
    """Deletes a calendar; refused while a schedule uses it."""
    name = call.path["name"]

    def build(preloaded: Preloaded | None) -> AnyInput:
        return DeleteCalendar(name=name, key=call.key, preloaded=preloaded)

    await post(call, build)


def _calendar_view(call: Call[Any, Any], calendar: Calendar) -> CalendarView:
    def uses(schedule: Schedule) -> bool:
        definition = schedule.definition
        return calendar.name in definition.timetable.calendars and is_own(
            call, definition.job.terms
        )

    return calendar_view(calendar, sum(1 for _ in call.deps.brain.schedules(uses)))
