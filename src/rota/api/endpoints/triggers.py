"""Endpoints of triggers: create, change, deploy, preview; their decisions about events."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rota.api.auth.roles import Permission
from rota.api.convert.schedules import deploy_answer
from rota.api.convert.triggers import (
    arrival_view,
    trial_view,
    trigger_definition_of,
    trigger_form,
    trigger_problem,
    trigger_view,
)
from rota.api.endpoints.bundles import check_bundles
from rota.api.endpoints.events import of_caller
from rota.api.endpoints.schedules import read_nothing
from rota.api.pagination import Cursor, Limit, comma_list_of, cut, read_choices, read_id_cursor
from rota.api.parsing.cloudevents import read_structured
from rota.api.parsing.merge_patch import drop_conflicting_fields, read_merged
from rota.api.parsing.request import check_depth
from rota.api.problems import invalid, not_found
from rota.api.recall import Build, expect, post, post_recalling
from rota.api.router import Call, NoQuery, Operation, Reply
from rota.api.tenant_scope import id_in, is_own, set_default_tenant, with_default_tenant
from rota.core.commands import (
    AnyInput,
    CreateTrigger,
    DeleteTrigger,
    DeployTriggers,
    NewTrigger,
    PauseTrigger,
    Preloaded,
    UpdateTrigger,
)
from rota.core.errors import Invalid
from rota.core.info_model import TriggerInfo
from rota.core.model import TriggerId
from rota.core.outcome import AnyReceipt, Deployed, TriggerAnswer
from rota.core.trigger_model import EventDecision, Trigger
from rota.store.queries import TriggerDecisionQuery
from rota.wire.events import (
    ArrivalPage,
    DeployTriggersSpec,
    TrialAnswer,
    TrialSpec,
    TriggerPage,
    TriggerSpec,
    TriggerView,
)
from rota.wire.formats import dec_hook
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.schedules import DeployAnswer

_decoder = msgspec.json.Decoder(TriggerSpec, dec_hook=dec_hook)


class TriggersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of triggers."""

    name: str | None = None
    event: str | None = None
    tenant: str | None = None
    owner: str | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


class ArrivalsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of a trigger's decisions."""

    outcome: Annotated[str, comma_list_of(EventDecision)] | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "POST",
    "/triggers",
    "Create a trigger",
    tag="Triggers",
    permission=Permission.SUBMIT,
    body=TriggerSpec,
    answer=TriggerView,
    status=201,
    errors=(409,),
    description=(
        "Each event that matches the type and the filter creates a job. A name is unique within a "
        "tenant."
    ),
    examples={"body": "trigger_spec", "answer": "trigger"},
)
async def create_trigger(call: Call[TriggerSpec, NoQuery]) -> Reply:
    set_default_tenant(call, [call.body.job])
    await check_bundles(call, [call.body.job], "job.")
    trigger_id = TriggerId(call.state.ids.mint(call.deps.brain.clock.now()))
    new = NewTrigger(
        id=trigger_id, definition=trigger_definition_of(call.body), paused=call.body.paused
    )

    def build(preloaded: Preloaded | None) -> AnyInput:
        return CreateTrigger(trigger=new, key=call.key, preloaded=preloaded)

    created = expect(await _post_definition(call, build), TriggerAnswer).trigger
    return Reply(await _view(call, created), {"Location": f"/triggers/{created.id}"})


async def _post_definition(call: Call[Any, Any], build: Build) -> AnyReceipt:
    try:
        return await post(call, build)
    except Invalid as refusal:
        raise trigger_problem(refusal) from None


async def _view(call: Call[Any, Any], trigger: Trigger) -> TriggerView:
    """Returns the trigger as it is now; as answered, if it is gone or a key repeats an older
    answer."""
    await call.deps.brain.settled()
    info = call.deps.brain.trigger(trigger.id)
    if info is None or info.trigger.revision != trigger.revision:
        info = TriggerInfo(trigger, 0, None)
    return trigger_view(info)


@Operation(
    "GET",
    "/triggers",
    "List triggers, newest first",
    tag="Triggers",
    permission=Permission.READ,
    query=TriggersQuery,
    answer=TriggerPage,
    examples={"answer": "list_triggers"},
)
async def list_triggers(call: Call[None, TriggersQuery]) -> TriggerPage:
    await call.deps.brain.settled()
    asked, before = call.query, read_id_cursor(call.query.cursor)
    found = [
        info
        for info in call.deps.brain.triggers()
        if (before is None or info.trigger.id < before)
        and is_own(call, info.trigger.definition.job.terms)
        and _matches(info.trigger, asked)
    ]
    found.sort(key=_id, reverse=True)
    items, next_cursor = cut(found[: asked.limit + 1], asked.limit, _id)
    return TriggerPage([trigger_view(one) for one in items], next_cursor)


