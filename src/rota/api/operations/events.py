"""The calls about triggers, events and webhooks."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api import event_examples as shown
from rota.api import events, hooks, triggers
from rota.api.paging import PageQuery
from rota.api.routes import Operation
from rota.api.schedule_examples import DEPLOYED
from rota.wire.events import (
    ArrivalPage,
    EventPage,
    EventsAnswer,
    EventSpec,
    EventView,
    HookAnswer,
    HookPage,
    HookSpec,
    HookView,
)
from rota.wire.limits import EVENT_BYTES_MAX
from rota.wire.schedules import DeployAnswer
from rota.wire.triggers import (
    DeployTriggersSpec,
    TrialAnswer,
    TrialSpec,
    TriggerPage,
    TriggerSpec,
    TriggerView,
)

TRIGGERS: Sequence[Operation] = (
    Operation(
        method="POST",
        path="/triggers",
        summary="Make a trigger",
        handle=triggers.create_trigger,
        tag="Triggers",
        body=TriggerSpec,
        answer=TriggerView,
        status=201,
        errors=(409,),
        description="Each event of a type that fits, and that the filter lets pass, makes a job. "
        "A name is there once in a tenant.",
        examples={"body": shown.TRIGGER_SPEC, "answer": shown.TRIGGER},
    ),
    Operation(
        method="GET",
        path="/triggers",
        summary="List triggers, newest first",
        handle=triggers.list_triggers,
        tag="Triggers",
        query=triggers.TriggersQuery,
        answer=TriggerPage,
        examples={"answer": {"items": [shown.TRIGGER], "next_cursor": None}},
    ),
    Operation(
        method="POST",
        path="/triggers/preview",
        summary="What triggers would make of an event",
        handle=triggers.preview_event,
        tag="Triggers",
        body=TrialSpec,
        answer=TrialAnswer,
        errors=(404,),
        description="Against all triggers, the one that `trigger_id` names, or the one that "
        "`trigger` describes and nobody has made. Nothing is stored.",
        examples={"body": {"event": shown.EVENT_SPEC}, "answer": shown.TRIAL},
    ),
    Operation(
        method="POST",
        path="/triggers/deploy",
        summary="Set all triggers of a program",
        handle=triggers.deploy_triggers,
        tag="Triggers",
        body=DeployTriggersSpec,
        answer=DeployAnswer,
        errors=(409,),
        description="All or none. What the owner deployed before and does not name is retired.",
        examples={
            "body": {"owner": "shop.jobs:app", "triggers": [shown.TRIGGER_SPEC]},
            "answer": DEPLOYED,
        },
    ),
    Operation(
        method="GET",
        path="/triggers/{trigger_id}",
        summary="Show a trigger",
        handle=triggers.show_trigger,
        tag="Triggers",
        answer=TriggerView,
        errors=(404,),
        examples={"answer": shown.TRIGGER},
    ),
    Operation(
        method="PATCH",
        path="/triggers/{trigger_id}",
        summary="Change a trigger",
        handle=triggers.patch_trigger,
        tag="Triggers",
        body=dict,
        patch_of=TriggerSpec,
        answer=TriggerView,
        errors=(404, 409),
        description="JSON Merge Patch; null restores a default. A filter is replaced as a whole. "
        "Events that wait already go by the new rule.",
        examples={"body": {"filter": "data.size > 1000000"}, "answer": shown.TRIGGER},
    ),
    Operation(
        method="DELETE",
        path="/triggers/{trigger_id}",
        summary="Remove a trigger",
        handle=triggers.delete_trigger,
        tag="Triggers",
        status=204,
        errors=(404,),
        description="Its jobs go on, events that wait in it are dropped, and its ledger can still "
        "be read.",
    ),
    Operation(
        method="POST",
        path="/triggers/{trigger_id}/pause",
        summary="Let a trigger make no jobs",
        handle=triggers.pause_trigger,
        tag="Triggers",
        answer=TriggerView,
        errors=(404,),
        examples={"answer": {**shown.TRIGGER, "paused": True}},
    ),
    Operation(
        method="POST",
        path="/triggers/{trigger_id}/resume",
        summary="Let a trigger go on",
        handle=triggers.resume_trigger,
        tag="Triggers",
        answer=TriggerView,
        errors=(404,),
        examples={"answer": shown.TRIGGER},
    ),
    Operation(
        method="GET",
        path="/triggers/{trigger_id}/events",
        summary="What a trigger made of events",
        handle=triggers.list_arrivals,
        tag="Triggers",
        query=triggers.ArrivalsQuery,
        answer=ArrivalPage,
        errors=(404,),
        description="Newest first. `message` says why an event made no job.",
        examples={"answer": {"items": [shown.ARRIVAL], "next_cursor": None}},
    ),
)

EVENTS: Sequence[Operation] = (
    Operation(
        method="POST",
        path="/events",
        summary="Tell that something happened",
        handle=events.receive_events,
        tag="Events",
        body=EventSpec,
        reads_body=True,
        answer=EventView,
        status=202,
        description="CloudEvents 1.0: structured (`application/cloudevents+json`, or plain JSON), "
        "binary (`ce-` headers) or batched (`application/cloudevents-batch+json`, answered with "
        "`items`). An event is known by its source and id; the same again has no effect and the "
        "first answer.",
        examples={"body": shown.EVENT_SPEC, "answer": shown.EVENT},
        also={200: EventsAnswer},
    ),
    Operation(
        method="GET",
        path="/events",
        summary="List events that came, newest first",
        handle=events.list_events,
        tag="Events",
        query=events.EventsQuery,
        answer=EventPage,
        description="Without their data: the jobs have it. Known for seven days.",
        examples={"answer": {"items": [shown.EVENT], "next_cursor": None}},
    ),
)

HOOKS: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/hooks",
        summary="List webhook endpoints, by name",
        handle=hooks.list_hooks,
        tag="Events",
        query=PageQuery,
        answer=HookPage,
        examples={"answer": {"items": [shown.HOOK], "next_cursor": None}},
    ),
    Operation(
        method="GET",
        path="/hooks/{name}",
        summary="Show a webhook endpoint",
        handle=hooks.show_hook,
        tag="Events",
        answer=HookView,
        errors=(404,),
        examples={"answer": shown.HOOK},
    ),
    Operation(
        method="PUT",
        path="/hooks/{name}",
        summary="Set up a webhook endpoint",
        handle=hooks.put_hook,
        tag="Events",
        body=HookSpec,
        answer=HookView,
        also={201: HookView},
        description="Without `secrets` the server makes one, and shows it in this answer only.",
        examples={"body": {"scheme": "github"}, "answer": shown.HOOK},
    ),
    Operation(
        method="DELETE",
        path="/hooks/{name}",
        summary="Remove a webhook endpoint",
        handle=hooks.delete_hook,
        tag="Events",
        status=204,
        errors=(404,),
    ),
    Operation(
        method="POST",
        path="/hooks/{name}",
        summary="Deliver a webhook",
        handle=hooks.deliver_hook,
        tag="Events",
        body_bytes_max=EVENT_BYTES_MAX,
        answer=HookAnswer,
        status=202,
        open=True,
        errors=(401, 404, 413),
        description="Needs no token: what counts is the signature. A replay has no effect.",
        examples={"answer": {"status": "accepted"}},
    ),
)
