"""Calls of the API as values: builds requests and ids, and does no I/O.

A `Call` knows the type of its answer, so both clients and the simulator share this module and
differ only in their transport.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

from rota.wire.formats import encode
from rota.wire.jobs import BatchAnswer, BulkAnswer, BulkSpec, GraphView, JobPage, JobSpec, JobView
from rota.wire.queues import CountAnswer, QueuePage, QueueView
from rota.wire.service import ClusterView, Health, StatsView
from rota.wire.why import DryRunBatchView, DryRunView, WhyView
from rota.wire.workers import (
    ArtifactView,
    CompletionSpec,
    ExecutionPage,
    ExecutionView,
    HeartbeatAnswer,
    HeartbeatSpec,
    LeaseAnswer,
    LeaseSpec,
    ProgressSpec,
    RegisterAnswer,
    RegisterSpec,
    WorkerPage,
    WorkerView,
)

Params: TypeAlias = tuple[tuple[str, str], ...]


def path_of(*segments: str) -> str:
    """Builds a path; a segment is escaped, so it cannot add further segments."""
    return "".join("/" + quote(segment, safe="") for segment in segments)


def params_of(**given: object) -> Params:
    """Builds the pairs of a query string, without those that are None."""
    return tuple((name, _text(value)) for name, value in given.items() if value is not None)


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


T = TypeVar("T")

JobLike: TypeAlias = JobSpec | Mapping[str, Any]
"""A job to submit: the typed record, or a mapping with the API's fields."""

FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")
"""Final statuses: a job leaves them only by a retry."""
_DRY = (("dry_run", "true"),)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the type of its answer."""

    method: str
    path: str
    answer: type[T]
    params: Params = ()
    body: bytes | None = None
    media: str = "application/json"
    keyed: bool = False
    """Carries an idempotency key, because a repetition would otherwise act twice."""
    held: bool = False
    """The server may hold it until there is something to answer."""
    anywhere: bool = False
    """Any server can answer it, even while others hang, so none is waited for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch:
    """Filter of a list of jobs; fields that are left out match all."""

    status: Sequence[str] = ()
    priority: int | None = None
    queue: str | None = None
    tenant: str | None = None
    name: str | None = None
    labels: Mapping[str, str] | None = None
    created_after: str | None = None
    created_before: str | None = None
    array: str | None = None
    limit: int | None = None
    cursor: str | None = None

    def params(self) -> Params:
        plain = params_of(
            status=",".join(self.status) or None,
            priority=self.priority,
            queue=self.queue,
            tenant=self.tenant,
            name=self.name,
            created_after=self.created_after,
            created_before=self.created_before,
            array=self.array,
            limit=self.limit,
            cursor=self.cursor,
        )
        return plain + tuple(("label", f"{k}:{v}") for k, v in (self.labels or {}).items())


# Jobs


def submit(job: JobLike) -> Call[JobView]:
    return Call("POST", "/jobs", JobView, body=encode(job), keyed=True, anywhere=True)


def submit_batch(jobs: Sequence[JobLike]) -> Call[BatchAnswer]:
    """Submits jobs together, all or none; they may refer to each other by `ref:`."""
    body = encode({"jobs": jobs})
    return Call("POST", "/jobs/batch", BatchAnswer, body=body, keyed=True, anywhere=True)


def dry_run(job: JobLike) -> Call[DryRunView]:
    """Asks when a job would start; submits nothing."""
    return Call("POST", "/jobs", DryRunView, params=_DRY, body=encode(job))


def dry_run_batch(jobs: Sequence[JobLike]) -> Call[DryRunBatchView]:
    """Asks when jobs would start that are submitted together."""
    body = encode({"jobs": jobs})
    return Call("POST", "/jobs/batch", DryRunBatchView, params=_DRY, body=body)


def get_job(job_id: str) -> Call[JobView]:
    return Call("GET", path_of("jobs", job_id), JobView)


def list_jobs(search: JobSearch) -> Call[JobPage]:
    """Lists jobs, newest first; one page."""
    return Call("GET", "/jobs", JobPage, params=search.params())


def update_job(job_id: str, patch: Mapping[str, Any]) -> Call[JobView]:
    """Changes a job that has not started, by JSON Merge Patch."""
    path = path_of("jobs", job_id)
    media = "application/merge-patch+json"
    return Call("PATCH", path, JobView, body=encode(patch), media=media, keyed=True)


