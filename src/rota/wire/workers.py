"""The worker protocol: registration, heartbeat, lease, orders, and reports about executions; and
views of workers and executions. A worker in another language needs only this module.
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
"""Default result and error: one object for all executions, so that it can be recognised by
identity.
"""


class CompletionSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Report of how an execution ended."""

    status: Literal["succeeded", "failed", "timed_out", "cancelled", "returned"]
    """`returned`: it was not started and will not be on this worker; the attempt does not count."""
    fence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    result: msgspec.Raw = msgspec.field(default_factory=lambda: NOTHING)
    error: msgspec.Raw = msgspec.field(default_factory=lambda: NOTHING)
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**31)] | None = None
    usage: dict[str, Any] | None = None
    retryable: bool = True
    retry_after: Duration | None = None
    """Delay before the next attempt, in place of the job's own backoff, if there is a next attempt.
    """


class CompletedReport(CompletionSpec, kw_only=True, forbid_unknown_fields=True):
    """Report of how an execution ended, as part of a `lease` call."""

    execution_id: str


class ProgressSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Progress of an execution."""

    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=MESSAGE_CHARS_MAX)] | None = None
    fence: int | None = None


class ExecutionView(msgspec.Struct):
    """An execution: one attempt of a job."""

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
    """Bytes of memory that the job requested for this attempt."""
    behind: str | None = None
    """For a prefetched execution: the execution on the same worker that had to end first."""


class ExecutionPage(msgspec.Struct):
    """A page of executions, newest first."""

    items: list[ExecutionView]
    next_cursor: str | None


class ArtifactView(msgspec.Struct):
    """An output file that was kept."""

    name: str
    size: int
    sha256: str | None = None
    """Null: the file is small, and its checksum comes with its content."""


LEADER_HEADER = "Rota-Leader"
"""Header of an answer to a worker: the leader's URL, if another server was asked."""

WorkerIdText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64, pattern=WORKER_ID)]


class ResourcesSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Resources of a worker; a kind that is left out is 0."""

    cpu: Amount = 0.0
    memory: ByteSize = msgspec.field(default_factory=no_bytes)
    storage: ByteSize = msgspec.field(default_factory=no_bytes)
    gpu: Amount = 0.0
    custom: Annotated[dict[Name, Amount], Meta(max_length=CUSTOM_RESOURCES_MAX)] = {}


class RegisterSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Registration of a worker."""

    name: Name
    worker_id: WorkerIdText | None = None
    capabilities: Annotated[list[Capability], Meta(max_length=WORKER_CAPABILITIES_MAX)] = []
    resources: ResourcesSpec = msgspec.field(default_factory=ResourcesSpec)
    queues: Annotated[list[QueueName], Meta(max_length=QUEUES_PER_WORKER_MAX)] | None = None
    labels: WorkerLabels = {}
    only: Taints = []
    """Taints: the worker accepts only jobs that request one of these resources or capabilities, or
    tolerate it.
    """


class RegisterAnswer(msgspec.Struct):
    """The worker's id, and the intervals (in seconds) that it must keep to."""

    worker_id: str
    session: str
    heartbeat_interval: float
    lease_ttl: float
    poll_wait_max: float
    spare_max: int = 0
    """Orders that a worker may prefetch; 0: this server does not prefetch."""
    patient: bool = False
    """Whether this server holds a `patient` call that carries reports."""


class RunningReport(msgspec.Struct, forbid_unknown_fields=True):
    """A running execution that the worker names, perhaps with its progress."""

    execution_id: str
    fence: int | None = None
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=MESSAGE_CHARS_MAX)] | None = None


class HeartbeatSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A heartbeat: renews the worker's leases. Without `executions`: those named before."""

    usage: dict[str, Any] = {}
    executions: Annotated[list[str | RunningReport], Meta(max_length=LEASE_REPORTS_MAX)] | None = (
        None
    )
    session: str | None = None


class HeartbeatAnswer(msgspec.Struct):
    """Executions to cancel, and executions that this worker has lost."""

    cancel: list[str]
    lost: list[str]


class LeaseSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A `lease` call: reports ended executions, renews the lease of running ones, and waits for
    orders.

    Fields with their default are left out: an older server refuses fields it does not know.
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
    """Orders to prefetch: each starts when a running execution has ended."""
    patient: bool = False
    """Nobody waits for the receipt of the reports: the call may be held until there is work, like
    one without reports.
    """


class OrderView(msgspec.Struct):
    """An order: one execution to run; `task` null: the registered function `name`, on `payload`."""

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
    """Limits of the job, if its queue differs from the defaults."""
    array: PlaceView | None = None
    gang: RankView | None = None
    behind: str | None = None
    """For a prefetched order: it must not start before this execution, on the same worker, has
    ended.
    """


class LeaseAnswer(msgspec.Struct):
    """Orders, and executions to stop. Count each lease from the moment the call was sent, plus
    `held_for` seconds.
    """

    executions: list[OrderView]
    held_for: float
    cancel: list[str]
    lost: list[str]


class AmountView(msgspec.Struct):
    """Capacity and use of one kind of resource on a worker."""

    capacity: float | int
    used: float | int


class WorkerResources(msgspec.Struct):
    """Capacity and use of all resources of a worker."""

    cpu: AmountView
    memory: AmountView
    storage: AmountView
    gpu: AmountView
    custom: dict[str, AmountView]


class WorkerView(msgspec.Struct):
    """A worker and its current executions."""

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
