"""Events that come in over HTTP, and those that came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.api.customs.paging import Cursor, Limit, cut, read_cursor
from rota.api.customs.reactions import NameOf, event_view
from rota.api.door.roles import Permission
from rota.api.problems import invalid
from rota.api.reading.cloudevents import read_events
from rota.api.recall import expect, post_recalling
from rota.api.routes import Call, NoQuery, Operation, Reply
from rota.core.commands import AnyInput, Preloaded, ReceiveEvents
from rota.core.model import Instant, JobRecord, TriggerId
from rota.core.outcome import EventsAccepted
from rota.core.trigger_model import AcceptedEvent, Event, event_key
from rota.store.queries import EventQuery
from rota.wire.events import EventPage, EventsAnswer, EventSpec, EventView
from rota.wire.limits import PAGE_ITEMS_DEFAULT


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which events to list."""

    type: str | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "POST",
    "/events",
    "Tell that something happened",
    tag="Events",
    permission=Permission.SUBMIT,
    repeatable=True,
    body=EventSpec,
    reads_body=True,
    answer=EventView,
    status=202,
    description=(
        "CloudEvents 1.0: structured (`application/cloudevents+json`, or plain JSON), "
        "binary (`ce-` headers) or batched (`application/cloudevents-batch+json`, answered with "
        "`items`). An event is known by its source and id; the same again has no effect and the "
        "first answer."
    ),
    examples={"body": "event_spec", "answer": "event"},
    also={200: EventsAnswer},
)
async def receive_events(call: Call[None, NoQuery]) -> Reply:
    """One event, or a batch; durable, and so is what they set off, when this answers."""
    events, batched = read_events(call.request.scope, call.raw)
    taken = await accept_events(call, [of_caller(call, event) for event in events])
    names = _names(call)
    views = [
        event_view(told, names, duplicate=repeated)
        for told, repeated in zip(taken.events, taken.repeated, strict=True)
    ]
    return Reply(EventsAnswer(views), {}, 200) if batched else Reply(views[0], {})


def of_caller(call: Call[Any, Any], event: Event) -> Event:
    """What a tenant's token tells is that tenant's; others do not hear it."""
    return replace(event, tenant=call.caller.tenant or "")


async def accept_events(call: Call[Any, Any], events: Sequence[Event]) -> EventsAccepted:
    """Has the scheduler take events, with what the tables know of them."""
    known: list[AcceptedEvent] = []
    keys = [event_key(event) for event in events]

    async def read() -> Sequence[JobRecord]:
        known[:] = await call.deps.catalog.accepted_events(keys)
        return ()

    def build(recall: Preloaded | None) -> AnyInput:
        assert recall is not None
        brought = replace(recall, accepted_events=tuple(known))
        return ReceiveEvents(events=tuple(events), key=call.key, preloaded=brought)

    return expect(await post_recalling(call, read, build), EventsAccepted)


def _names(call: Call[Any, Any]) -> NameOf:
    def name_of(trigger_id: str) -> str | None:
        glance = call.deps.brain.trigger(TriggerId(trigger_id))
        return None if glance is None else glance.trigger.definition.name

    return name_of


@Operation(
    "GET",
    "/events",
    "List events that came, newest first",
    tag="Events",
    permission=Permission.READ,
    query=EventsQuery,
    answer=EventPage,
    description="Without their data: the jobs have it. Known for seven days.",
    examples={"answer": "list_events"},
)
async def list_events(call: Call[None, EventsQuery]) -> EventPage:
    """Events that were accepted, newest first."""
    asked = call.query
    found = await call.deps.catalog.find_events(
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
        raise invalid("cursor", "not a cursor of this list: send `next_cursor` of the page before")
    return int(at), key
