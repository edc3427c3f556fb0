"""The worker protocol: registration, heartbeat, lease, orders, and reports about executions;
workers and executions as they are answered. A worker in another language needs only this.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.formats import WORKER_ID, ByteSize, Duration, no_bytes
from rota.wire.groups import PlaceView, RankView
from rota.wire.jobs import (
    Amount,
    Capability,
    Name,
    QueueName,
    RequirementsView,
    Taints,
    Time,
    WorkerLabels,
)
from rota.wire.limits import (
    CUSTOM_RESOURCES_MAX,
    LEASE_ORDERS_MAX,
    LEASE_REPORTS_MAX,
    MESSAGE_CHARS_MAX,
    QUEUES_PER_WORKER_MAX,
    WORKER_CAPABILITIES_MAX,
)
from rota.wire.queues import LimitsView

NOTHING = msgspec.Raw(b"null")
"""What an execution leaves that says nothing: one object, which is known by itself."""


class CompletionSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How an execution ended."""

    status: Literal["succeeded", "failed", "timed_out", "cancelled", "returned"]
    """`returned`: it has not begun, and will not on this worker; the try does not count."""
    fence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    result: msgspec.Raw = msgspec.field(default_factory=lambda: NOTHING)
    error: msgspec.Raw = msgspec.field(default_factory=lambda: NOTHING)
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**31)] | None = None
    usage: dict[str, Any] | None = None
    retryable: bool = True
    retry_after: Duration | None = None
    """When to try again, instead of the job's own delay; of use where there is another try."""


class CompletedReport(CompletionSpec, kw_only=True, forbid_unknown_fields=True):
    """The same, carried by a `lease` call."""

    execution_id: str


class ProgressSpec(msgspec.Struct, forbid_unknown_fields=True):
    """How far an execution is."""

    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=MESSAGE_CHARS_MAX)] | None = None
    fence: int | None = None


class ExecutionView(msgspec.Struct):
    """One try of a job."""

    execution_id: str
    job_id: str
    worker_id: str
    attempt: int
    fence: int
    status: Literal[
        "claimed",
        "running",
        "succeeded",
        "failed",
        "timed_out",
        "cancelled",
        "lost",
        "preempted",
    ]
    reason: str | None
    claimed_at: Time
    start_time: Time | None
    end_time: Time | None
    result: Any
    error: Any
    exit_code: int | None
    usage: Any
    artifacts: list[dict[str, Any]]
    memory: int = 0
    """Bytes of memory that the job asked for when this try began."""
    behind: str | None = None
    """The execution on the same worker whose place it waited for, prefetched."""


class ExecutionPage(msgspec.Struct):
    """A page of executions, newest first."""

    items: list[ExecutionView]
    next_cursor: str | None


class ArtifactView(msgspec.Struct):
    """An output file that was kept."""

    name: str
    size: int
    sha256: str | None = None
    """Null: it is small, and told when the file is fetched."""


LEADER_HEADER = "Rota-Leader"
"""In an answer to a worker: the leader's URL, where another server was asked."""

WorkerIdText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64, pattern=WORKER_ID)]


class ResourcesSpec(msgspec.Struct, forbid_unknown_fields=True):
    """What a worker has to give; left out means 0."""

    cpu: Amount = 0.0
    memory: ByteSize = msgspec.field(default_factory=no_bytes)
    storage: ByteSize = msgspec.field(default_factory=no_bytes)
    gpu: Amount = 0.0
    custom: Annotated[dict[Name, Amount], Meta(max_length=CUSTOM_RESOURCES_MAX)] = {}


class RegisterSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A worker says what it is and has."""

    name: Name
    worker_id: WorkerIdText | None = None
    capabilities: Annotated[list[Capability], Meta(max_length=WORKER_CAPABILITIES_MAX)] = []
    resources: ResourcesSpec = msgspec.field(default_factory=ResourcesSpec)
    queues: Annotated[list[QueueName], Meta(max_length=QUEUES_PER_WORKER_MAX)] | None = None
    labels: WorkerLabels = {}
    only: Taints = []
    """Takes only jobs that ask for one of these resources or capabilities, or tolerate it."""


class RegisterAnswer(msgspec.Struct):
    """The worker's id and the lengths of time (seconds) it must keep to."""

    worker_id: str
    session: str
    heartbeat_interval: float
    lease_ttl: float
    poll_wait_max: float
    spare_max: int = 0
    """Orders that a worker may prefetch; 0: this server gives none."""
    patient: bool = False
    """Whether this server holds a call that says so, though it carries reports."""


class RunningReport(msgspec.Struct, forbid_unknown_fields=True):
    """A worker names an execution that it has; progress may come with it."""

    execution_id: str
    fence: int | None = None
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=MESSAGE_CHARS_MAX)] | None = None


class HeartbeatSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A worker is alive. `executions` left out renews what it has named before."""

    usage: dict[str, Any] = {}
    executions: Annotated[list[str | RunningReport], Meta(max_length=LEASE_REPORTS_MAX)] | None = (
        None
    )
    session: str | None = None


class HeartbeatAnswer(msgspec.Struct):
    """What to stop, and what is no longer this worker's."""

    cancel: list[str]
    lost: list[str]


class LeaseSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A worker reports what ended, names what it runs, and waits for more.

    What is as usual is left out: an older server refuses what it does not know.
    """

    max: Annotated[int, Meta(ge=0, le=LEASE_ORDERS_MAX)] = 1
    wait: Duration = msgspec.field(default_factory=lambda: Duration(20_000))
    completed: Annotated[list[CompletedReport], Meta(max_length=LEASE_REPORTS_MAX)] = []
    executions: Annotated[list[str | RunningReport], Meta(max_length=LEASE_REPORTS_MAX)] | None = (
        None
    )
    usage: dict[str, Any] = {}
    session: str | None = None
    spare: Annotated[int, Meta(ge=0, le=LEASE_ORDERS_MAX)] = 0
    """Orders it can hold beside, each to begin when one that it runs has ended."""
    patient: bool = False
    """Nobody waits to hear that the reports came: the call may be held for work, as one without."""


class OrderView(msgspec.Struct):
    """One execution to run; `task` null: the registered function `name`, on `payload`."""

    execution_id: str
    job_id: str
    attempt: int
    fence: int
    name: str
    queue: str
    task: msgspec.Raw
    payload: msgspec.Raw
    requirements: RequirementsView
    timeout: float | int | None
    lease_expires_in: float
    scheduled_at: Time
    traceparent: str | None = None
    limits: LimitsView | None = None
    """What the job is held to, where its queue says otherwise than everybody's."""
    array: PlaceView | None = None
    gang: RankView | None = None
    behind: str | None = None
    """Prefetched: it must not begin before this execution, on the same worker, has ended."""


class LeaseAnswer(msgspec.Struct):
    """Work, and what to stop. Count leases from sending the poll plus `held_for` seconds."""

    executions: list[OrderView]
    held_for: float
    cancel: list[str]
    lost: list[str]


class AmountView(msgspec.Struct):
    """One kind of resource on a worker."""

    capacity: float | int
    used: float | int


class WorkerResources(msgspec.Struct):
    """Everything a worker has, and how much of it is in use."""

    cpu: AmountView
    memory: AmountView
    storage: AmountView
    gpu: AmountView
    custom: dict[str, AmountView]


class WorkerView(msgspec.Struct):
    """A worker and what it is doing."""

    worker_id: str
    name: str
    status: Literal["online", "draining", "unhealthy", "offline"]
    capabilities: list[str]
    queues: list[str] | None
    resources: WorkerResources
    last_heartbeat: Time | None
    registered_at: Time
    executions: list[str]
    usage: dict[str, Any]
    labels: dict[str, str] = {}
    only: list[str] = []


class WorkerPage(msgspec.Struct):
    """A page of workers, newest first."""

    items: list[WorkerView]
    next_cursor: str | None
