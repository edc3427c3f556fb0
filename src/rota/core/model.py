"""Model of jobs, job groups, executions, workers, queues and tenants: frozen, journaled records.

A job is kept in two parts. Its `Spec` is what was asked and changes only by an update; its `Life`
is its current state and is replaced at every transition. What many jobs have in common is in
`Terms`, one object for all of them, because a million waiting jobs must fit in memory.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType, TypeAlias

import msgspec

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00:00Z."""
Millis: TypeAlias = int
"""A length of time in milliseconds."""


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True, omit_defaults=True):
    """Base class of journaled records: positional, so new fields go last and have defaults.

    Old records then stay readable. `gc=False` is safe because records hold only scalars, strings,
    bytes and tuples of records: nothing that can point back.
    """


# Job groups: the group is a job with a row of its own. Its members become jobs only as they start,
# so that a million of them wait in one row; `GroupProgress` counts them in a few numbers.


class Array(Record, frozen=True, tag="a"):
    """Array: members with the indices 0 to `count` - 1, which run independently."""

    count: int
    max_parallel: int | None = None
    """Limit on the members that run at once; None: as many as there are free workers for."""
    todo: bytes = b""
    """After a manual retry, the indices to run again: bit i of byte i // 8; empty: all."""
    born: int = 0
    """Members with an index below this ran in an earlier life, and have a row."""


class Gang(Record, frozen=True, tag="g"):
    """Gang: members that start together or not at all."""

    size: int


class GroupMember(Record, frozen=True, tag="m"):
    """Member of a job group."""

    parent: str
    index: int
    in_gang: bool = False


JobGroup: TypeAlias = Array | Gang | GroupMember


class GroupContext(msgspec.Struct, frozen=True, gc=False):
    """Group of an execution, as its worker is told: its index, the size, and the gang's hosts."""

    group_id: str
    index: int
    size: int
    in_gang: bool = False
    hosts: tuple[str, ...] = ()
    """Of a gang: the workers' addresses of all members, by index."""


class GroupProgress(Record, frozen=True):
    """Progress of a job group, as counts of its members."""

    drawn: int = 0
    """Members that have become jobs, in this life of the group."""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    """Members that were cancelled, before or after they had become jobs."""
    dropped: int = 0
    """Those of them that never became jobs."""
    hosts: tuple[str, ...] = ()
    """Addresses of the members of a running gang, by index."""
    cause: str = ""
    """Why a running gang has to stop; empty: it has not (groups/gangs.py)."""
    delay_ms: Millis = -1
    """Delay before the gang's retry, where a member has asked for it; -1: by its retry policy."""


def unsuccessful_count(progress: GroupProgress) -> int:
    """Members that ran in this life of the group and did not succeed."""
    return progress.failed + progress.cancelled - progress.dropped


def member_delete_refusal(member: str, group: str, state: str) -> str:
    """Message that a member cannot be deleted on its own."""
    return (
        f"job {member} is a member of {group}, which is {state}: it can be deleted with that, "
        "or once that has ended"
    )


def copies_of(group: JobGroup | None) -> int:
    """Number of jobs that a submission stands for."""
    match group:
        case Array():
            return group.count
        case Gang():
            return group.size
        case _:
            return 1


# Jobs, executions, workers, queues and tenants

LabelSelector: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels of workers, each with its accepted values; sorted."""


class Affinity(Record, frozen=True):
    """Placement rules of a job beyond its needs: labels required, preferred, spread over."""

    require: LabelSelector = ()
    """A worker without one of these labels never gets the job."""
    prefer: LabelSelector = ()
    spread: str = ""
    """The worker label over whose values jobs of the same name are spread."""
    near_previous: bool = False
    """Prefers the worker where the job, or an upstream job, ran last."""
    wait_ms: Millis = 3_000
    """How long the job waits for a preferred worker while another one has free capacity."""
    tolerate: tuple[str, ...] = ()
    """The job accepts workers reserved for these (`Worker.only`); sorted."""


def has_preference(affinity: Affinity | None) -> bool:
    """Whether some of the workers that can run the job are preferred to others."""
    return affinity is not None and bool(
        affinity.prefer or affinity.spread or affinity.near_previous
    )


JobName: TypeAlias = tuple[str, str]
"""(tenant, name of job)."""
SketchCounts: TypeAlias = tuple[tuple[int, int], ...]
"""(step, count): a `Sketch` of runtime_estimates.py."""


class UsageDay(Record, frozen=True):
    """Resources asked for and used in a day by jobs of a name: cpu in ms, memory in MiB * ms."""

    day: int
    """Days since 1970-01-01."""
    runs: int = 0
    cpu_asked: int = 0
    cpu_used: int = 0
    memory_asked: int = 0
    memory_used: int = 0


class UsageStats(Record, frozen=True):
    """Statistics of the resources that jobs of a name use, as runtime_estimates.py keeps them."""

    runs: int = 0
    cpu: SketchCounts = ()
    memory: SketchCounts = ()
    runtime: SketchCounts = ()
    cpu_max: int = 0
    memory_max: int = 0
    runtime_max: Millis = 0
    asked_cpu: int = 0
    asked_memory: int = 0
    days: tuple[UsageDay, ...] = ()


class RuntimeStats(Record, frozen=True):
    """Run times of jobs of a name, newest first, and their resource usage."""

    tenant: str
    name: str
    recent: tuple[Millis, ...] = ()
    usage: UsageStats | None = None


JobId = NewType("JobId", str)
ExecutionId = NewType("ExecutionId", str)
WorkerId = NewType("WorkerId", str)
PollId = NewType("PollId", int)
ScheduleId = NewType("ScheduleId", str)
TriggerId = NewType("TriggerId", str)

Labels: TypeAlias = tuple[tuple[str, str], ...]


class JobState(StrEnum):
    """State of a job, a failed one being a dead letter; docs/job-lifecycle.md draws transitions."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    EXPIRED = "expired"


