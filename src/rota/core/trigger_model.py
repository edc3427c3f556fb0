"""Model of events and triggers: CloudEvents, trigger definitions, what was decided on each."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Any, NewType

import msgspec

from rota.core.model import Instant, JobId, Millis, RateLimit, Record, Spec, TriggerId
from rota.core.time_zones import utc_text

TriggerDecisionId = NewType("TriggerDecisionId", str)

OWN_SOURCE = "rota"
"""The source of events that the scheduler tells itself."""
OWN_PREFIX = "rota."
"""Types of such events begin with this; nobody else may send them."""


class Event(Record, frozen=True):
    """Something that happened, as CloudEvents 1.0 has it. `data` is JSON text, empty for none."""

    source: str
    id: str
    type: str
    data: bytes = b""
    time: str = ""
    subject: str = ""
    extensions: tuple[tuple[str, str | int | bool], ...] = ()
    """Other attributes: `dataschema`, and whatever the sender adds."""
    depth: int = 0
    """How many triggers, one because of the other, led to it."""
    tenant: str = ""
    """Whose it is: only that tenant's triggers hear it. Empty: all do."""


def event_key(event: Event) -> str:
    """What two events that are the same have in common: short, whatever the sender's names."""
    # Each tenant has names of its own, or one could find out, or use up, those of another.
    whose = f"t{len(event.tenant)}:{event.tenant}" if event.tenant else ""
    text = f"{whose}{len(event.source)}:{event.source}{event.id}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def event_value(event: Event) -> dict[str, Any]:
    """The event as a JSON object: what filters look at and jobs get."""
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
    """An event of the scheduler's own; `what` is its type and its id."""
    kind, event_id = what
    data = msgspec.json.encode(about)
    return Event(OWN_SOURCE, event_id, kind, data, utc_text(now), depth=depth)


class DebounceKeep(StrEnum):
    """Which events of a debounce the job gets."""

    LAST = "last"
    ALL = "all"


class EventBuffering(Record, frozen=True):
    """Events are held back and make one job together.

    A debounce closes when it has been quiet for `quiet_ms`, a batch when there are `size_max`; both
    no later than `wait_ms` after the first event, if that is set.
    """

    quiet_ms: Millis | None = None
    wait_ms: Millis | None = None
    size_max: int = 0
    """0: as many as come, up to what one job can carry."""
    keep: DebounceKeep = DebounceKeep.ALL
    key: str = ""
    """A path into the event: each value gathers on its own."""


class TriggerDefinition(Record, frozen=True):
    """What was asked for: which events, and the job they make."""

    name: str
    event: str
    """A type, `prefix.*`, or `*`."""
    job: Spec
    filter: bytes = b""
    """JSON text as it was given: an expression, or an object of what must be equal."""
    buffering: EventBuffering | None = None
    rate: RateLimit | None = None
    owner: str = ""
    """The program that deployed it; what such a program no longer names is retired."""


class Trigger(Record, frozen=True):
    """A whole trigger, as it is stored and as it is answered."""

    id: TriggerId
    definition: TriggerDefinition
    created_at: Instant
    updated_at: Instant
    paused: bool = False
    revision: int = 1
    """Grows with every update."""


class EventDecision(StrEnum):
    """What a trigger made of an event."""

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
    """What one trigger made of one event: there is one record of each."""

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
    """An event that was accepted: the same again makes nothing, and gets the same answer."""

    key: str
    source: str
    id: str
    type: str
    at: Instant
    decisions: tuple[TriggerDecision, ...] = ()
    """What the triggers of its type made of it, when it came."""
    repeats: int = 0
    """How often it came again."""
    tenant: str = ""
    """Whose it was; empty: everybody's."""


class BufferedEvent(Record, frozen=True):
    """An event that waits for others in a trigger's window."""

    id: TriggerDecisionId
    trigger_id: TriggerId
    key: str
    event: Event
    at: Instant
    opened_at: Instant = 0
    """When the window opened; the first event of it may be gone."""


def counted_as(record: AcceptedEvent | TriggerDecision) -> str:
    """The word under which it is counted; empty: not yet."""
    if isinstance(record, AcceptedEvent):
        return "repeated" if record.repeats else "accepted"
    return "" if record.decision is EventDecision.HELD else record.decision.value
