"""Endpoints that receive events: CloudEvents, and signed webhooks of senders without a token."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.api.auth.roles import Permission
from rota.api.convert.triggers import NameOf, event_view
from rota.api.pagination import Cursor, Limit, PageQuery, cut, foreign_cursor, page_of, read_cursor
from rota.api.parsing.cloudevents import make_event, read_events, read_structured
from rota.api.parsing.request import check_depth
from rota.api.parsing.webhook_signatures import check_signature
from rota.api.problems import invalid, not_found
from rota.api.recall import expect, post_recalling
from rota.api.router import Call, NoQuery, Operation, Reply
from rota.api.tenant_scope import name_in
from rota.core.commands import AnyInput, Preloaded, ReceiveEvents
from rota.core.model import Instant, JobRecord, TriggerId
from rota.core.outcome import EventsAccepted
from rota.core.trigger_model import AcceptedEvent, Event, event_key
from rota.store.documents import Hook
from rota.store.queries import EventQuery
from rota.wire.events import (
    EventPage,
    EventsAnswer,
    EventSpec,
    EventView,
    HookAnswer,
    HookPage,
    HookSpec,
    HookView,
)
from rota.wire.formats import from_instant, number
from rota.wire.limits import EVENT_BYTES_MAX, PAGE_ITEMS_DEFAULT
from rota.wire.problems import ProblemError


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of events."""

    type: str | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "POST",
    "/events",
    "Send an event",
    tag="Events",
    permission=Permission.SUBMIT,
    repeatable=True,
    body=EventSpec,
    reads_body=True,
    answer=EventView,
    status=202,
    description=(
        "CloudEvents 1.0: structured (`application/cloudevents+json`, or plain JSON), binary "
        "(`ce-` headers) or batched (`application/cloudevents-batch+json`, answered with "
        "`items`). Source and id identify an event; sending it again has no effect and gets the "
        "first answer."
    ),
    examples={"body": "event_spec", "answer": "event"},
    also={200: EventsAnswer},
)
async def receive_events(call: Call[None, NoQuery]) -> Reply:
    """Accepts one event or a batch; they and the jobs they create are durable before the answer."""
    events, batched = read_events(call.request.scope, call.raw)
    accepted = await accept_events(call, [of_caller(call, event) for event in events])
    names = _names(call)
    views = [
        event_view(event, names, duplicate=repeated)
        for event, repeated in zip(accepted.events, accepted.repeated, strict=True)
    ]
    return Reply(EventsAnswer(views), {}, 200) if batched else Reply(views[0], {})


def of_caller(call: Call[Any, Any], event: Event) -> Event:
    """Sets the event's tenant: only triggers of that tenant see the event of a tenant's token."""
    return replace(event, tenant=call.caller.tenant or "")


async def accept_events(call: Call[Any, Any], events: Sequence[Event]) -> EventsAccepted:
    """Posts events, with what the store knows of them."""
    known: list[AcceptedEvent] = []
    keys = [event_key(event) for event in events]

    async def read() -> Sequence[JobRecord]:
        known[:] = await call.deps.queries.accepted_events(keys)
        return ()

    def build(preloaded: Preloaded | None) -> AnyInput:
        assert preloaded is not None
        with_events = replace(preloaded, accepted_events=tuple(known))
        return ReceiveEvents(events=tuple(events), key=call.key, preloaded=with_events)

    return expect(await post_recalling(call, read, build), EventsAccepted)


def _names(call: Call[Any, Any]) -> NameOf:
    def name_of(trigger_id: str) -> str | None:
        info = call.deps.brain.trigger(TriggerId(trigger_id))
        return None if info is None else info.trigger.definition.name

    return name_of


@Operation(
    "GET",
    "/events",
    "List received events, newest first",
    tag="Events",
    permission=Permission.READ,
    query=EventsQuery,
    answer=EventPage,
    description="Without their data, which their jobs have. Kept for seven days.",
    examples={"answer": "list_events"},
)
async def list_events(call: Call[None, EventsQuery]) -> EventPage:
    asked = call.query
    found = await call.deps.queries.find_events(
        EventQuery(
            type=asked.type,
            tenant=call.caller.tenant,
            before=_read_position(asked.cursor),
            limit=asked.limit + 1,
        )
    )
    await call.deps.brain.settled()
    items, next_cursor = cut(found, asked.limit, lambda one: f"{one.at}.{one.key}")
    names = _names(call)
    return EventPage([event_view(one, names, duplicate=False) for one in items], next_cursor)


def _read_position(cursor: str | None) -> tuple[Instant, str] | None:
    last = read_cursor(cursor)
    if last is None:
        return None
    at, _, key = last.partition(".")
    if not (at.isdecimal() and at.isascii() and len(at) <= 15 and key.isalnum()):
        raise foreign_cursor()
    return int(at), key


_WORD = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z", re.ASCII)
_GITHUB_KIND = "x-github-event"


