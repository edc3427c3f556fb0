"""Conversion of a queue's settings from wire to core, and of its state to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from rota.core.commands import Key, Preloaded, PutQueueSettings
from rota.core.info_model import QueueInfo
from rota.core.model import JobLimits, JobState, RateLimit
from rota.wire.formats import ByteSize, from_instant, number
from rota.wire.queues import DepthView, LimitsSpec, LimitsView, QueueSpec, QueueView, RateLimitView


def settings_of(
    name: str, spec: QueueSpec, *, replace: bool, key: Key | None, preloaded: Preloaded | None
) -> PutQueueSettings:
    """Makes the command; PUT resets what is left out, PATCH only what is null."""
    cleared = [one for one in spec.__struct_fields__ if getattr(spec, one) is None]
    rate = value_or_none(spec.rate_limit)
    return PutQueueSettings(
        name=name,
        replace=replace,
        priority=value_or_none(spec.priority),
        weight=value_or_none(spec.weight),
        max_workers=value_or_none(spec.max_workers),
        rate_limit=RateLimit(rate.count, rate.per.ms) if rate is not None else None,
        paused=value_or_none(spec.paused),
        limits=_limits(value_or_none(spec.limits)),
        cleared=tuple(cleared),
        key=key,
        preloaded=preloaded,
    )


def _limits(spec: LimitsSpec | None) -> tuple[tuple[str, int | None], ...]:
    """Returns the limits that were named; None means the default."""
    changes = []
    for name in LimitsSpec.__struct_fields__:
        value = getattr(spec, name, UNSET)
        if value is not UNSET:
            changes.append((name, value.bytes if isinstance(value, ByteSize) else value))
    return tuple(changes)


T = TypeVar("T")


def value_or_none(value: T | UnsetType | None) -> T | None:
    """Returns what was sent; None for both null and left out."""
    return None if isinstance(value, UnsetType) else value


def limits_view(limits: JobLimits | None) -> LimitsView:
    """Returns the limits of a queue's jobs: its own, and the defaults where it has none."""
    own = {} if limits is None else msgspec.structs.asdict(limits)
    return LimitsView(**{name: value for name, value in own.items() if value is not None})


def queue_view(info: QueueInfo, rate: float | None = None) -> QueueView:
    """Converts a queue with its settings, depth and rate."""
    queue, depth, most = info.queue, info.depth, info.queue.rate_limit
    return QueueView(
        name=queue.name,
        priority=queue.priority,
        weight=queue.weight,
        max_workers=queue.max_workers,
        rate_limit=RateLimitView(most.count, number(most.per_ms)) if most else None,
        paused=queue.paused,
        depth=depth_view(depth),
        created_at=from_instant(queue.created_at),
        limits=limits_view(queue.limits),
        rate=rate,
    )


def depth_view(depth: Mapping[JobState, int]) -> DepthView:
    """Counts jobs by state."""
    return DepthView(
        pending=depth.get(JobState.PENDING, 0),
        queued=depth.get(JobState.QUEUED, 0),
        running=depth.get(JobState.RUNNING, 0),
        cancelling=depth.get(JobState.CANCELLING, 0),
    )