class ExecutionState(StrEnum):
    """State of one execution of a job."""

    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    PREEMPTED = "preempted"


class WorkerState(StrEnum):
    """State of a worker: online ones get orders, draining ones no new ones, offline ones none."""

    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"


class When(StrEnum):
    """Condition on how the upstream job ended, for a dependency to be met."""

    SUCCEEDED = "succeeded"
    FINISHED = "finished"
    FAILED = "failed"


class Backoff(StrEnum):
    """Growth of the delay between attempts."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


class Semantics(StrEnum):
    """Delivery guarantee: whether a job runs again when its worker is lost while it runs."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Stop(StrEnum):
    """Reason why a worker is told to stop an execution."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    PREEMPT = "preempt"


class Resources(Record, frozen=True):
    """Amounts of everything a machine has. Whole numbers only, so that sums are exact."""

    cpu_milli: int = 0
    memory: int = 0
    storage: int = 0
    gpu_milli: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    """(name, thousandths), sorted by name."""


class Needs(Record, frozen=True):
    """Requirements of a job on the worker that runs it."""

    resources: Resources
    capabilities: tuple[str, ...] = ()
    """Sorted."""
    affinity: Affinity | None = None
    copies: int = 1
    """More than one: a gang, which needs this many times the resources at once."""


class RetryPolicy(Record, frozen=True):
    """Retry policy: how many attempts, and the exponential backoff or other delay between them."""

    max_attempts: int = 1
    backoff: Backoff = Backoff.EXPONENTIAL
    delay_ms: Millis = 1_000
    factor: float = 2.0
    max_delay_ms: Millis = 300_000
    jitter: float = 0.1
    memory_factor: float = 1.0
    """After an attempt that ran out of memory, the next one asks for this many times as much."""
    memory_max: int | None = None
    """The most memory that `memory_factor` leads to; None: no limit."""


class Concurrency(Record, frozen=True):
    """Concurrency key: at most `limit` jobs with the same key run at once, within one tenant."""

    key: str
    limit: int = 1


class Terms(Record, frozen=True):
    """Terms that jobs submitted alike have in common; the scheduler interns them."""

    name: str
    queue: str
    tenant: str
    priority: int
    needs: Needs
    retry: RetryPolicy
    semantics: Semantics = Semantics.AT_LEAST_ONCE
    timeout_ms: Millis | None = None
    expected_runtime_ms: Millis | None = None
    preemptible: bool = False


class Dependency(Record, frozen=True):
    """Dependency of a job on the upstream job `job_id`."""

    job_id: JobId
    when: When = When.SUCCEEDED


class RunCause(StrEnum):
    """Cause of a schedule's run: its time, a person, or a backfill."""

    TIME = "schedule"
    PERSON = "trigger"
    BACKFILL = "backfill"


class Origin(Record, frozen=True):
    """Schedule that created a job, and the instant it is for."""

    schedule_id: ScheduleId
    nominal: Instant
    cause: RunCause = RunCause.TIME
    backfill_id: str = ""


class TriggerOrigin(Record, frozen=True):
    """Trigger that created a job, and the event that fired it."""

    trigger_id: TriggerId
    source: str
    event_id: str
    depth: int = 0
    """How many triggers fired in a chain, each because of the one before, until this job."""


class Spec(Record, frozen=True):
    """Specification of a job, as submitted. The core never reads `task` and `payload` (JSON)."""

    terms: Terms
    task: bytes
    created_at: Instant
    arrival_number: int = 0
    """Position in the order of arrival; assigned by the scheduler."""
    payload: bytes = b""
    dependencies: tuple[Dependency, ...] = ()
    run_at: Instant | None = None
    expires_at: Instant | None = None
    concurrency: Concurrency | None = None
    labels: Labels = ()
    revision: int = 0
    """Grows with every update, so that concurrent updates cannot overwrite each other."""
    origin: Origin | None = None
    """The schedule that created the job; None: somebody submitted it."""
    trigger_origin: TriggerOrigin | None = None
    """The trigger that created the job."""
    finish_by: Instant | None = None
    """Deadline. In the template of a schedule or trigger: milliseconds after the job's creation."""
    group: Array | Gang | GroupMember | None = None
    """Set if the job stands for a job group, or is a member of one."""
    graph_ms: Millis | None = None
    """Expected run time of the whole graph of jobs that it was submitted in (jobs/submit.py)."""
    trace: str = ""
    """W3C traceparent of the caller; carried, never read here."""


