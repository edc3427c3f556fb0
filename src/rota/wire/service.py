"""Records about the service: health, statistics, servers of the cell, the stream of changes, the
overview.

The overview has the history of metrics, items that need attention, error groups, the timeline and
the session.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from rota.wire.jobs import Status, Time


class Health(msgspec.Struct, omit_defaults=True):
    """Whether the server is alive or ready, and if not, why."""

    status: str
    detail: str = ""
    cell: str = ""
    """The name of the server's cell."""
    role: str = ""
    """`leader` schedules; `follower` is a standby that answers reads and forwards writes."""


class StatsView(msgspec.Struct):
    """Totals for an overview."""

    jobs: dict[str, int]
    """Jobs by status: current counts of live jobs, ended jobs since the beginning."""
    queues: int
    workers: dict[str, int]
    resources: dict[str, dict[str, float | int]]
    submitted_total: int
    version: str
    started_at: Time


class LagView(msgspec.Struct):
    """Replication lag: how far a follower is behind the journal."""

    records: int
    seconds: float


class NodeView(msgspec.Struct):
    """One server of the cell, as it last reported itself."""

    node: str
    address: str
    role: str
    """`leader` or `follower`."""
    status: str
    """`up`, or `silent` if it has not reported for some seconds."""
    version: str
    lag: LagView
    last_seen: Time
    started_at: Time


class LossView(msgspec.Struct):
    """Journal records that a failover of the database lost."""

    records: int
    """How many were lost, as far as any server knows; 0: none is known, but some may be."""
    at: Time
    """When a server noticed it."""
    after: int
    """The newest record that was there then."""


class ClusterView(msgspec.Struct):
    """Leader, servers and durability of the cell."""

    leader: str | None
    """The leader's name; null: there is no leader at the moment."""
    epoch: int
    """Increases by one with each change of the leader."""
    nodes: list[NodeView]
    durability: str
    """`single`, `async-ha` or `sync-ha`: the failures that an accepted job survives."""
    warnings: list[str] = []
    """Problems that an operator should look at."""
    lost_records: int = 0
    """How many journal records failovers of the database have lost; 0 unless `durability` was less
    than `sync-ha`."""
    losses: list[LossView] = []
    """Each loss, oldest first."""


class ChangeView(msgspec.Struct, omit_defaults=True):
    """One state change, as the stream sends it."""

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
    """For a job: `at_risk`, `missed` or `met`, once that is known."""


Concern: TypeAlias = Literal["cluster", "alert", "worker", "failing", "queue", "schedule"]


class SampleView(msgspec.Struct):
    """One interval of the metrics history: gauges at its end, and counts within it."""

    at: Time
    """The end of the interval."""
    span: float
    """Its length in seconds."""
    waiting: int
    """Pending and queued jobs at the end."""
    running: int
    submitted: int
    succeeded: int
    failed: int
    other: int
    """Jobs that ended otherwise: cancelled, skipped, expired."""
    wait_p50: float | None
    """Seconds from ready to claimed, of the jobs that started in the interval; null: none did."""
    wait_p95: float | None
    resources: dict[str, dict[str, float | int]]
    """By kind: `capacity` and `used` at the end."""


class HistoryView(msgspec.Struct):
    """History of the metrics, oldest first, since this leader started to count."""

    step: float
    """Length of one item in seconds."""
    items: list[SampleView]


class DigestView(msgspec.Struct):
    """A digest of the stream. Where figures are missing, request them."""

    seq: int
    """The newest position of the journal."""
    stats: StatsView | None = None
    sample: SampleView | None = None
    """The newest interval of the history."""


class ConcernView(msgspec.Struct):
    """One item that needs a person's attention."""

    kind: Concern
    about: str
    """The id or name of its subject."""
    name: str
    message: str
    count: int = 1
    since: Time | None = None
    job_id: str | None = None
    """A job to look at."""


class AttentionView(msgspec.Struct):
    """Items that need a person's attention now, the most serious first."""

    items: list[ConcernView]


class ErrorGroupView(msgspec.Struct):
    """Dead letters of one name that failed in the same way."""

    fingerprint: str
    name: str
    message: str
    """The message of the newest one."""
    reason: str
    count: int
    queues: list[str]
    first_at: Time
    last_at: Time
    job_ids: list[str]
    """The newest of them: retry these first."""


class ErrorGroupPage(msgspec.Struct):
    """Groups of the newest dead letters, the largest first."""

    items: list[ErrorGroupView]
    examined: int
    """How many dead letters were examined."""
    more: bool
    """There are older dead letters that were not examined."""


class BarView(msgspec.Struct):
    """One execution on the timeline."""

    execution_id: str
    job_id: str
    name: str
    worker_id: str
    status: str
    job_status: Status | None
    start: Time
    end: Time | None


class ReservedView(msgspec.Struct):
    """A reservation: capacity of a worker that is kept for a waiting job."""

    job_id: str
    name: str
    worker_id: str
    start: Time
    """When the capacity will probably be free."""
    end: Time
    """When the job will probably end."""


class WorkerBucketsView(msgspec.Struct):
    """Counts of executions that began on a worker, by interval."""

    worker_id: str
    began: list[int]
    """One count for each interval, from the beginning of the window."""
    failed: list[int]
    """How many of those failed, timed out or were lost."""


class TimelineBucketsView(msgspec.Struct):
    """Counts by interval, for a window with too many executions to draw each of them."""

    step: float
    """Length of an interval in seconds; the last one may be shorter."""
    total: int
    estimated: bool
    """Some parts had more executions than are examined: their counts are extrapolated from the
    first ones.
    """
    lanes: list[WorkerBucketsView]
    """One item for each worker."""


class TimelineView(msgspec.Struct):
    """Executions of a window by worker and time, newest first."""

    start: Time
    end: Time
    items: list[BarView]
    more: bool
    """There are more executions than are listed: `items` has those that are running, `crowd` counts
    all. For a tenant's token both show that tenant only.
    """
    reserved: list[ReservedView] = []
    """Reservations from now on, if the window includes the present."""
    running: int = 0
    """Executions that are running now; `items` has the first thousand of them."""
    crowd: TimelineBucketsView | None = None
    """Set if `more` is true."""


class SessionView(msgspec.Struct):
    """The signed-in token, and the server it is signed in to."""

    name: str
    """The name of the token."""
    role: str
    tenant: str | None
    node: str
    cell: str
    version: str
    now: Time
    """The server's clock."""
