"""Records about capacity: how many workers would clear the backlog (for autoscalers), and how much
jobs requested and used.
"""

from __future__ import annotations

import msgspec

from rota.wire.jobs import RequirementsView, Time


class InflowView(msgspec.Struct):
    """Arrival rate of jobs over the last five minutes."""

    jobs_per_second: float
    work_per_second: float
    """Seconds of work that arrive each second: as many slots keep up with it."""


class WorkerCountView(msgspec.Struct):
    """Number of workers now, and the number needed."""

    online: int
    idle: int
    needed: int
    add: int
    """How many more are needed."""
    remove: int
    """How many idle workers can be removed."""


class SizeView(msgspec.Struct):
    """Capacity of a worker; memory and storage in bytes."""

    cpu: float | int
    memory: int
    storage: int
    gpu: float | int
    custom: dict[str, float | int]


class KindView(msgspec.Struct):
    """Workers of about the same size that can run the same jobs."""

    size: SizeView
    capabilities: list[str]
    queues: list[str] | None
    only: list[str]
    workers: WorkerCountView


class ShapeView(msgspec.Struct):
    """Jobs of one queue with the same requirements."""

    requirements: RequirementsView
    jobs: int
    work: float
    """Their expected total runtime in seconds, as far as it can be estimated."""
    running: int
    arrival: InflowView
    slots: float
    """How many of them should run at once."""
    per_worker: int | None
    """How many fit on one worker; null: no known worker can run them."""
    kind: int | None
    """Index in `kinds` of the kind of worker that they would go to first."""


class QueueDemandView(msgspec.Struct):
    """Demand of one queue alone; its workers may serve other queues too."""

    jobs: int
    work: float
    running: int
    arrival: InflowView
    workers: WorkerCountView
    stranded: int
    """Jobs that no known worker can run: more workers of the known kinds would not help."""
    paused: bool
    shapes: list[ShapeView]


class AutoscaleView(msgspec.Struct):
    """Workers that would clear the backlog within `target` seconds."""

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
    """Median, 95th percentile and maximum of the last few hundred executions."""

    p50: float
    p95: float
    max: float


class AmountsView(msgspec.Struct):
    """Cores, and bytes of memory."""

    cpu: float | int
    memory: int


class UsedView(msgspec.Struct):
    """Average cores of an execution, its peak memory in bytes, and its runtime in seconds."""

    cpu: SpreadView
    memory: SpreadView
    runtime: SpreadView


class WasteSums(msgspec.Struct):
    """Totals of all executions since the day asked for."""

    runs: int
    cpu_hours_asked: float
    cpu_hours_used: float
    cpu_hours_wasted: float
    memory_gib_hours_asked: float
    memory_gib_hours_used: float
    memory_gib_hours_wasted: float


class WasteItem(msgspec.Struct):
    """Requested and used resources of the jobs of one name."""

    tenant: str
    name: str
    sums: WasteSums
    asked: AmountsView
    """Requested by the newest execution."""
    used: UsedView
    suggestion: AmountsView | None
    """A better request; null: there are too few executions to tell."""


class WasteTenant(msgspec.Struct):
    """Totals of all jobs of a tenant."""

    tenant: str
    sums: WasteSums


class WasteView(msgspec.Struct):
    """Jobs and tenants that request more than they use, the most wasteful first."""

    since: Time
    sums: WasteSums
    tenants: list[WasteTenant]
    items: list[WasteItem]