def _id(info: TriggerInfo) -> str:
    return info.trigger.id


def _matches(trigger: Trigger, asked: TriggersQuery) -> bool:
    definition = trigger.definition
    return (
        asked.name in (None, definition.name)
        and asked.event in (None, definition.event)
        and asked.tenant in (None, definition.job.terms.tenant)
        and asked.owner in (None, definition.owner)
    )


@Operation(
    "GET",
    "/triggers/{trigger_id}",
    "Show a trigger",
    tag="Triggers",
    permission=Permission.READ,
    answer=TriggerView,
    errors=(404,),
    examples={"answer": "trigger"},
)
async def show_trigger(call: Call[None, NoQuery]) -> TriggerView:
    await call.deps.brain.settled()
    return trigger_view(_existing(call))


@Operation(
    "PATCH",
    "/triggers/{trigger_id}",
    "Change a trigger",
    tag="Triggers",
    permission=Permission.SUBMIT,
    body=dict,
    patch_of=TriggerSpec,
    answer=TriggerView,
    errors=(404, 409),
    description=(
        "JSON Merge Patch; null restores a default. A filter is replaced as a whole. The change "
        "also applies to buffered events."
    ),
    examples={"body": "patch_trigger_body", "answer": "trigger"},
)
async def patch_trigger(call: Call[dict[str, Any], NoQuery]) -> TriggerView:
    """Merges the patch, validates the result and replaces the trigger unless it changed
    meanwhile."""
    trigger_id = _existing(call).trigger.id
    check_depth("", call.raw, call.body)
    patch = with_default_tenant(call, call.body)

    def build(preloaded: Preloaded | None) -> AnyInput:
        before = _existing(call).trigger
        spec = _patched(before, patch)
        return UpdateTrigger(
            trigger_id=trigger_id,
            definition=trigger_definition_of(spec, before.definition.owner),
            revision=before.revision,
            paused=spec.paused,
            key=call.key,
            preloaded=preloaded,
        )

    try:
        receipt = await post_recalling(call, read_nothing, build)
    except Invalid as refusal:
        raise trigger_problem(refusal) from None
    return await _view(call, expect(receipt, TriggerAnswer).trigger)


def _patched(trigger: Trigger, patch: dict[str, Any]) -> TriggerSpec:
    form = trigger_form(trigger)
    if "filter" in patch:
        form["filter"] = None  # a filter is replaced: part of one would mean something else
    drop_conflicting_fields(form["job"], patch.get("job"))
    if patch.get("debounce") is not None:
        form["batch"] = None
    elif patch.get("batch") is not None:
        form["debounce"] = None
    return read_merged(form, patch, TriggerSpec, _decoder.decode)


@Operation(
    "DELETE",
    "/triggers/{trigger_id}",
    "Delete a trigger",
    tag="Triggers",
    permission=Permission.SUBMIT,
    status=204,
    errors=(404,),
    description=(
        "Its jobs continue, buffered events are dropped, and its decisions can still be read."
    ),
)
async def delete_trigger(call: Call[None, NoQuery]) -> None:
    trigger_id = _own_id(call)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return DeleteTrigger(trigger_id=trigger_id, key=call.key, preloaded=preloaded)

    await post(call, build)


@Operation(
    "POST",
    "/triggers/{trigger_id}/pause",
    "Pause a trigger",
    tag="Triggers",
    permission=Permission.SUBMIT,
    answer=TriggerView,
    errors=(404,),
    description="Events are recorded and create no jobs.",
    examples={"answer": "pause_trigger"},
)
async def pause_trigger(call: Call[None, NoQuery]) -> TriggerView:
    return await _pause(call, paused=True)


@Operation(
    "POST",
    "/triggers/{trigger_id}/resume",
    "Resume a trigger",
    tag="Triggers",
    permission=Permission.SUBMIT,
    answer=TriggerView,
    errors=(404,),
    description="It continues with the next event.",
    examples={"answer": "trigger"},
)
async def resume_trigger(call: Call[None, NoQuery]) -> TriggerView:
    return await _pause(call, paused=False)


async def _pause(call: Call[None, NoQuery], *, paused: bool) -> TriggerView:
    trigger_id = _own_id(call)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return PauseTrigger(trigger_id=trigger_id, paused=paused, key=call.key, preloaded=preloaded)

    return await _view(call, expect(await post(call, build), TriggerAnswer).trigger)


