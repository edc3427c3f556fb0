"""Records of jobs, submitted and answered: the job spec, its tasks by kind, affinity, dependencies,
retry policy; filters, bulk actions and the dependency graph.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.wire.formats import (
    BUNDLE_ID,
    CONTAINER_VARIABLE,
    ENTRY,
    HEADER_NAME,
    HEADER_VALUE,
    HTTP_URL,
    IMAGE,
    INPUT_NAME,
    NO_NUL,
    ONE_LINE,
    PLAIN,
    UUID,
    VARIABLE,
    WORD,
    ByteSize,
    Deadline,
    Duration,
    SomeTime,
    no_bytes,
)
from rota.wire.groups import ArrayView, Count, GangSpec, GangView, MaxParallel
from rota.wire.limits import (
    AFFINITY_LABELS_MAX,
    AFFINITY_VALUES_MAX,
    AMOUNT_MAX,
    ATTEMPTS_MAX,
    BATCH_JOBS_MAX,
    CAPABILITIES_MAX,
    CAPABILITY_CHARS_MAX,
    CUSTOM_RESOURCES_MAX,
    DEPENDENCIES_MAX,
    HEADER_CHARS_MAX,
    HEADERS_MAX,
    INPUTS_MAX,
    KEY_CHARS_MAX,
    LABELS_MAX,
    MEMORY_FACTOR_MAX,
    NAME_CHARS_MAX,
    PRIORITY_MAX,
    TAINTS_MAX,
    URL_CHARS_MAX,
)

Label: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=PLAIN)]
LabelValue: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=PLAIN)]
_OneValue: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=NAME_CHARS_MAX, extra_json_schema={"pattern": PLAIN}),
]
"""As LabelValue, but its pattern is checked in `__post_init__`: msgspec frees a text with a pattern
wrongly where a list is allowed in its place (its issue 717, tests/wire/test_interpreter_exit.py).
"""
LabelValues: TypeAlias = (
    _OneValue | Annotated[list[LabelValue], Meta(min_length=1, max_length=AFFINITY_VALUES_MAX)]
)
WorkerLabels: TypeAlias = Annotated[
    dict[Label, LabelValue],
    Meta(max_length=AFFINITY_LABELS_MAX, examples=[{"zone": "a", "host": "rack-7"}]),
]
Taint: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=CAPABILITY_CHARS_MAX, pattern=PLAIN)
]
"""A resource, a capability, or any word that jobs can tolerate."""
Taints: TypeAlias = Annotated[list[Taint], Meta(max_length=TAINTS_MAX)]


class AffinitySpec(msgspec.Struct, forbid_unknown_fields=True):
    """Workers that a job requires or prefers, by their labels.

    Every worker has the label `host`. A job waits for a preferred worker for `wait` at most,
    although another one is free; then it runs on any worker with enough capacity.
    """

    require: Annotated[dict[Label, LabelValues], Meta(max_length=AFFINITY_LABELS_MAX)] = {}
    prefer: Annotated[dict[Label, LabelValues], Meta(max_length=AFFINITY_LABELS_MAX)] = {}
    spread: Label | None = None
    near: Literal["previous"] | None = None
    wait: Duration = msgspec.field(default_factory=lambda: Duration(3_000))
    tolerate: Taints = []

    def __post_init__(self) -> None:
        for where, labels in (("require", self.require), ("prefer", self.prefer)):
            for label, value in labels.items():
                if isinstance(value, str) and not re.search(PLAIN, value):
                    raise ValueError(f"{where}.{label} must be plain text, without control codes")


class AffinityView(msgspec.Struct):
    """The affinity in force; `wait` in seconds."""

    require: dict[str, list[str]]
    prefer: dict[str, list[str]]
    spread: str | None
    near: Literal["previous"] | None
    wait: float | int
    tolerate: list[str]


FUNCTION_CAPABILITY = "fn:"
"""Prefix: a worker that has the function `invoice` has the capability `fn:invoice`."""
BUNDLE_CAPABILITY = "bundle"
"""Capability of a worker that can fetch bundles."""
CONTAINER_CAPABILITY = "container"
"""Capability of a worker that has podman or docker."""
_RESERVED_HEADERS = ("connection", "content-length", "host", "transfer-encoding")

EnvText: TypeAlias = Annotated[str, Meta(pattern=NO_NUL)]
Entry: TypeAlias = Annotated[
    str,
    Meta(
        max_length=NAME_CHARS_MAX,
        pattern=ENTRY,
        description="package.module:function",
        examples=["shop.billing:invoice"],
    ),
]
HeaderName: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=HEADER_NAME)]
HeaderValue: TypeAlias = Annotated[str, Meta(max_length=HEADER_CHARS_MAX, pattern=HEADER_VALUE)]
Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

BundleId: TypeAlias = Annotated[
    str,
    Meta(
        pattern=BUNDLE_ID,
        description="a bundle's id, from POST /bundles",
        examples=["019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"],
    ),
]
InputName: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=INPUT_NAME)]
Inputs: TypeAlias = Annotated[
    dict[InputName, BundleId],
    Meta(
        max_length=INPUTS_MAX,
        description="Bundles that the job finds in the folder ROTA_INPUTS, each under its name.",
    ),
]
Env: TypeAlias = dict[Annotated[str, Meta(min_length=1, pattern=VARIABLE)], EnvText]
Argument: TypeAlias = Annotated[list[EnvText], Meta(max_length=10_000)]

PROGRAM = {"type": "string", "pattern": r"^[^\x00]+$"}


class Command(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="command"):
    """A program in any language."""

    argv: Annotated[
        list[EnvText],
        Meta(
            min_length=1,
            max_length=10_000,
            examples=[["python3", "bill.py", "42"]],
            extra_json_schema={"prefixItems": [PROGRAM]},
        ),
    ]
    env: Env = {}
    cwd: EnvText | None = None
    inputs: Inputs | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not self.argv[0]:
            raise ValueError("argv[0] must name a program")


class PythonCall(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="python"):
    """A Python function that the worker can import; its return value is the job's result."""

    entry: Entry
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class HttpCall(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="http"):
    """One HTTP request; a text body is sent as it is, any other as JSON. Status 2xx is success."""

    url: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=URL_CHARS_MAX,
            pattern=HTTP_URL,
            examples=["https://shop.example/hooks/paid"],
        ),
    ]
    method: Method = "GET"
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=HEADERS_MAX)] = {}
    body: Any = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise ValueError(f"the URL is not valid: {error}") from None
        if not host:
            raise ValueError("the URL names no host")
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "leave the user and password out of the URL, which everybody can read: "
                "send an Authorization header"
            )
        for name in self.headers:
            if name.lower() in _RESERVED_HEADERS:
                raise ValueError(f"the header {name} is set by the worker")


