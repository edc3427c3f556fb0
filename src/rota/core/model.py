"""Model of what the scheduler knows: jobs, executions, workers, queues, tenants. All frozen.

A job is kept in two parts. Its `Spec` is what was asked and changes only by an update; its `Life`
is its current state and is replaced at every transition. What many jobs have in common is in
`Terms`, one object for all of them, because a million waiting jobs must fit in memory.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType, TypeAlias

from rota.core.group_model import Array, Gang, GroupMember, GroupProgress
from rota.core.record import Instant as Instant
from rota.core.record import Millis as Millis
from rota.core.record import Record as Record

LabelSelector: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels of workers, each with the values that will do; sorted."""


class Affinity(Record, frozen=True):
    """Where a job is to run, beyond what it needs."""

    require: LabelSelector = ()
    """A worker without one of these labels never gets it."""
    prefer: LabelSelector = ()
    spread: str = ""
    """The label over whose values jobs of the same name are spread."""
    near_previous: bool = False
    """Whether it is to run where it, or what came before it, ran."""
    wait_ms: Millis = 3_000
    """How long a preferred place is waited for while another would be free."""
    tolerate: tuple[str, ...] = ()
    """What workers may be kept for that take it all the same; sorted."""


def has_preference(affinity: Affinity | None) -> bool:
    """Whether it prefers some of the workers that would do to others."""
    return affinity is not None and bool(
        affinity.prefer or affinity.spread or affinity.near_previous
    )


JobName: TypeAlias = tuple[str, str]
"""(tenant, name): whose jobs, and what they are called."""
SketchCounts: TypeAlias = tuple[tuple[int, int], ...]
"""(step, how often): a sketch of usage.py."""


class UsageDay(Record, frozen=True):
    """What jobs of a name asked for and took on one day: cpu in ms, memory in MiB times ms."""

    day: int
    """Since 1970."""
    runs: int = 0
    cpu_asked: int = 0
    cpu_used: int = 0
    memory_asked: int = 0
    memory_used: int = 0


class UsageStats(Record, frozen=True):
    """What jobs of a name take, as usage.py has it."""

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
    """How long jobs of a name took, newest first, and what else is known of them."""

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
    """Where a job is; docs/job-lifecycle.md draws the ways between them."""

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
    """Where one try of a job is."""

    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    PREEMPTED = "preempted"


class WorkerState(StrEnum):
    """What a worker may be given: online anything, draining nothing new, offline nothing."""

    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"


class When(StrEnum):
    """Which end of the upstream job a dependency waits for."""

    SUCCEEDED = "succeeded"
    FINISHED = "finished"
    FAILED = "failed"


class Backoff(StrEnum):
    """How the delay between tries grows."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


class Semantics(StrEnum):
    """What to do when a worker is lost in the middle of a job."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Stop(StrEnum):
    """Why the brain asked a worker to stop an execution."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    PREEMPT = "preempt"


class Resources(Record, frozen=True):
    """An amount of everything a machine has. Whole numbers only, so sums never drift."""

    cpu_milli: int = 0
    memory: int = 0
    storage: int = 0
    gpu_milli: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    """(name, thousandths), sorted by name."""


class Needs(Record, frozen=True):
    """What a job asks of the worker it runs on."""

    resources: Resources
    capabilities: tuple[str, ...] = ()
    """Sorted."""
    affinity: Affinity | None = None
    copies: int = 1
    """More than one: a gang, which needs all this so many times, all at once."""


class RetryPolicy(Record, frozen=True):
    """How often and how soon to try again."""

    max_attempts: int = 1
    backoff: Backoff = Backoff.EXPONENTIAL
    delay_ms: Millis = 1_000
    factor: float = 2.0
    max_delay_ms: Millis = 300_000
    jitter: float = 0.1
    memory_factor: float = 1.0
    """After a try that ran out of memory, the next asks for so many times as much."""
    memory_max: int | None = None
    """But never for more than this."""


class Concurrency(Record, frozen=True):
    """At most `limit` jobs of the same key run at once, within one tenant."""

    key: str
    limit: int = 1


class Terms(Record, frozen=True):
    """What jobs submitted alike have in common; interned by the scheduler."""

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
    """This job waits for that one."""

    job_id: JobId
    when: When = When.SUCCEEDED


class RunCause(StrEnum):
    """What made a schedule run."""

    TIME = "schedule"
    PERSON = "trigger"
    BACKFILL = "backfill"


class Origin(Record, frozen=True):
    """Which schedule made a job, and for which instant."""

    schedule_id: ScheduleId
    nominal: Instant
    cause: RunCause = RunCause.TIME
    backfill_id: str = ""


class TriggerOrigin(Record, frozen=True):
    """Which trigger made a job, and because of which event."""

    trigger_id: TriggerId
    source: str
    event_id: str
    depth: int = 0
    """How many triggers, one because of the other, led to the job."""


class Spec(Record, frozen=True):
    """What was asked for. `task` and `payload` are JSON text the core carries but never reads."""

    terms: Terms
    task: bytes
    created_at: Instant
    arrival_number: int = 0
    """The place in the line of arrivals; given by the scheduler."""
    payload: bytes = b""
    dependencies: tuple[Dependency, ...] = ()
    run_at: Instant | None = None
    expires_at: Instant | None = None
    concurrency: Concurrency | None = None
    labels: Labels = ()
    revision: int = 0
    """Grows with every update, so two updates at once cannot overwrite each other."""
    origin: Origin | None = None
    """The schedule it comes from; None: somebody submitted it."""
    trigger_origin: TriggerOrigin | None = None
    """The trigger it comes from."""
    finish_by: Instant | None = None
    """When it should have ended. Of a schedule's or trigger's job: how long after it is made."""
    group: Array | Gang | GroupMember | None = None
    """Set where it stands for many jobs, or is one of those (band.py)."""
    graph_ms: Millis | None = None
    """How long the graph that it is a task of will probably take (ranking.py)."""
    trace: str = ""
    """The caller's place in its trace (W3C traceparent); carried, never read here."""


