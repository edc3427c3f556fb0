"""Events as CloudEvents 1.0 has them, what became of them, and webhook endpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.jobs import QueueName, Time
from rota.wire.limits import (
    ATTRIBUTE_CHARS_MAX,
    EVENT_TYPE_CHARS_MAX,
    EVENTS_BATCH_MAX,
    SECRET_CHARS_MAX,
    SECRET_CHARS_MIN,
    SECRETS_PER_HOOK_MAX,
)
from rota.wire.patterns import EVENT_TYPE, PLAIN
from rota.wire.units import Duration

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"

EventType: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=EVENT_TYPE_CHARS_MAX,
        pattern=EVENT_TYPE,
        description="dotted words, such as object.uploaded; `rota.` at the front is the server's",
        examples=["object.uploaded"],
    ),
]
Attribute: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=ATTRIBUTE_CHARS_MAX, pattern=PLAIN)
]
Outcome: TypeAlias = Literal[
    "fired",
    "held",
    "superseded",
    "filtered",
    "limited",
    "paused",
    "too_deep",
    "dropped",
    "failed",
]
Scheme: TypeAlias = Literal["github", "stripe", "rota"]


class EventSpec(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An event in structured mode. Other attributes are the sender's own, and are kept."""

    id: Attribute
    source: Attribute
    type: EventType
    specversion: Literal["1.0"] = "1.0"
    time: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None = None
    subject: Attribute | None = None
    datacontenttype: Attribute | None = None
    dataschema: Attribute | None = None
    data: Any = None
    data_base64: str | None = None
    """Data that is not JSON."""


class EventOutcome(msgspec.Struct):
    """What one trigger made of an event."""

    trigger_id: str
    name: str | None
    """Of the trigger; null once it is deleted."""
    outcome: Outcome
    message: str
    job_id: str | None


class EventView(msgspec.Struct):
    """An event that was accepted, and what the triggers of its type made of it when it came."""

    id: str
    source: str
    type: str
    received_at: Time
    duplicate: bool
    """It had been accepted before, and had no effect this time."""
    repeats: int
    job_ids: list[str]
    outcomes: list[EventOutcome]


class EventsAnswer(msgspec.Struct):
    """Events of a batch, in the order given."""

    items: Annotated[list[EventView], Meta(max_length=EVENTS_BATCH_MAX)]


class EventPage(msgspec.Struct):
    """A page of events, newest first."""

    items: list[EventView]
    next_cursor: str | None


class ArrivalView(msgspec.Struct):
    """What a trigger made of one event."""

    event_id: str
    source: str
    type: str
    received_at: Time
    outcome: Outcome
    message: str
    job_id: str | None
    decided_at: Time


class ArrivalPage(msgspec.Struct):
    """A page of a trigger's ledger, newest first."""

    items: list[ArrivalView]
    next_cursor: str | None


Secret: TypeAlias = Annotated[
    str, Meta(min_length=SECRET_CHARS_MIN, max_length=SECRET_CHARS_MAX, pattern=PLAIN)
]


class HookSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who may send webhooks to an endpoint, and how they sign."""

    scheme: Scheme
    secrets: Annotated[list[Secret], Meta(max_length=SECRETS_PER_HOOK_MAX)] = []
    """Any of them signs, so that one can be replaced. None given: the server makes one, and shows
    it in this answer only."""
    type: EventType | None = None
    """What the types of its events begin with; left out: the scheme's name."""
    tolerance: Duration = msgspec.field(default_factory=lambda: Duration(300_000))
    """How old a signature may be, where the scheme says when it was made."""


class HookView(msgspec.Struct, omit_defaults=True):
    """A webhook endpoint. Secrets are never shown again."""

    name: QueueName
    scheme: Scheme
    type: str
    tolerance: float | int
    path: str
    secrets: int
    """How many there are."""
    created_at: Time
    updated_at: Time
    secret: str = ""
    """The one that the server made, this once."""


class HookPage(msgspec.Struct):
    """All webhook endpoints, by name."""

    items: list[HookView]
    next_cursor: str | None


class HookAnswer(msgspec.Struct):
    """What a sender of a webhook is told: no more than it needs."""

    status: Literal["accepted", "repeated"]
