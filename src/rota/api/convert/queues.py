"""Settings of a queue from wire to core."""

from __future__ import annotations

from msgspec import UNSET

from rota.api.convert.jobs import value_or_none
from rota.core.commands import Key, Preloaded, PutQueueSettings
from rota.core.model import RateLimit
from rota.wire.formats import ByteSize
from rota.wire.queues import LimitsSpec, QueueSpec


def settings_of(
    name: str, spec: QueueSpec, *, replace: bool, key: Key | None, recall: Preloaded | None
) -> PutQueueSettings:
    """PUT puts back what is left out; PATCH only what is null."""
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
        preloaded=recall,
    )


def _limits(spec: LimitsSpec | None) -> tuple[tuple[str, int | None], ...]:
    """Those that were named; null means the default."""
    changes = []
    for name in LimitsSpec.__struct_fields__:
        value = getattr(spec, name, UNSET)
        if value is not UNSET:
            changes.append((name, value.bytes if isinstance(value, ByteSize) else value))
    return tuple(changes)
