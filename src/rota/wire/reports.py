"""What jobs asked for and what they took."""

from __future__ import annotations

import msgspec

from rota.wire.jobs import Time


class SpreadView(msgspec.Struct):
    """Of the last few hundred runs: the middle one, one of twenty, and the most ever."""

    p50: float
    p95: float
    max: float


class AmountsView(msgspec.Struct):
    """Cores, and bytes of memory."""

    cpu: float | int
    memory: int


class UsedView(msgspec.Struct):
    """Cores on average over a run, bytes of memory at its peak, seconds."""

    cpu: SpreadView
    memory: SpreadView
    runtime: SpreadView


class WasteSums(msgspec.Struct):
    """Over all runs since the day asked for."""

    runs: int
    cpu_hours_asked: float
    cpu_hours_used: float
    cpu_hours_wasted: float
    memory_gib_hours_asked: float
    memory_gib_hours_used: float
    memory_gib_hours_wasted: float


class WasteItem(msgspec.Struct):
    """Jobs of one name."""

    tenant: str
    name: str
    sums: WasteSums
    asked: AmountsView
    """By the newest run."""
    used: UsedView
    suggestion: AmountsView | None
    """What to ask for instead; null: too few runs."""


class WasteTenant(msgspec.Struct):
    """All jobs of a tenant."""

    tenant: str
    sums: WasteSums


class WasteView(msgspec.Struct):
    """Who asks for more than it takes, the most wasteful first."""

    since: Time
    sums: WasteSums
    tenants: list[WasteTenant]
    items: list[WasteItem]
