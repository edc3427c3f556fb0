"""Events (CloudEvents 1.0) and triggers: filters, debounce, batching, the decisions of triggers
about events; webhook endpoints.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.formats import EVENT_TYPE, EVENT_TYPES, PLAIN, Duration, SomeTime
from rota.wire.jobs import JobSpec, Name, QueueName, Time
from rota.wire.limits import (
    ATTRIBUTE_CHARS_MAX,
    BATCH_EVENTS_MAX,
    DEPLOYED_TRIGGERS_MAX,
    EVENT_TYPE_CHARS_MAX,
    EVENTS_BATCH_MAX,
    FILTER_CHARS_MAX,
    SECRET_CHARS_MAX,
    SECRET_CHARS_MIN,
    SECRETS_PER_HOOK_MAX,
)
from rota.wire.queues import RateLimitSpec, RateLimitView
from rota.wire.schedules import OwnerName

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"

EventType: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=EVENT_TYPE_CHARS_MAX,
        pattern=EVENT_TYPE,
        description="dotted words, such as object.uploaded; the prefix `rota.` is the server's",
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
    """Decision of one trigger about an event."""

    trigger_id: str
    name: str | None
    """The name of the trigger; null if it was deleted."""
    outcome: Outcome
    message: str
    job_id: str | None


class EventView(msgspec.Struct):
    """An accepted event, with the decisions of the triggers for its type."""

    id: str
    source: str
    type: str
    received_at: Time
    duplicate: bool
    """It was accepted before, and had no effect this time."""
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
    """Decision of a trigger about one event."""

    event_id: str
    source: str
    type: str
    received_at: Time
    outcome: Outcome
    message: str
    job_id: str | None
    decided_at: Time


class ArrivalPage(msgspec.Struct):
    """A page of a trigger's decisions, newest first."""

    items: list[ArrivalView]
    next_cursor: str | None


Secret: TypeAlias = Annotated[
    str, Meta(min_length=SECRET_CHARS_MIN, max_length=SECRET_CHARS_MAX, pattern=PLAIN)
]


class HookSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A webhook endpoint to set: the scheme of its signatures and their secrets."""

    scheme: Scheme
    secrets: Annotated[list[Secret], Meta(max_length=SECRETS_PER_HOOK_MAX)] = []
    """Any of them may sign, so that a secret can be replaced. If none is given, the server creates
    one and shows it in this answer only.
    """
    type: EventType | None = None
    """Prefix of the types of its events; left out: the scheme's name."""
    tolerance: Duration = msgspec.field(default_factory=lambda: Duration(300_000))
    """Maximum age of a signature, if the scheme has a time in it."""


class HookView(msgspec.Struct, omit_defaults=True):
    """A webhook endpoint. Secrets are never shown again."""

    name: QueueName
    scheme: Scheme
    type: str
    tolerance: float | int
    path: str
    secrets: int
    """How many secrets there are."""
    created_at: Time
    updated_at: Time
    secret: str = ""
    """The secret that the server created, shown only this once."""


class HookPage(msgspec.Struct):
    """A page of webhook endpoints, by name."""

    items: list[HookView]
    next_cursor: str | None


class HookAnswer(msgspec.Struct):
    """Answer to the sender of a webhook, which needs to know no more."""

    status: Literal["accepted", "repeated"]


Pattern: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=EVENT_TYPE_CHARS_MAX,
        pattern=EVENT_TYPES,
        description="a type of event, `prefix.*` for all types with that prefix, or `*`",
        examples=["object.*"],
    ),
]
Filter: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1, max_length=FILTER_CHARS_MAX)] | dict[str, Any],
    Meta(
        description="an expression such as `data.size > 1000 and has(data.name)`, or an object "
        "with the values that the data must have",
        examples=["data.size > 1000"],
    ),
]
Key: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=FILTER_CHARS_MAX,
        pattern=PLAIN,
        description="a path into the event: events are collected separately for each value",
        examples=["data.customer"],
    ),
]


class DebounceSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Debounce: waits until no event has come for a while, then makes one job."""

    wait: SomeTime
    keep: Literal["last", "all"] = "last"
    max_wait: SomeTime | None = None
    """The longest wait after the first event, if events keep coming."""
    key: Key | None = None

    def __post_init__(self) -> None:
        if self.wait.ms == 0:
            raise ValueError("wait must be more than 0")
        if self.max_wait is not None and self.max_wait.ms == 0:
            raise ValueError("max_wait must be more than 0")


class BatchingSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Batching: collects events and makes one job when `size` have come or `wait` has passed."""

    size: Annotated[int, Meta(ge=1, le=BATCH_EVENTS_MAX)] = BATCH_EVENTS_MAX
    wait: SomeTime = msgspec.field(default_factory=lambda: Duration(10_000))
    key: Key | None = None

    def __post_init__(self) -> None:
        if self.wait.ms == 0:
            raise ValueError("wait must be more than 0")


Debounce: TypeAlias = Annotated[
    float | str | DebounceSpec,
    Meta(description='an object, or only the time to wait, as "5s"'),
]
Batch: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1, le=BATCH_EVENTS_MAX)] | BatchingSpec,
    Meta(description="an object, or only the number of events for a job"),
]


class TriggerSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A trigger to create. Without a payload of its own the job gets the whole event; placeholders
    such as `{{event.data.path}}` in its task and payload are filled in.
    """

    name: Name
    event: Pattern
    job: JobSpec
    filter: Filter | None = None
    debounce: Debounce | None = None
    batch: Batch | None = None
    rate_limit: RateLimitSpec | None = None
    """Limit of the jobs made; an event beyond it makes no job and is recorded as `limited`."""
    paused: bool = False


class DebounceView(msgspec.Struct):
    """Debounce in force; durations in seconds."""

    wait: float | int
    keep: Literal["last", "all"]
    max_wait: float | int | None
    key: str | None


class BatchingView(msgspec.Struct):
    """Batching in force; `wait` in seconds."""

    size: int
    wait: float | int
    key: str | None


class TriggerView(msgspec.Struct):
    """A trigger: its definition, and the events that it holds."""

    trigger_id: str
    name: str
    event: str
    filter: Any
    job: dict[str, Any]
    debounce: DebounceView | None
    batch: BatchingView | None
    rate_limit: RateLimitView | None
    paused: bool
    waiting: int
    """Events that wait for others, because of debounce or batching."""
    closes_at: Time | None
    """When the first of them make their job, if no other event comes."""
    owner: str | None
    """The app that deployed it."""
    revision: int
    created_at: Time
    updated_at: Time


class TriggerPage(msgspec.Struct):
    """A page of triggers, newest first."""

    items: list[TriggerView]
    next_cursor: str | None


class TrialSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An event to try out: against a trigger that does not exist yet, one that does, or all."""

    event: EventSpec
    trigger: TriggerSpec | None = None
    trigger_id: str | None = None


class TrialView(msgspec.Struct):
    """Decision that a trigger would make about the event, with the job."""

    trigger_id: str | None
    name: str
    outcome: Outcome
    message: str
    job: dict[str, Any] | None


class TrialAnswer(msgspec.Struct):
    """Decisions that would be made; nothing was stored."""

    items: list[TrialView]


class DeployTriggersSpec(msgspec.Struct, forbid_unknown_fields=True):
    """All triggers of an app; those deployed before and not listed here are retired."""

    owner: OwnerName
    triggers: Annotated[list[TriggerSpec], Meta(max_length=DEPLOYED_TRIGGERS_MAX)]
