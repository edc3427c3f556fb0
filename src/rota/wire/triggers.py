"""Triggers: which events make which jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.events import EventSpec, Outcome
from rota.wire.jobs import JobSpec, Name, Time
from rota.wire.limits import (
    BATCH_EVENTS_MAX,
    DEPLOYED_TRIGGERS_MAX,
    EVENT_TYPE_CHARS_MAX,
    FILTER_CHARS_MAX,
)
from rota.wire.patterns import EVENT_TYPES, PLAIN
from rota.wire.queues import RateLimitSpec, RateLimitView
from rota.wire.schedules import OwnerName
from rota.wire.units import Duration, SomeTime

Pattern: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=EVENT_TYPE_CHARS_MAX,
        pattern=EVENT_TYPES,
        description="a type of event, `prefix.*` for all that begin so, or `*`",
        examples=["object.*"],
    ),
]
Filter: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1, max_length=FILTER_CHARS_MAX)] | dict[str, Any],
    Meta(
        description="an expression such as `data.size > 1000 and has(data.name)`, or an object of "
        "what in the data must be equal",
        examples=["data.size > 1000"],
    ),
]
Key: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=FILTER_CHARS_MAX,
        pattern=PLAIN,
        description="a path into the event: each value gathers on its own",
        examples=["data.customer"],
    ),
]


class DebounceSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Waits until no event has come for a while; then one job."""

    wait: SomeTime
    keep: Literal["last", "all"] = "last"
    max_wait: SomeTime | None = None
    """No longer than this after the first, even if it never gets quiet."""
    key: Key | None = None

    def __post_init__(self) -> None:
        if self.wait.ms == 0:
            raise ValueError("wait must be more than 0")
        if self.max_wait is not None and self.max_wait.ms == 0:
            raise ValueError("max_wait must be more than 0")


class BatchingSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Gathers events; one job for so many of them, or for what came in a time."""

    size: Annotated[int, Meta(ge=1, le=BATCH_EVENTS_MAX)] = BATCH_EVENTS_MAX
    wait: SomeTime = msgspec.field(default_factory=lambda: Duration(10_000))
    key: Key | None = None

    def __post_init__(self) -> None:
        if self.wait.ms == 0:
            raise ValueError("wait must be more than 0")


Debounce: TypeAlias = Annotated[
    float | str | DebounceSpec, Meta(description='an object, or only how long to wait, as "5s"')
]
Batch: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1, le=BATCH_EVENTS_MAX)] | BatchingSpec,
    Meta(description="an object, or only how many events make a job"),
]


class TriggerSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A trigger to make. Without a payload of its own the job gets the whole event; slots such as
    `{{event.data.path}}` in its task and payload are filled in."""

    name: Name
    event: Pattern
    job: JobSpec
    filter: Filter | None = None
    debounce: Debounce | None = None
    batch: Batch | None = None
    rate_limit: RateLimitSpec | None = None
    """Jobs made at most; events beyond it make none, and that is on record."""
    paused: bool = False


class DebounceView(msgspec.Struct):
    """The debounce in force; durations in seconds."""

    wait: float | int
    keep: Literal["last", "all"]
    max_wait: float | int | None
    key: str | None


class BatchingView(msgspec.Struct):
    """The batch in force; `wait` in seconds."""

    size: int
    wait: float | int
    key: str | None


class TriggerView(msgspec.Struct):
    """A trigger: all that was asked, and what waits in it."""

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
    """Events that wait for others."""
    closes_at: Time | None
    """When the first of them make their job, if nothing else comes."""
    owner: str | None
    """The program that deployed it."""
    revision: int
    created_at: Time
    updated_at: Time


class TriggerPage(msgspec.Struct):
    """A page of triggers, newest first."""

    items: list[TriggerView]
    next_cursor: str | None


class TrialSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An event to be tried out: against a trigger that is not made, one that is, or all."""

    event: EventSpec
    trigger: TriggerSpec | None = None
    trigger_id: str | None = None


class TrialView(msgspec.Struct):
    """What a trigger would make of the event, and the job it would be."""

    trigger_id: str | None
    name: str
    outcome: Outcome
    message: str
    job: dict[str, Any] | None


class TrialAnswer(msgspec.Struct):
    """What would happen; nothing has."""

    items: list[TrialView]


class DeployTriggersSpec(msgspec.Struct, forbid_unknown_fields=True):
    """All triggers that a program has; those it had before and are not here are retired."""

    owner: OwnerName
    triggers: Annotated[list[TriggerSpec], Meta(max_length=DEPLOYED_TRIGGERS_MAX)]