class BundleRun(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="bundle"):
    """A program that was uploaded: a bundle, and what to run in it.

    The job's folder is the unpacked archive, or has the one file. `argv` left out runs that file.
    """

    bundle_id: BundleId
    argv: Annotated[
        Argument,
        Meta(examples=[["./run.sh", "42"]], extra_json_schema={"prefixItems": [PROGRAM]}),
    ] = []
    env: Env = {}
    inputs: Inputs | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.argv and not self.argv[0]:
            raise ValueError("argv[0] must name a program")


class Container(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="container"):
    """A program in a container image, run by the worker's podman or docker.

    `argv` left out runs what the image says. The job's folder is at /rota in the container.
    """

    image: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=NAME_CHARS_MAX,
            pattern=IMAGE,
            examples=["docker.io/library/alpine:3.20"],
        ),
    ]
    argv: Argument = []
    env: dict[
        Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=CONTAINER_VARIABLE)],
        Annotated[str, Meta(pattern=ONE_LINE)],
    ] = {}
    inputs: Inputs | UnsetType = UNSET


class Noop(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="noop"):
    """A task that does nothing: the worker acknowledges it."""


Task: TypeAlias = Command | PythonCall | HttpCall | BundleRun | Container | Noop
_WITHOUT_BUNDLES = (PythonCall, HttpCall, Noop)
"""A constant, because `|` would make a new type for every job."""


