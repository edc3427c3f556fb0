"""Model of events and triggers: CloudEvents, trigger definitions, and the decisions on each
event."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Any, NewType

import msgspec

from rota.core.model import Instant, JobId, Millis, RateLimit, Record, Spec, TriggerId
from rota.core.time_zones import utc_text

TriggerDecisionId = NewType("TriggerDecisionId", str)

OWN_SOURCE = "rota"
"""Source of events that the scheduler makes."""
OWN_PREFIX = "rota."
"""Prefix of the types of such events; others cannot send them."""


class Event(Record, frozen=True):
    """Event in the terms of CloudEvents 1.0. `data` is JSON text, empty for none."""

    source: str
    id: str
    type: str
    data: bytes = b""
    time: str = ""
    subject: str = ""
    extensions: tuple[tuple[str, str | int | bool], ...] = ()
    """Other attributes: `dataschema`, and those that the sender adds."""
    depth: int = 0
    """How many triggers fired in a chain, each because of the one before, until this event."""
    tenant: str = ""
    """Only triggers of this tenant get the event. Empty: all triggers do."""


def event_key(event: Event) -> str:
    """Short key that two copies of an event have in common."""
    # Per tenant, so that one tenant cannot find out, or use up, the event ids of another.
    whose = f"t{len(event.tenant)}:{event.tenant}" if event.tenant else ""
    text = f"{whose}{len(event.source)}:{event.source}{event.id}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def event_value(event: Event) -> dict[str, Any]:
    """JSON object of the event, for filters and for jobs."""
    value: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
    }
    named = {"time": event.time, "subject": event.subject}
    value |= {name: text for name, text in named.items() if text}
    value |= dict(event.extensions)
    if event.data:
        value["data"] = msgspec.json.decode(event.data)
    if event.depth:
        value["rotadepth"] = event.depth
    return value


def own_event(what: tuple[str, str], about: dict[str, Any], now: Instant, depth: int) -> Event:
    """Creates an event of the scheduler; `what` is its type and id."""
    kind, event_id = what
    data = msgspec.json.encode(about)
    return Event(OWN_SOURCE, event_id, kind, data, utc_text(now), depth=depth)


class DebounceKeep(StrEnum):
    """Events of a debounce window that the job gets."""

    LAST = "last"
    ALL = "all"


class EventBuffering(Record, frozen=True):
    """Buffering: events wait in a window and make one job together (debounce or batch).

    A debounce window closes after `quiet_ms` without an event, a batch when it has `size_max`; both
    at the latest `wait_ms` after the first event, if that is set.
    """

    quiet_ms: Millis | None = None
    wait_ms: Millis | None = None
    size_max: int = 0
    """0: unlimited, up to what one job can carry."""
    keep: DebounceKeep = DebounceKeep.ALL
    key: str = ""
    """Path into the event: each value has a window of its own."""


class TriggerDefinition(Record, frozen=True):
    """Definition of a trigger, as submitted: which events, and the job that they make."""

    name: str
    event: str
    """A type, `prefix.*`, or `*`."""
    job: Spec
    filter: bytes = b""
    """JSON text as it was given: an expression, or an object of values that must be equal."""
    buffering: EventBuffering | None = None
    rate: RateLimit | None = None
    owner: str = ""
    """The program that deployed the trigger, and retires it by a deployment without it."""


class Trigger(Record, frozen=True):
    """Whole trigger, as it is stored and answered."""

    id: TriggerId
    definition: TriggerDefinition
    created_at: Instant
    updated_at: Instant
    paused: bool = False
    revision: int = 1
    """Grows with every update."""


class EventDecision(StrEnum):
    """Decision of a trigger on an event."""

    FIRED = "fired"
    HELD = "held"
    SUPERSEDED = "superseded"
    FILTERED = "filtered"
    LIMITED = "limited"
    PAUSED = "paused"
    TOO_DEEP = "too_deep"
    DROPPED = "dropped"
    FAILED = "failed"


EVENT_DECISION_MEANING = {
    EventDecision.FIRED: "it made a job",
    EventDecision.HELD: "it waits for others, to make one job with them",
    EventDecision.SUPERSEDED: "a later event took its place: debounce keeps the last",
    EventDecision.FILTERED: "the filter did not let it pass",
    EventDecision.LIMITED: "more came than rate_limit allows",
    EventDecision.PAUSED: "the trigger was paused",
    EventDecision.TOO_DEEP: "too many triggers, one because of the other: it looks like a loop",
    EventDecision.DROPPED: "the trigger was deleted while the event waited",
    EventDecision.FAILED: "the job could not be made",
}


class TriggerDecision(Record, frozen=True):
    """Record of one trigger's decision on one event."""

    id: TriggerDecisionId
    trigger_id: TriggerId
    source: str
    event_id: str
    type: str
    at: Instant
    decision: EventDecision
    detail: str = ""
    job_id: JobId | None = None
    decided_at: Instant = 0


class AcceptedEvent(Record, frozen=True):
    """Event that was accepted: a copy of it makes no jobs, and gets the same answer."""

    key: str
    source: str
    id: str
    type: str
    at: Instant
    decisions: tuple[TriggerDecision, ...] = ()
    """Decisions of the triggers of its type, when it came."""
    repeats: int = 0
    """How often it was sent again."""
    tenant: str = ""
    """Empty: all tenants."""


class BufferedEvent(Record, frozen=True):
    """Event that waits for others in a trigger's window."""

    id: TriggerDecisionId
    trigger_id: TriggerId
    key: str
    event: Event
    at: Instant
    opened_at: Instant = 0
    """When the window opened; its first event may be gone."""


def counted_as(record: AcceptedEvent | TriggerDecision) -> str:
    """Name of the count for metrics; empty: not counted yet."""
    if isinstance(record, AcceptedEvent):
        return "repeated" if record.repeats else "accepted"
    return "" if record.decision is EventDecision.HELD else record.decision.value