def delete_job(job_id: str, *, force: bool = False) -> Call[None]:
    """Removes a finished job; with `force` a live one too, after cancelling it."""
    params = params_of(force=force or None)
    return Call("DELETE", path_of("jobs", job_id), type(None), params=params, keyed=True)


def cancel_job(job_id: str) -> Call[JobView]:
    """Stops a job, or keeps it from starting."""
    return Call("PUT", path_of("jobs", job_id, "cancel"), JobView, keyed=True)


def retry_job(job_id: str) -> Call[JobView]:
    """Runs a job again that ended without success."""
    return Call("POST", path_of("jobs", job_id, "retry"), JobView, keyed=True)


def bulk(spec: BulkSpec | Mapping[str, Any]) -> Call[BulkAnswer]:
    """Acts on all jobs that match a filter."""
    return Call("POST", "/jobs/bulk", BulkAnswer, body=encode(spec), keyed=True)


def why(job_id: str) -> Call[WhyView]:
    """Asks why a job is not running yet."""
    return Call("GET", path_of("jobs", job_id, "why"), WhyView)


def graph(job_id: str) -> Call[GraphView]:
    """Reads the dependency graph of a job."""
    return Call("GET", path_of("jobs", job_id, "graph"), GraphView)


def job_logs(
    job_id: str,
    *,
    follow: bool = False,
    execution_id: str | None = None,
    offset: int = 0,
    tail: int | None = None,
) -> Call[bytes]:
    """Reads the log of a job's newest execution, or of the named one: from a byte offset, or the
    last lines only; with `follow` a live stream until the execution ends.
    """
    params = params_of(
        follow=follow or None, execution_id=execution_id, offset=offset or None, tail=tail
    )
    return Call("GET", path_of("jobs", job_id, "logs"), bytes, params=params)


def execute(job_id: str, worker_id: str) -> Call[ExecutionView]:
    """Runs this job on that worker now, without regard to its time, the order or a paused queue."""
    body = encode({"worker_id": worker_id})
    return Call("POST", path_of("jobs", job_id, "execute"), ExecutionView, body=body, keyed=True)


def dead_letters(*, limit: int | None = None, cursor: str | None = None) -> Call[JobPage]:
    """Lists dead letters: jobs that used up their attempts."""
    return Call("GET", "/dead-letters", JobPage, params=params_of(limit=limit, cursor=cursor))


# Workers


def register(spec: RegisterSpec) -> Call[RegisterAnswer]:
    """Registers a worker, or resumes it."""
    return Call("POST", "/workers/register", RegisterAnswer, body=encode(spec), keyed=True)


def get_worker(worker_id: str) -> Call[WorkerView]:
    return Call("GET", path_of("workers", worker_id), WorkerView)


