"""Capacity: how many workers would clear the backlog (for autoscalers), and what jobs requested and
used.
"""

from __future__ import annotations

import msgspec

from rota.wire.jobs import RequirementsView, Time


class InflowView(msgspec.Struct):
    """What came in each second, over the last five minutes."""

    jobs_per_second: float
    work_per_second: float
    """Seconds of work: so many slots keep up with it."""


class WorkerCountView(msgspec.Struct):
    """How many workers there are, and how many there should be."""

    online: int
    idle: int
    needed: int
    add: int
    """How many more are needed."""
    remove: int
    """How many of the idle ones could go."""


class SizeView(msgspec.Struct):
    """What a worker has; memory and storage in bytes."""

    cpu: float | int
    memory: int
    storage: int
    gpu: float | int
    custom: dict[str, float | int]


class KindView(msgspec.Struct):
    """Workers of about the same size that are good for the same."""

    size: SizeView
    capabilities: list[str]
    queues: list[str] | None
    only: list[str]
    workers: WorkerCountView


class ShapeView(msgspec.Struct):
    """Jobs of one queue that ask for the same."""

    requirements: RequirementsView
    jobs: int
    work: float
    """How long they will run together, in seconds, as far as can be told."""
    running: int
    arrival: InflowView
    slots: float
    """How many of them should run at once."""
    per_worker: int | None
    """How many fit on one worker; null: no worker is known that could run them."""
    kind: int | None
    """The kind of worker they would go to first: its place in `kinds`."""


class QueueDemandView(msgspec.Struct):
    """One queue by itself; its workers may serve others too."""

    jobs: int
    work: float
    running: int
    arrival: InflowView
    workers: WorkerCountView
    stranded: int
    """Jobs that no known worker could run: more of them would not help."""
    paused: bool
    shapes: list[ShapeView]


class AutoscaleView(msgspec.Struct):
    """What would clear all that waits for a worker within `target` seconds."""

    at: Time
    target: float | int
    jobs: int
    work: float
    running: int
    arrival: InflowView
    workers: WorkerCountView
    stranded: int
    queues: dict[str, QueueDemandView]
    kinds: list[KindView]


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
