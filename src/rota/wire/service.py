"""The service itself: health, figures, the cluster, the stream of changes."""

from __future__ import annotations

import msgspec

from rota.wire.jobs import Time


class Health(msgspec.Struct, omit_defaults=True):
    """Whether the server is alive, or ready, and if not why."""

    status: str
    detail: str = ""
    cell: str = ""
    """The name of the cell that this server is of."""
    role: str = ""
    """`leader` decides, `follower` stands by, reads and forwards."""


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


class LagView(msgspec.Struct):
    """How far a follower is behind the journal."""

    records: int
    seconds: float


class NodeView(msgspec.Struct):
    """One server of the cell, as it told of itself."""

    node: str
    address: str
    role: str
    """`leader` or `follower`."""
    status: str
    """`up`, or `silent` if it has said nothing for seconds."""
    version: str
    lag: LagView
    last_seen: Time
    started_at: Time


class ClusterView(msgspec.Struct):
    """Who leads, who is there, and how durable an answer is."""

    leader: str | None
    """The leader's name; null: nobody leads just now."""
    epoch: int
    """One more with each change of the leader."""
    nodes: list[NodeView]
    durability: str
    """`single`, `async-ha` or `sync-ha`: what an accepted job survives."""
    warnings: list[str] = []
    """What should worry an operator."""


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
    deadline: str = ""
    """Of a job: `at_risk`, `missed` or `met`, once that is known."""
