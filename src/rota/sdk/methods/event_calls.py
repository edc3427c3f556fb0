"""Calls about triggers, events and webhooks as values; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from rota.sdk.calls import Call, params_of, path_of
from rota.wire.events import (
    BATCHED,
    STRUCTURED,
    ArrivalPage,
    EventPage,
    EventsAnswer,
    EventSpec,
    EventView,
    HookPage,
    HookSpec,
    HookView,
    TrialAnswer,
    TriggerPage,
    TriggerSpec,
    TriggerView,
)
from rota.wire.formats import encode
from rota.wire.schedules import DeployAnswer

TriggerLike: TypeAlias = TriggerSpec | Mapping[str, Any]
"""A trigger to create: the typed record, or a mapping with the API's fields."""
EventLike: TypeAlias = EventSpec | Mapping[str, Any]
"""An event: the typed record, or a mapping with CloudEvents' names."""


def with_id(event: EventLike, mint: Callable[[], str]) -> EventLike:
    """Adds an id to an event without one: such an event is never a duplicate."""
    if isinstance(event, EventSpec) or "id" in event:
        return event
    return {**event, "id": mint()}


def create_trigger(trigger: TriggerLike) -> Call[TriggerView]:
    return Call("POST", "/triggers", TriggerView, body=encode(trigger), keyed=True)


def list_triggers(
    *,
    name: str | None = None,
    owner: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[TriggerPage]:
    params = params_of(name=name, owner=owner, limit=limit, cursor=cursor)
    return Call("GET", "/triggers", TriggerPage, params=params)


def get_trigger(trigger_id: str) -> Call[TriggerView]:
    return Call("GET", path_of("triggers", trigger_id), TriggerView)


def update_trigger(trigger_id: str, patch: Mapping[str, Any]) -> Call[TriggerView]:
    """Changes a trigger, by JSON Merge Patch."""
    media, path = "application/merge-patch+json", path_of("triggers", trigger_id)
    return Call("PATCH", path, TriggerView, body=encode(patch), media=media, keyed=True)


def delete_trigger(trigger_id: str) -> Call[None]:
    """Removes a trigger; its jobs go on."""
    return Call("DELETE", path_of("triggers", trigger_id), type(None), keyed=True)


def pause_trigger(trigger_id: str) -> Call[TriggerView]:
    """Pauses a trigger: it makes no jobs."""
    return Call("POST", path_of("triggers", trigger_id, "pause"), TriggerView, keyed=True)


def resume_trigger(trigger_id: str) -> Call[TriggerView]:
    return Call("POST", path_of("triggers", trigger_id, "resume"), TriggerView, keyed=True)


def trigger_events(
    trigger_id: str,
    *,
    outcome: Sequence[str] = (),
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[ArrivalPage]:
    """Lists a trigger's decisions about events, newest first; one page."""
    params = params_of(outcome=",".join(outcome) or None, limit=limit, cursor=cursor)
    return Call("GET", path_of("triggers", trigger_id, "events"), ArrivalPage, params=params)


def try_event(
    event: EventLike, *, trigger: TriggerLike | None = None, trigger_id: str | None = None
) -> Call[TrialAnswer]:
    """Asks how triggers would decide about an event; nothing is stored."""
    body: dict[str, Any] = {"event": event}
    if trigger is not None:
        body["trigger"] = trigger
    if trigger_id is not None:
        body["trigger_id"] = trigger_id
    return Call("POST", "/triggers/preview", TrialAnswer, body=encode(body))


def deploy_triggers(owner: str, triggers: Sequence[TriggerLike]) -> Call[DeployAnswer]:
    """Replaces all triggers of an app."""
    body = encode({"owner": owner, "triggers": triggers})
    return Call("POST", "/triggers/deploy", DeployAnswer, body=body, keyed=True)


def send_event(event: EventLike) -> Call[EventView]:
    """Sends an event; its source and id make a repetition safe."""
    return Call("POST", "/events", EventView, body=encode(event), media=STRUCTURED)


def send_events(events: Sequence[EventLike]) -> Call[EventsAnswer]:
    """Sends many events at once."""
    body = encode(list(events))
    return Call("POST", "/events", EventsAnswer, body=body, media=BATCHED)


def list_events(
    *, type: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[EventPage]:
    """Lists received events, newest first; one page."""
    return Call(
        "GET", "/events", EventPage, params=params_of(type=type, limit=limit, cursor=cursor)
    )


def list_hooks(*, limit: int | None = None, cursor: str | None = None) -> Call[HookPage]:
    return Call("GET", "/hooks", HookPage, params=params_of(limit=limit, cursor=cursor))


def set_hook(name: str, hook: HookSpec | Mapping[str, Any]) -> Call[HookView]:
    return Call("PUT", path_of("hooks", name), HookView, body=encode(hook))


def delete_hook(name: str) -> Call[None]:
    return Call("DELETE", path_of("hooks", name), type(None))