def bundles_of(task: Task | None) -> dict[str, str]:
    """The bundles that a task needs, by the field that names each; ids in lower case."""
    if task is None or isinstance(task, _WITHOUT_BUNDLES):
        return {}
    named = {"task.bundle_id": task.bundle_id.lower()} if isinstance(task, BundleRun) else {}
    if not isinstance(task.inputs, UnsetType):
        named |= {f"task.inputs.{name}": one.lower() for name, one in task.inputs.items()}
    return named


def implied_capabilities(task: Task | None) -> tuple[str, ...]:
    """Capabilities that this kind of task requires, whether the job names them or not."""
    found = [BUNDLE_CAPABILITY] if bundles_of(task) else []
    if isinstance(task, Container):
        found.append(CONTAINER_CAPABILITY)
    return tuple(found)


Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=PLAIN)]
QueueName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=WORD)]
Capability: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=CAPABILITY_CHARS_MAX, pattern=PLAIN)
]
JobIdText: TypeAlias = Annotated[
    str,
    Meta(
        pattern=UUID,
        description="a UUID",
        examples=["019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"],
    ),
]
Amount: TypeAlias = Annotated[float, Meta(ge=0, le=AMOUNT_MAX)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Time: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time in an answer: RFC 3339 in UTC."""
Status: TypeAlias = Literal[
    "pending",
    "queued",
    "running",
    "cancelling",
    "succeeded",
    "failed",
    "cancelled",
    "skipped",
    "expired",
]
Priority: TypeAlias = Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)]
When: TypeAlias = Literal["succeeded", "finished", "failed"]


class Requirements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Resources and capabilities that a job needs."""

    cpu: Amount = 1.0
    memory: ByteSize = msgspec.field(default_factory=no_bytes)
    storage: ByteSize = msgspec.field(default_factory=no_bytes)
    gpu: Amount = 0.0
    custom: Annotated[dict[Name, Amount], Meta(max_length=CUSTOM_RESOURCES_MAX)] = {}
    capabilities: Annotated[list[Capability], Meta(max_length=CAPABILITIES_MAX)] = []


class DependencySpec(msgspec.Struct, forbid_unknown_fields=True):
    """A dependency on another job; `ref:NAME` names one of the same batch."""

    job_id: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX + 4)]
    when: When = "succeeded"


_SECOND = Duration(1000)
_FIVE_MINUTES = Duration(300_000)
"""Default values: shared, so that comparing two of them is a check of identity."""


class RetrySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Retry policy: how many attempts, and the backoff between them.

    `max_delay` defaults to five minutes, or to `delay` if that is longer. After an attempt that ran
    out of memory the next one requests `memory_factor` times as much, up to `memory_max` and up to
    the memory of the largest worker that could run it.
    """

    max_attempts: Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)] = 1
    backoff: Literal["exponential", "linear", "fixed"] = "exponential"
    delay: Duration = msgspec.field(default_factory=lambda: _SECOND)
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    max_delay: Duration | UnsetType = UNSET
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    memory_factor: Annotated[float, Meta(ge=1, le=MEMORY_FACTOR_MAX)] = 1.0
    memory_max: ByteSize | None = None

    @property
    def longest_delay(self) -> Duration:
        """The upper bound of all delays: `max_delay`, or its default where it is left out."""
        if self.max_delay is not UNSET:
            return self.max_delay
        return self.delay if self.delay.ms > _FIVE_MINUTES.ms else _FIVE_MINUTES


class ConcurrencySpec(msgspec.Struct, forbid_unknown_fields=True):
    """Concurrency key: at most `limit` jobs of this key run at once."""

    key: Annotated[str, Meta(min_length=1, max_length=KEY_CHARS_MAX, pattern=PLAIN)]
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


PLAIN_REQUIREMENTS = Requirements()
PLAIN_RETRY = RetrySpec()
EMPTY_PAYLOAD = msgspec.Raw(b"{}")
"""Default payload: one object for all jobs, so that it can be recognised by identity."""


class JobSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A job to submit. `name` is required, and `task` unless the job runs a function.

    Without a task the job runs the function that an app registered as `name`, on a worker that has
    it (the capability `fn:NAME`); until such a worker comes, the job waits. `payload` then holds
    the arguments: `{"args": […], "kwargs": {…}}`, or a list of the positional ones, or an object
    with the named ones. An object counts as the first form if it has no other names than those two.
    """

    name: Name
    task: Task | None = None
    queue: QueueName = "default"
    tenant: QueueName = "default"
    priority: Priority = 0
    requirements: Requirements = msgspec.field(default_factory=lambda: PLAIN_REQUIREMENTS)
    dependencies: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX + 4)] | DependencySpec],
        Meta(max_length=DEPENDENCIES_MAX),
    ] = []
    run_at: Moment | None = None
    expires_at: Moment | None = None
    timeout: SomeTime | None = None
    expected_runtime: Duration | None = None
    retry: RetrySpec = msgspec.field(default_factory=lambda: PLAIN_RETRY)
    semantics: Literal["at_least_once", "at_most_once"] = "at_least_once"
    concurrency: ConcurrencySpec | None = None
    preemptible: bool = False
    labels: Annotated[
        dict[Name, Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=PLAIN)]],
        Meta(max_length=LABELS_MAX),
    ] = {}
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: EMPTY_PAYLOAD)
    finish_by: Deadline | None = None
    affinity: AffinitySpec | None = None
    count: Count | None = None
    max_parallel: MaxParallel | None = None
    gang: GangSpec | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None and self.timeout.ms == 0:
            raise ValueError("timeout must be more than 0; leave it out for none")
        if self.max_parallel is not None and self.count is None:
            raise ValueError("max_parallel is for an array: give its count too")
        if self.gang is not None and self.count is not None:
            raise ValueError("gang does not go with count: a job is a gang or an array")


class BatchJobSpec(JobSpec, kw_only=True, forbid_unknown_fields=True):
    """A job of a batch; others can refer to it by its `ref`."""

    ref: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=PLAIN)] | None = None


_NO_ARRAY = {"properties": {"count": {"type": "null"}}}
_NOT_AT_ONCE = {"properties": {"max_parallel": {"type": "null"}}}
_NO_GANG = {"properties": {"gang": {"type": "null"}}}
_AN_ARRAY = {"properties": {"count": {"type": "integer"}}, "required": ["count"]}
_GROUP_RULES = {"allOf": [{"anyOf": [_NOT_AT_ONCE, _AN_ARRAY]}, {"anyOf": [_NO_ARRAY, _NO_GANG]}]}
GROUP_RULES = {"JobSpec": _GROUP_RULES, "BatchJobSpec": _GROUP_RULES}
"""The checks of `JobSpec.__post_init__` for the OpenAPI document, by type; null counts as not
given.
"""


class BatchSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that are submitted together: all or none."""

    jobs: Annotated[list[BatchJobSpec], Meta(min_length=1, max_length=BATCH_JOBS_MAX)]


class BatchAnswer(msgspec.Struct):
    """Ids of the submitted jobs, in the order given."""

    job_ids: list[str]


class RequirementsView(msgspec.Struct):
    """Requirements of a job, as plain numbers."""

    cpu: float | int
    memory: int
    storage: int
    gpu: float | int
    custom: dict[str, float | int]
    capabilities: list[str]


class DependencyView(msgspec.Struct):
    """A dependency of a job."""

    job_id: str
    when: When


class RetryView(msgspec.Struct):
    """Retry policy in force; durations in seconds."""

    max_attempts: int
    backoff: str
    delay: float | int
    factor: float
    max_delay: float | int
    jitter: float
    memory_factor: float = 1.0
    memory_max: int | None = None


class ConcurrencyView(msgspec.Struct):
    """Concurrency key in force."""

    key: str
    limit: int


class DeadlineView(msgspec.Struct):
    """A job's deadline, and whether the job meets it."""

    finish_by: Time
    verdict: Literal["on_time", "at_risk", "late", "met", "missed"]
    """`on_time`, `at_risk` or `late` until the job has ended, then `met` or `missed`."""
    slack: float | int
    """Seconds left between the expected finish and the deadline; negative: seconds late."""
    expected_finish: Time | None = None
    """When it will probably end, if that is known."""


