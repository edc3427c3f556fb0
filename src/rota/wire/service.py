"""The service itself: health, statistics, servers of the cell, the stream of changes; and the
overview: history of metrics, what needs attention, error groups, the timeline, the session.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from rota.wire.jobs import Status, Time


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


Concern: TypeAlias = Literal["cluster", "alert", "worker", "failing", "queue", "schedule"]


class SampleView(msgspec.Struct):
    """A stretch of time: what was at its end, and what happened in it."""

    at: Time
    """The end of the stretch."""
    span: float
    """Its length in seconds."""
    waiting: int
    """Pending and queued jobs at the end."""
    running: int
    submitted: int
    succeeded: int
    failed: int
    other: int
    """Ended neither way: cancelled, skipped, expired."""
    wait_p50: float | None
    """Seconds from ready to claimed, of the jobs that started in it; null: none did."""
    wait_p95: float | None
    resources: dict[str, dict[str, float | int]]
    """By kind: `capacity` and `used` at the end."""


class HistoryView(msgspec.Struct):
    """How the figures moved, oldest first; as far back as this leader has been counting."""

    step: float
    """Seconds that one item stands for."""
    items: list[SampleView]


class DigestView(msgspec.Struct):
    """What a digest of the stream carries. Where it has no figures, ask for them."""

    seq: int
    """How far the journal is."""
    stats: StatsView | None = None
    sample: SampleView | None = None
    """The newest stretch of the history."""


class ConcernView(msgspec.Struct):
    """One thing that needs a person."""

    kind: Concern
    about: str
    """The id or name of what it is about."""
    name: str
    message: str
    count: int = 1
    since: Time | None = None
    job_id: str | None = None
    """A job to look at."""


class AttentionView(msgspec.Struct):
    """What needs a person now, the gravest first."""

    items: list[ConcernView]


class ErrorGroupView(msgspec.Struct):
    """Dead letters of one name that failed alike."""

    fingerprint: str
    name: str
    message: str
    """Of the newest one."""
    reason: str
    count: int
    queues: list[str]
    first_at: Time
    last_at: Time
    job_ids: list[str]
    """The newest of them: those to try first."""


class ErrorGroupPage(msgspec.Struct):
    """Groups among the newest dead letters, the largest first."""

    items: list[ErrorGroupView]
    examined: int
    """How many dead letters were looked at."""
    more: bool
    """There are older ones that were not."""


class BarView(msgspec.Struct):
    """One execution on a timeline."""

    execution_id: str
    job_id: str
    name: str
    worker_id: str
    status: str
    job_status: Status | None
    start: Time
    end: Time | None


class ReservedView(msgspec.Struct):
    """A place on a worker that is kept for a job that waits."""

    job_id: str
    name: str
    worker_id: str
    start: Time
    """When it will probably come free."""
    end: Time
    """When the job will probably have ended."""


class WorkerBucketsView(msgspec.Struct):
    """How many executions began on a worker, stretch by stretch."""

    worker_id: str
    began: list[int]
    """One figure for each stretch, from the beginning of the window."""
    failed: list[int]
    """Of those the ones that failed, timed out or were lost."""


class TimelineBucketsView(msgspec.Struct):
    """A window in which more ran than can be drawn one by one, as counts."""

    step: float
    """Seconds that a stretch is long; the last one may be shorter."""
    total: int
    estimated: bool
    """In some parts of stretches more began than is looked at: theirs are counted from the first
    ones, by the time these took."""
    lanes: list[WorkerBucketsView]
    """By worker."""


class TimelineView(msgspec.Struct):
    """What ran when and where within a window, newest first."""

    start: Time
    end: Time
    items: list[BarView]
    more: bool
    """More began than is drawn one by one: `items` has what runs, `crowd` counts everything; for
    a tenant's token both are of that tenant alone."""
    reserved: list[ReservedView] = []
    """What is kept free from now on, if the window reaches until now."""
    running: int = 0
    """Executions that run now; `items` has the first thousand of them."""
    crowd: TimelineBucketsView | None = None
    """Set where there was more."""


class SessionView(msgspec.Struct):
    """Who is signed in, and to what."""

    name: str
    """Of the token."""
    role: str
    tenant: str | None
    node: str
    cell: str
    version: str
    now: Time
    """The server's clock."""
