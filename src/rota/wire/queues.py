"""Queues: their limits and how much waits in them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.wire.jobs import Time
from rota.wire.limits import PRIORITY_MAX
from rota.wire.units import SomeTime


class RateLimitSpec(msgspec.Struct, forbid_unknown_fields=True):
    """At most `count` starts in each `per`."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    per: SomeTime

    def __post_init__(self) -> None:
        if self.per.ms == 0:
            raise ValueError("per must be more than 0")


class QueueSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A queue's settings. PUT resets what is left out, PATCH keeps it; null restores a default."""

    priority: Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] | UnsetType | None = UNSET
    weight: Annotated[float, Meta(gt=0, le=1000000)] | UnsetType | None = UNSET
    max_workers: Annotated[int, Meta(ge=0, le=1000000)] | UnsetType | None = UNSET
    rate_limit: RateLimitSpec | UnsetType | None = UNSET
    paused: bool | UnsetType | None = UNSET


class RateLimitView(msgspec.Struct):
    """The rate limit in force; `per` in seconds."""

    count: int
    per: float | int


class DepthView(msgspec.Struct):
    """How many jobs of the queue are where."""

    pending: int
    queued: int
    running: int
    cancelling: int


class QueueView(msgspec.Struct):
    """A queue's settings and depth."""

    name: str
    priority: int
    weight: float
    max_workers: int | None
    rate_limit: RateLimitView | None
    paused: bool
    depth: DepthView
    created_at: Time


class QueuePage(msgspec.Struct):
    """All queues, by name."""

    items: list[QueueView]
    next_cursor: str | None


class CountAnswer(msgspec.Struct):
    """How many jobs were touched."""

    count: int