@Operation(
    "PUT",
    "/hooks/{name}",
    "Set up a webhook endpoint",
    tag="Events",
    permission=Permission.OPERATE,
    any_server=True,
    body=HookSpec,
    answer=HookView,
    also={201: HookView},
    description="Without `secrets` the server creates one, and shows it in this answer only.",
    examples={"body": "put_hook_body", "answer": "hook"},
)
async def put_hook(call: Call[HookSpec, NoQuery]) -> Reply:
    name, spec, store = name_in(call), call.body, call.deps.hooks
    now = call.deps.brain.clock.now()
    before = await store.get(name)
    secret = "" if spec.secrets else secrets.token_urlsafe(32)
    event_type = spec.type or spec.scheme
    if event_type == "rota" or event_type.startswith("rota."):
        event_type = f"webhook.{name}"  # `rota.` is reserved for events of the server itself
    hook = Hook(
        name=name,
        scheme=spec.scheme,
        secrets=tuple(spec.secrets) or (secret,),
        type=event_type,
        tolerance_ms=spec.tolerance.ms,
        created_at=now if before is None else before.created_at,
        updated_at=now,
    )
    await store.put(hook)
    return Reply(_view(hook, secret), {}, 201 if before is None else 200)


def _view(hook: Hook, secret: str = "") -> HookView:
    return HookView(
        name=hook.name,
        scheme=hook.scheme,  # type: ignore[arg-type]  # was read as one of them
        type=hook.type,
        tolerance=number(hook.tolerance_ms),
        path=f"/hooks/{hook.name}",
        secrets=len(hook.secrets),
        created_at=from_instant(hook.created_at),
        updated_at=from_instant(hook.updated_at),
        secret=secret,
    )


@Operation(
    "GET",
    "/hooks",
    "List webhook endpoints, by name",
    tag="Events",
    permission=Permission.READ_ALL,
    any_server=True,
    query=PageQuery,
    answer=HookPage,
    examples={"answer": "list_hooks"},
)
async def list_hooks(call: Call[None, PageQuery]) -> HookPage:
    found = await call.deps.hooks.list()
    items, next_cursor = page_of(found, call.query, lambda hook: hook.name)
    return HookPage([_view(hook) for hook in items], next_cursor)


@Operation(
    "GET",
    "/hooks/{name}",
    "Show a webhook endpoint",
    tag="Events",
    permission=Permission.READ_ALL,
    any_server=True,
    answer=HookView,
    errors=(404,),
    examples={"answer": "hook"},
)
async def show_hook(call: Call[None, NoQuery]) -> HookView:
    return _view(await _existing(call))


@Operation(
    "DELETE",
    "/hooks/{name}",
    "Delete a webhook endpoint",
    tag="Events",
    permission=Permission.OPERATE,
    any_server=True,
    status=204,
    errors=(404,),
)
async def delete_hook(call: Call[None, NoQuery]) -> None:
    name = name_in(call)
    if not await call.deps.hooks.drop(name):
        raise not_found("webhook endpoint", name)


@Operation(
    "POST",
    "/hooks/{name}",
    "Deliver a webhook",
    tag="Events",
    permission=Permission.OPEN,
    repeatable=True,
    body_bytes_max=EVENT_BYTES_MAX,
    answer=HookAnswer,
    status=202,
    errors=(401, 404, 413),
    description="Needs no token: the signature authenticates the sender. A replay has no effect.",
    examples={"answer": "deliver_hook"},
)
async def deliver_hook(call: Call[None, NoQuery]) -> HookAnswer:
    """Accepts a webhook. Nothing of it is parsed before its signature has been checked."""
    hook = await _existing(call)
    headers = {name.lower(): value for name, value in call.request.headers.items()}
    check_signature(hook, headers, call.raw, call.deps.brain.clock.now())
    event = _event_of(hook, headers, call.raw)
    accepted = await accept_events(call, [event])
    return HookAnswer("repeated" if accepted.repeated[0] else "accepted")


def _event_of(hook: Hook, headers: dict[str, str], raw: bytes) -> Event:
    """Makes the event of a webhook; its id comes from what was signed, never from headers."""
    body = _body(raw)
    source = f"/hooks/{hook.name}"
    if hook.scheme == "rota":
        event = read_structured(
            {**body, "source": source, "type": f"{hook.type}.{body.get('type')}"}
        )
        own = f"{body.get('source', '')}/{event.id}"
        return msgspec.structs.replace(event, id=own[-1024:])
    digest = hashlib.sha256(raw).hexdigest()
    if hook.scheme == "stripe":
        kind, event_id = body.get("type"), body.get("id")
    else:
        kind, event_id = headers.get(_GITHUB_KIND), None
    named = isinstance(kind, str) and _WORD.match(kind)
    attributes: dict[str, Any] = {
        "id": event_id if isinstance(event_id, str) and 0 < len(event_id) <= 255 else digest,
        "source": source,
        "type": f"{hook.type}.{kind}" if named else hook.type,
    }
    return make_event(attributes, msgspec.json.encode(body))


def _body(raw: bytes) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        detail = "the body is not JSON: have the sender use the content type application/json"
        raise ProblemError(400, "malformed", detail) from None
    check_depth("", raw, body)
    if not isinstance(body, dict):
        raise invalid("", "the body is a JSON object")
    return body


async def _existing(call: Call[Any, Any]) -> Hook:
    name = name_in(call)
    hook = await call.deps.hooks.get(name)
    if hook is None:
        raise not_found("webhook endpoint", name)
    return hook