def list_workers(
    *,
    status: Sequence[str] = (),
    capabilities: Sequence[str] = (),
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[WorkerPage]:
    """Lists workers that are in one of the statuses and have all the capabilities."""
    params = params_of(
        status=",".join(status) or None,
        capabilities=",".join(capabilities) or None,
        limit=limit,
        cursor=cursor,
    )
    return Call("GET", "/workers", WorkerPage, params=params)


def heartbeat(worker_id: str, spec: HeartbeatSpec) -> Call[HeartbeatAnswer]:
    """Renews a worker's leases. Repeating it is harmless, so it needs no key."""
    return Call(
        "POST", path_of("workers", worker_id, "heartbeat"), HeartbeatAnswer, (), encode(spec)
    )


def lease(worker_id: str, spec: LeaseSpec) -> Call[LeaseAnswer]:
    """Reports, renews leases and waits for orders. A repetition is answered with the orders that
    the worker has.
    """
    path = path_of("workers", worker_id, "lease")
    return Call("POST", path, LeaseAnswer, body=encode(spec), held=True)


def drain_worker(worker_id: str) -> Call[WorkerView]:
    """Gives a worker no new jobs."""
    return Call("POST", path_of("workers", worker_id, "drain"), WorkerView, keyed=True)


def resume_worker(worker_id: str) -> Call[WorkerView]:
    """Gives a drained worker jobs again."""
    return Call("POST", path_of("workers", worker_id, "resume"), WorkerView, keyed=True)


def remove_worker(worker_id: str) -> Call[None]:
    """Removes a worker; its executions are lost."""
    return Call("DELETE", path_of("workers", worker_id), type(None), keyed=True)


# Executions


def get_execution(execution_id: str) -> Call[ExecutionView]:
    return Call("GET", path_of("executions", execution_id), ExecutionView)


def list_executions(
    *,
    job_id: str | None = None,
    worker_id: str | None = None,
    status: Sequence[str] = (),
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[ExecutionPage]:
    """Lists executions, newest first; one page."""
    params = params_of(
        job_id=job_id,
        worker_id=worker_id,
        status=",".join(status) or None,
        limit=limit,
        cursor=cursor,
    )
    return Call("GET", "/executions", ExecutionPage, params=params)


def complete(execution_id: str, spec: CompletionSpec) -> Call[ExecutionView]:
    """Reports the end of an execution. The fence makes a repetition harmless."""
    path = path_of("executions", execution_id, "complete")
    return Call("POST", path, ExecutionView, body=encode(spec))


def progress(execution_id: str, spec: ProgressSpec) -> Call[HeartbeatAnswer]:
    """Reports the progress of an execution; the answer says whether to stop it."""
    path = path_of("executions", execution_id, "progress")
    return Call("POST", path, HeartbeatAnswer, body=encode(spec))


def append_log(
    execution_id: str, data: bytes, *, offset: int, fence: int | None = None
) -> Call[None]:
    """Appends to a log at a byte offset, so that a repetition changes nothing."""
    path = path_of("executions", execution_id, "logs")
    params = params_of(offset=offset, fence=fence)
    return Call("POST", path, type(None), params, data, media="application/octet-stream")


def put_artifact(execution_id: str, name: str, data: bytes) -> Call[ArtifactView]:
    """Uploads an output file."""
    path = path_of("executions", execution_id, "artifacts", name)
    return Call("PUT", path, ArtifactView, (), data, media="application/octet-stream")


# Queues


def list_queues(*, limit: int | None = None, cursor: str | None = None) -> Call[QueuePage]:
    """Lists queues by name; one page."""
    return Call("GET", "/queues", QueuePage, params=params_of(limit=limit, cursor=cursor))


def get_queue(name: str) -> Call[QueueView]:
    return Call("GET", path_of("queues", name), QueueView)


def set_queue(name: str, settings: Mapping[str, Any], *, reset: bool = False) -> Call[QueueView]:
    """Changes a queue; with `reset`, settings that are not given return to their defaults."""
    method = "PUT" if reset else "PATCH"
    return Call(method, path_of("queues", name), QueueView, body=encode(settings), keyed=True)


def pause_queue(name: str) -> Call[QueueView]:
    """Starts no more jobs of a queue."""
    return Call("POST", path_of("queues", name, "pause"), QueueView, keyed=True)


def resume_queue(name: str) -> Call[QueueView]:
    """Starts jobs of a queue again."""
    return Call("POST", path_of("queues", name, "resume"), QueueView, keyed=True)


def purge_queue(name: str) -> Call[CountAnswer]:
    """Cancels all waiting jobs of a queue."""
    return Call("POST", path_of("queues", name, "purge"), CountAnswer, keyed=True)


# The service


def healthz() -> Call[Health]:
    """Asks whether the server is alive."""
    return Call("GET", "/healthz", Health)


def readyz() -> Call[Health]:
    """Asks whether the server accepts and schedules jobs."""
    return Call("GET", "/readyz", Health)


def stats() -> Call[StatsView]:
    return Call("GET", "/stats", StatsView)


def cluster() -> Call[ClusterView]:
    """Asks which server leads."""
    return Call("GET", "/cluster", ClusterView)


def metrics() -> Call[bytes]:
    """Reads the metrics as Prometheus text."""
    return Call("GET", "/metrics", bytes)


def stream() -> Call[bytes]:
    """Opens the server-sent events of every state change."""
    return Call("GET", "/stream", bytes)


# Ids


def uuid7(now_ms: int, entropy: bytes) -> str:
    """Makes a UUIDv7 of a time and ten random bytes; idempotency keys have this form too."""
    tail = int.from_bytes(entropy[:10], "big")
    bits = (now_ms & (2**48 - 1)) << 80 | 0x7 << 76 | ((tail >> 62) & 0xFFF) << 64
    text = f"{bits | 0b10 << 62 | (tail & (2**62 - 1)):032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def uuid7_time(uuid: str, *, later_ms: int = 0) -> str:
    """The time in a UUIDv7, plus `later_ms`, as the API writes times."""
    ms = int(uuid.replace("-", "")[:12], 16) + later_ms
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=max(ms, 0))).isoformat()
