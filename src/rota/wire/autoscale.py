"""How many workers would clear what waits: what autoscalers read."""

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