class Life(Record, frozen=True):
    """Where the job is now. Fresh jobs of one batch share one."""

    state: JobState
    reason: str = ""
    """Why it is where it is, in a word."""
    attempt: int = 0
    """Tries that count: a lost worker's does not."""
    fence: int = 0
    """The number of the newest execution; only grows, through retries by hand too."""
    losses: int = 0
    lives: int = 1
    """One more for each retry by a person."""
    due_at: Instant | None = None
    """Not before this: run_at, or the end of a retry's delay."""
    started_at: Instant | None = None
    finished_at: Instant | None = None
    execution_id: ExecutionId | None = None
    worker_id: WorkerId | None = None
    progress: float | None = None
    message: str = ""
    result: bytes | None = None
    error: bytes | None = None
    delete_when_finished: bool = False
    """To be removed as soon as it has ended."""
    ready_at: Instant | None = None
    """When it last began to wait for nothing but a worker."""
    line: int = 0
    """The line of the store in which it waits, if its row is on the shelf (life/shelving.py)."""
    deadline: str = ""
    """What is known of its `finish_by` for good: `at_risk`, `missed` or `met` (slack.py)."""
    group_progress: GroupProgress | None = None
    """Of a band: how far its members are."""


class Execution(Record, frozen=True):
    """One try of a job on one worker."""

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
    """What the job asked for when this try began."""
    behind: ExecutionId | None = None
    """Prefetched: it takes the place of this one, on the same worker, when that has ended."""


class Worker(Record, frozen=True):
    """An agent that runs jobs. Its heartbeats are not in here: they are never written."""

    id: WorkerId
    name: str
    session: str
    """The registration that may speak for this worker; a newer one replaces it."""
    capacity: Resources
    capabilities: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    """None: all queues."""
    state: WorkerState = WorkerState.ONLINE
    registered_at: Instant = 0
    gone_at: Instant | None = None
    labels: Labels = ()
    only: tuple[str, ...] = ()
    """It takes only jobs that ask for one of these, or tolerate it; none: any job. Sorted."""


class RateLimit(Record, frozen=True):
    """At most `count` starts in each `per_ms`, evenly spaced after a burst of `count`."""

    count: int
    per_ms: Millis


class JobLimits(Record, frozen=True):
    """What each job of a queue is held to by its worker; None: what everybody is held to."""

    processes: int | None = None
    open_files: int | None = None
    file_size: int | None = None
    log_size: int | None = None
    result_size: int | None = None


class Queue(Record, frozen=True):
    """A named line of jobs and the limits that hold for it."""

    name: str
    priority: int = 0
    weight: float = 1.0
    max_workers: int | None = None
    rate_limit: RateLimit | None = None
    paused: bool = False
    created_at: Instant = 0
    limits: JobLimits | None = None


class Quota(Record, frozen=True):
    """How much a tenant may have at once; None: as much as there is."""

    running: int | None = None
    queued: int | None = None
    """Jobs that wait; more are refused."""
    cpu_milli: int | None = None
    memory: int | None = None


class Tenant(Record, frozen=True):
    """One of those who share the fleet."""

    name: str
    weight: float = 1.0
    quota: Quota | None = None
    used: float = 0.0
    """What it had used at `used_at`, faded: shares of the fleet times milliseconds."""
    used_at: Instant = 0


class JobRecord(Record, frozen=True):
    """A whole job, as it is stored and as it is answered."""

    id: JobId
    spec: Spec
    life: Life


class KeyRecord(Record, frozen=True):
    """A request that was answered: the same key again gets `receipt` again."""

    key: str
    fingerprint: str
    receipt: bytes
    """The receipt as outcome.py encodes it."""
    at: Instant
