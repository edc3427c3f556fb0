"""Webhooks: endpoints that senders without a token may post to, if they sign what they send."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

import msgspec

from rota.api.customs.paging import PageQuery, page_of
from rota.api.door.roles import Permission
from rota.api.lookup import name_in
from rota.api.occasions.events import accept_events
from rota.api.problems import invalid, not_found
from rota.api.reading.bodies import check_depth
from rota.api.reading.cloudevents import make_event, read_structured
from rota.api.reading.signatures import check_signature
from rota.api.routes import Call, NoQuery, Operation, Reply
from rota.core.trigger_model import Event
from rota.store.documents import Hook
from rota.wire.events import HookAnswer, HookPage, HookSpec, HookView
from rota.wire.limits import EVENT_BYTES_MAX
from rota.wire.problems import ProblemError
from rota.wire.units import from_instant, number

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
    description="Without `secrets` the server makes one, and shows it in this answer only.",
    examples={"body": "put_hook_body", "answer": "hook"},
)
async def put_hook(call: Call[HookSpec, NoQuery]) -> Reply:
    """Makes an endpoint, or sets it anew."""
    name, spec, store = name_in(call), call.body, call.deps.hooks
    now = call.deps.brain.clock.now()
    before = await store.get(name)
    made = "" if spec.secrets else secrets.token_urlsafe(32)
    kept = spec.type or spec.scheme
    if kept == "rota" or kept.startswith("rota."):
        kept = f"webhook.{name}"  # `rota.` is for what the server itself tells
    hook = Hook(
        name=name,
        scheme=spec.scheme,
        secrets=tuple(spec.secrets) or (made,),
        type=kept,
        tolerance_ms=spec.tolerance.ms,
        created_at=now if before is None else before.created_at,
        updated_at=now,
    )
    await store.put(hook)
    return Reply(_view(hook, made), {}, 201 if before is None else 200)


def _view(hook: Hook, made: str = "") -> HookView:
    return HookView(
        name=hook.name,
        scheme=hook.scheme,  # type: ignore[arg-type]  # was read as one of them
        type=hook.type,
        tolerance=number(hook.tolerance_ms),
        path=f"/hooks/{hook.name}",
        secrets=len(hook.secrets),
        created_at=from_instant(hook.created_at),
        updated_at=from_instant(hook.updated_at),
        secret=made,
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
    """All endpoints, by name."""
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
    """One endpoint."""
    return _view(await _existing(call))


@Operation(
    "DELETE",
    "/hooks/{name}",
    "Remove a webhook endpoint",
    tag="Events",
    permission=Permission.OPERATE,
    any_server=True,
    status=204,
    errors=(404,),
)
async def delete_hook(call: Call[None, NoQuery]) -> None:
    """Nobody can send to it any more."""
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
    description="Needs no token: what counts is the signature. A replay has no effect.",
    examples={"answer": "deliver_hook"},
)
async def deliver_hook(call: Call[None, NoQuery]) -> HookAnswer:
    """What a sender posts. Nothing of it is looked at before the signature has been checked."""
    hook = await _existing(call)
    headers = {name.lower(): value for name, value in call.request.headers.items()}
    check_signature(hook, headers, call.raw, call.deps.brain.clock.now())
    event = _event_of(hook, headers, call.raw)
    taken = await accept_events(call, [event])
    return HookAnswer("repeated" if taken.repeated[0] else "accepted")


def _event_of(hook: Hook, headers: dict[str, str], raw: bytes) -> Event:
    """The event that a message stands for; its id is made of what was signed, never of headers."""
    body = _body(raw)
    source = f"/hooks/{hook.name}"
    if hook.scheme == "rota":
        told = read_structured(
            {**body, "source": source, "type": f"{hook.type}.{body.get('type')}"}
        )
        own = f"{body.get('source', '')}/{told.id}"
        return msgspec.structs.replace(told, id=own[-1024:])
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