class Life(Record, frozen=True):
    """Current state of a job, replaced at each transition. New jobs of a batch share one object."""

    state: JobState
    reason: str = ""
    """Why the job is in this state, in one word."""
    attempt: int = 0
    """Attempts that count against `max_attempts`: one that was lost with its worker does not."""
    fence: int = 0
    """The number of the newest execution; it only grows, through manual retries too."""
    losses: int = 0
    lives: int = 1
    """Grows by one with each manual retry."""
    due_at: Instant | None = None
    """The job does not start before this: its `run_at`, or the end of a retry's backoff."""
    started_at: Instant | None = None
    finished_at: Instant | None = None
    execution_id: ExecutionId | None = None
    worker_id: WorkerId | None = None
    progress: float | None = None
    message: str = ""
    result: bytes | None = None
    error: bytes | None = None
    delete_when_finished: bool = False
    """Delete the job as soon as it has ended."""
    ready_at: Instant | None = None
    """When the job last began to wait for nothing but a worker."""
    line: int = 0
    """Number of the spill queue in which the job waits; 0: it is in memory. (Stored name.)"""
    deadline: str = ""
    """Final or last known result for `finish_by`: `at_risk`, `missed` or `met` (deadlines.py)."""
    group_progress: GroupProgress | None = None
    """Of a job group: how many of its members have started and ended."""


class Execution(Record, frozen=True):
    """Execution: one attempt to run a job, on one worker. Each report carries its `fence`."""

    id: ExecutionId
    job_id: JobId
    worker_id: WorkerId
    attempt: int
    fence: int
    state: ExecutionState
    claimed_at: Instant
    started_at: Instant | None = None
    ended_at: Instant | None = None
    stop: Stop | None = None
    stop_at: Instant | None = None
    exit_code: int | None = None
    result: bytes | None = None
    error: bytes | None = None
    usage: bytes | None = None
    reason: str = ""
    memory: int = 0
    """The memory that the job asked for when this execution began."""
    behind: ExecutionId | None = None
    """Prefetched: starts when this other execution on the same worker has ended, in its place."""


class Worker(Record, frozen=True):
    """Worker: an agent that runs jobs. Heartbeats are not journaled, so not in here."""

    id: WorkerId
    name: str
    session: str
    """The registration whose requests are accepted; a newer one replaces it."""
    capacity: Resources
    capabilities: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    """None: all queues."""
    state: WorkerState = WorkerState.ONLINE
    registered_at: Instant = 0
    gone_at: Instant | None = None
    labels: Labels = ()
    only: tuple[str, ...] = ()
    """Reserves the worker for jobs that ask for one of these, or tolerate it; empty: any job.
    Sorted."""


class RateLimit(Record, frozen=True):
    """Rate limit (a token bucket): at most `count` starts per `per_ms`, even after a burst."""

    count: int
    per_ms: Millis


class JobLimits(Record, frozen=True):
    """Limits that a worker applies to each job of a queue; None: the worker's defaults."""

    processes: int | None = None
    open_files: int | None = None
    file_size: int | None = None
    log_size: int | None = None
    result_size: int | None = None


class Queue(Record, frozen=True):
    """Queue: a name, and the settings and limits of the jobs submitted to it."""

    name: str
    priority: int = 0
    weight: float = 1.0
    max_workers: int | None = None
    rate_limit: RateLimit | None = None
    paused: bool = False
    created_at: Instant = 0
    limits: JobLimits | None = None


class Quota(Record, frozen=True):
    """Quota: how much a tenant may have at once; None: no limit."""

    running: int | None = None
    queued: int | None = None
    """Waiting jobs; submitting more is refused."""
    cpu_milli: int | None = None
    memory: int | None = None


class Tenant(Record, frozen=True):
    """Tenant: shares the fleet with others by its weight, within its quota."""

    name: str
    weight: float = 1.0
    quota: Quota | None = None
    used: float = 0.0
    """Usage as of `used_at`, decayed: dominant share of the fleet times milliseconds."""
    used_at: Instant = 0


class JobRecord(Record, frozen=True):
    """Whole job, as it is stored and answered."""

    id: JobId
    spec: Spec
    life: Life


class KeyRecord(Record, frozen=True):
    """Idempotency key of an answered request: a repeat with the same key gets `receipt` again."""

    key: str
    fingerprint: str
    receipt: bytes
    """As `encode_receipt` writes it."""
    at: Instant
