"""The service itself: health, figures, the cluster, the stream of changes."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.wire.jobs import Time


class Health(msgspec.Struct, omit_defaults=True):
    """Whether the server is alive, or ready, and if not why."""

    status: str
    detail: str = ""


class StatsView(msgspec.Struct):
    """What an overview shows."""

    jobs: dict[str, int]
    """Jobs by status: live ones as they are, ended ones since the beginning."""
    queues: int
    workers: dict[str, int]
    resources: dict[str, dict[str, float | int]]
    submitted_total: int
    version: str
    started_at: Time


class ClusterView(msgspec.Struct):
    """Who leads, and how durable an answer is."""

    leader: str | None
    epoch: int
    nodes: list[dict[str, Any]]
    durability: str


class ChangeView(msgspec.Struct, omit_defaults=True):
    """One state change, as sent by the stream."""

    kind: str
    """job, execution, worker, queue, schedule, occurrence, trigger or arrival."""
    id: str
    status: str
    at: Time
    name: str = ""
    queue: str = ""
    reason: str = ""
    job_id: str = ""
    worker_id: str = ""
    schedule_id: str = ""
    trigger_id: str = ""