class JobView(msgspec.Struct):
    """A job: what was submitted, and its current state."""

    job_id: str
    name: str
    queue: str
    tenant: str
    priority: int
    status: Status
    reason: str | None
    task: msgspec.Raw
    payload: msgspec.Raw
    requirements: RequirementsView
    dependencies: list[DependencyView]
    run_at: Time | None
    expires_at: Time | None
    timeout: float | int | None
    expected_runtime: float | int | None
    retry: RetryView
    semantics: Literal["at_least_once", "at_most_once"]
    concurrency: ConcurrencyView | None
    preemptible: bool
    labels: dict[str, str]
    attempt: int
    fence: int
    losses: int
    execution_id: str | None
    worker_id: str | None
    created_at: Time
    scheduled_at: Time
    started_at: Time | None
    finished_at: Time | None
    progress: float | None
    message: str | None
    result: Any
    error: Any
    schedule_id: str | None = None
    trigger_id: str | None = None
    affinity: AffinityView | None = None
    array: ArrayView | None = None
    gang: GangView | None = None
    array_id: str | None = None
    array_index: int | None = None
    gang_id: str | None = None
    gang_index: int | None = None
    finish_by: Time | None = None
    deadline: DeadlineView | None = None


class JobPage(msgspec.Struct):
    """A page of jobs, newest first."""

    items: list[JobView]
    next_cursor: str | None


class GraphNode(msgspec.Struct):
    """A job in the dependency graph."""

    job_id: str
    name: str
    status: Status


class GraphEdge(msgspec.Struct):
    """A dependency: `to` waits for `from`."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    when: When


class GraphView(msgspec.Struct):
    """Connected dependency graph of a job."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    truncated: bool = False


_STATUS = rf"\s*({'|'.join(get_args(Status))})?\s*"
StatusWords: TypeAlias = Annotated[
    str,
    Meta(
        description="One or more of them, by commas.",
        examples=["pending,queued"],
        extra_json_schema={"pattern": f"^{_STATUS}(,{_STATUS})*$"},
    ),
]
LabelText: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": r"^[^:\x00]+:[^\x00]*$"})]
"""`key:value`."""


class JobFilter(msgspec.Struct, forbid_unknown_fields=True):
    """Selects the jobs of a bulk action: those that match all given fields."""

    job_ids: Annotated[list[JobIdText], Meta(min_length=1, max_length=BATCH_JOBS_MAX)] | None = None
    status: list[Status] | StatusWords | None = None
    """Any of these."""
    priority: Priority | None = None
    queue: str | None = None
    tenant: str | None = None
    name: str | None = None
    labels: dict[str, str] | None = None
    label: list[LabelText] | LabelText | None = None
    """Same as `labels`, in the form in which `GET /jobs` takes them."""
    created_after: Moment | None = None
    created_before: Moment | None = None
    fingerprint: Annotated[str, Meta(max_length=64)] | None = None
    """Fingerprint of their error, from `GET /dead-letters/groups`."""


class BulkSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An action on all jobs that match a filter."""

    action: Literal["cancel", "retry", "delete", "reprioritise"]
    filter: JobFilter
    priority: Priority | None = None
    """For `reprioritise`."""
    dry_run: bool = False
    """Counts the jobs that would change, and changes none."""
    limit: Annotated[int, Meta(ge=1, le=BATCH_JOBS_MAX)] | None = None
    """Changes this many jobs at most, refused ones not counted. Repeat the call while the answer
    has `more`.
    """


class BulkAnswer(msgspec.Struct):
    """How many jobs were changed, and how many matched but were refused."""

    count: int
    refused: int = 0
    dry_run: bool = False
    more: bool = False
    """The limit was reached before the end; in a dry run: there may be more than were counted."""
    reasons: dict[str, int] = {}
    """Reasons for the refusals as text, with the number of jobs for each."""


class ExecuteSpec(msgspec.Struct, forbid_unknown_fields=True):
    """The worker to run this job on."""

    worker_id: str