@Operation(
    "POST",
    "/triggers/deploy",
    "Set all triggers of an app",
    tag="Triggers",
    permission=Permission.SUBMIT,
    body=DeployTriggersSpec,
    answer=DeployAnswer,
    errors=(409,),
    description=(
        "All or none. Triggers that the owner deployed before and does not name are removed."
    ),
    examples={"body": "deploy_triggers_body", "answer": "deployed"},
)
async def deploy_triggers(call: Call[DeployTriggersSpec, NoQuery]) -> DeployAnswer:
    specs = [spec.job for spec in call.body.triggers]
    set_default_tenant(call, specs)
    await check_bundles(call, specs, "triggers[{}].job.")
    now, owner = call.deps.brain.clock.now(), call.body.owner
    new = tuple(
        NewTrigger(
            id=TriggerId(call.state.ids.mint(now)),
            definition=trigger_definition_of(spec, owner, f"triggers[{index}]."),
            paused=spec.paused,
        )
        for index, spec in enumerate(call.body.triggers)
    )

    def build(preloaded: Preloaded | None) -> AnyInput:
        return DeployTriggers(
            owner=owner, triggers=new, tenant=call.caller.tenant, key=call.key, preloaded=preloaded
        )

    return deploy_answer(expect(await _post_definition(call, build), Deployed))


@Operation(
    "POST",
    "/triggers/preview",
    "Preview what triggers would do with an event",
    tag="Triggers",
    permission=Permission.READ,
    repeatable=True,
    body=TrialSpec,
    answer=TrialAnswer,
    errors=(404,),
    description=(
        "Checks all triggers, the one in `trigger_id`, or the new one in `trigger`. Nothing is "
        "stored."
    ),
    examples={"body": "preview_event_body", "answer": "preview_event"},
)
async def preview_event(call: Call[TrialSpec, NoQuery]) -> TrialAnswer:
    await call.deps.brain.settled()
    spec, brain = call.body, call.deps.brain
    check_depth("event.data", call.raw, spec.event.data)
    event = of_caller(call, read_structured(msgspec.to_builtins(spec.event), "event."))
    if spec.trigger is not None:
        set_default_tenant(call, [spec.trigger.job])
        if spec.trigger_id is not None:
            raise invalid("trigger_id", "either `trigger` or `trigger_id`, not both")
        try:
            return TrialAnswer(
                [trial_view(brain.try_rule(trigger_definition_of(spec.trigger), event))]
            )
        except Invalid as refusal:
            raise trigger_problem(refusal) from None
    only = None
    if spec.trigger_id is not None:
        only = _shown(call, TriggerId(spec.trigger_id)).trigger.id
    return TrialAnswer([trial_view(one) for one in brain.try_event(event, only)])


@Operation(
    "GET",
    "/triggers/{trigger_id}/events",
    "List a trigger's decisions about events",
    tag="Triggers",
    permission=Permission.READ,
    query=ArrivalsQuery,
    answer=ArrivalPage,
    errors=(404,),
    description="Newest first. `message` says why an event created no job.",
    examples={"answer": "list_arrivals"},
)
async def list_arrivals(call: Call[None, ArrivalsQuery]) -> ArrivalPage:
    """Lists decisions, newest first. They outlive the trigger, except for a tenant's token."""
    asked, trigger_id = call.query, _own_id(call)
    found = await call.deps.queries.find_trigger_decisions(
        TriggerDecisionQuery(
            trigger_id=trigger_id,
            decisions=read_choices(asked.outcome, EventDecision, "outcome"),
            before=read_id_cursor(asked.cursor),
            limit=asked.limit + 1,
        )
    )
    if not found and call.deps.brain.trigger(trigger_id) is None:
        raise not_found("trigger", trigger_id)
    items, next_cursor = cut(found, asked.limit, lambda one: one.id)
    return ArrivalPage([arrival_view(one) for one in items], next_cursor)


def _id_in(call: Call[Any, Any]) -> TriggerId:
    return TriggerId(id_in(call, "trigger_id", "trigger"))


def _own_id(call: Call[Any, Any]) -> TriggerId:
    """Returns the id in the path; a tenant's caller can name only its own triggers."""
    return _id_in(call) if call.caller.tenant is None else _existing(call).trigger.id


def _existing(call: Call[Any, Any]) -> TriggerInfo:
    return _shown(call, _id_in(call))


def _shown(call: Call[Any, Any], trigger_id: TriggerId) -> TriggerInfo:
    info = call.deps.brain.trigger(trigger_id)
    if info is None or not is_own(call, info.trigger.definition.job.terms):
        raise not_found("trigger", trigger_id)
    return info
