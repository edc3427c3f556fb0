"""What a small server of the tests knows, and what it answers: jobs in a dict, no scheduling.

Requests are read with the wire's own records, so a client that writes something else is caught.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rota.api.openapi.document import example
from rota.sdk.calls import FINAL, uuid7
from rota.wire.capacity import AutoscaleView, WasteView
from rota.wire.formats import dec_hook, encode, from_instant, to_instant
from rota.wire.jobs import (
    BatchAnswer,
    BatchSpec,
    BulkAnswer,
    BulkSpec,
    ConcurrencyView,
    DependencySpec,
    DependencyView,
    GraphEdge,
    GraphNode,
    GraphView,
    JobPage,
    JobSpec,
    JobView,
    RequirementsView,
    RetryView,
)
from rota.wire.policy import PolicyView
from rota.wire.problems import FieldError, Problem
from rota.wire.quarantine import (
    QuarantinedJobView,
    QuarantinePage,
    RepairFailure,
    RepairSpec,
    RepairView,
)
from rota.wire.queues import CountAnswer, DepthView, QueuePage, QueueSpec, QueueView, TenantPage
from rota.wire.service import ChangeView, ClusterView, Health, LagView, NodeView, StatsView
from rota.wire.why import CauseView, EstimateView, WhyView
from rota.wire.workers import (
    AmountView,
    ExecutionPage,
    ExecutionView,
    WorkerPage,
    WorkerResources,
    WorkerView,
)

START_MS = 1_760_000_000_000


@dataclass
class Seen:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def as_(self, kind: Any) -> Any:
        """The body, read strictly."""
        return msgspec.json.decode(self.body, type=kind, dec_hook=dec_hook)

    def one(self, name: str) -> str | None:
        """A query parameter."""
        return self.query.get(name, [None])[0]


class RefusedError(Exception):
    """A problem to answer with."""

    def __init__(self, status: int, detail: str, errors: list[FieldError] | None = None) -> None:
        self.problem = Problem("about:blank", "No", status, detail, errors or [])


def answer_404(path: str) -> RefusedError:
    """There is no such thing."""
    return RefusedError(404, f"there is no {path}")


@dataclass
class SmallCell:
    """Everything there is; tests put it there and look at it."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    executions: dict[str, ExecutionView] = field(default_factory=dict)
    workers: dict[str, WorkerView] = field(default_factory=dict)
    queues: dict[str, QueueView] = field(default_factory=dict)
    policy: PolicyView = field(
        default_factory=lambda: PolicyView(
            "fifo", "easy", "order", 0.0, 86_400, 36, 86_400, None, 10, None, None
        )
    )
    logs: dict[str, bytes] = field(default_factory=dict)
    changes: list[ChangeView] = field(default_factory=list)
    batch_refusal: RefusedError | None = None
    page_max: int = 1000
    look_max: int = 1000
    """Jobs looked at for one page: those that do not match count too."""
    on_submit: Callable[[str], None] = lambda job_id: None
    """Called with a new job, before its submission is answered."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    company: ClusterView = field(default_factory=lambda: alone())
    quarantine: list[QuarantinedJobView] = field(default_factory=list)

    # What tests do to it

    def add_job(self, name: str = "job", status: str = "queued", **spec: Any) -> JobView:
        """A job that is there already."""
        body = encode({"name": name, "task": {"kind": "noop"}, **spec})
        job = self._make(msgspec.json.decode(body, type=JobSpec, dec_hook=dec_hook))
        self.move(job.job_id, status)
        return self.jobs[job.job_id]

    def move(self, job_id: str, status: str, **changes: Any) -> None:
        """A job changes, and the stream says so."""
        job = self.jobs[job_id]
        at = from_instant(START_MS)
        ended = {"finished_at": at} if status in FINAL else {}
        self.jobs[job_id] = msgspec.structs.replace(job, status=status, **ended, **changes)
        with self.changed:
            self.changes.append(ChangeView("job", job_id, status, at, job.name, job.queue))
            self.changed.notify_all()

    def run(self, job_id: str, log: bytes = b"", *, exit_code: int | None = None) -> str:
        """A job gets an execution, ended if there is an exit code."""
        execution_id = self._mint()
        ended = exit_code is not None
        at = from_instant(START_MS)
        self.executions[execution_id] = ExecutionView(
            execution_id=execution_id, job_id=job_id, worker_id="w1", attempt=1, fence=1,
            status="running" if not ended else "failed" if exit_code else "succeeded", reason=None,
            claimed_at=at, start_time=at, end_time=at if ended else None, result=None, error=None,
            exit_code=exit_code, usage=None, artifacts=[],
        )  # fmt: skip
        self.logs[execution_id] = log
        status = "running" if not ended else "failed" if exit_code else "succeeded"
        self.move(job_id, status, execution_id=execution_id, started_at=at, attempt=1)
        return execution_id

    def add_worker(self, name: str, worker_id: str | None = None) -> WorkerView:
        """A worker that is there already."""
        at, none = from_instant(START_MS), AmountView(0, 0)
        resources = WorkerResources(AmountView(4, 1), AmountView(8 << 30, 1 << 30), none, none, {})
        worker = WorkerView(
            worker_id or self._mint(), name, "online", ["linux"], None, resources, at, at, [], {}
        )
        self.workers[worker.worker_id] = worker
        return worker

    def _mint(self) -> str:
        count = len(self.jobs) + len(self.executions) + len(self.workers) + 1
        tail = (count * 2_654_435_761).to_bytes(10, "big")
        return uuid7(START_MS + len(self.jobs), tail)

    def _job(self, job_id: str) -> JobView:
        if job_id not in self.jobs:
            raise answer_404(f"job {job_id}")
        return self.jobs[job_id]

    def _make(self, spec: JobSpec) -> JobView:
        job_id = self._mint()
        needed = [
            DependencyView(d.job_id, d.when)
            if isinstance(d, DependencySpec)
            else DependencyView(d, "succeeded")
            for d in spec.dependencies
        ]
        needs, retry, limit = spec.requirements, spec.retry, spec.concurrency
        at = from_instant(START_MS + len(self.jobs))
        self.jobs[job_id] = JobView(
            job_id=job_id, name=spec.name, queue=spec.queue, tenant=spec.tenant,
            priority=spec.priority, status="queued", reason="ready",
            task=msgspec.Raw(encode(spec.task)), payload=spec.payload,
            requirements=RequirementsView(
                needs.cpu, needs.memory.bytes, needs.storage.bytes, needs.gpu, needs.custom,
                needs.capabilities,
            ),
            dependencies=needed,
            run_at=from_instant(to_instant(spec.run_at)) if spec.run_at else None,
            expires_at=None, timeout=spec.timeout.seconds if spec.timeout else None,
            expected_runtime=None,
            retry=RetryView(
                retry.max_attempts, retry.backoff, retry.delay.seconds, retry.factor,
                retry.longest_delay.seconds, retry.jitter,
            ),
            semantics=spec.semantics,
            concurrency=ConcurrencyView(limit.key, limit.limit) if limit else None,
            preemptible=spec.preemptible, labels=spec.labels, attempt=0, fence=0, losses=0,
            execution_id=None, worker_id=None, created_at=at, scheduled_at=at, started_at=None,
            finished_at=None, progress=None, message=None, result=None, error=None,
        )  # fmt: skip
        return self.jobs[job_id]

    # Answers

    def submit(self, seen: Seen) -> JobView:
        job_id = self._make(seen.as_(JobSpec)).job_id
        self.on_submit(job_id)
        return self.jobs[job_id]

    def batch(self, seen: Seen) -> BatchAnswer:
        if self.batch_refusal is not None:
            raise self.batch_refusal
        return BatchAnswer([self._make(spec).job_id for spec in seen.as_(BatchSpec).jobs])

    def list(self, seen: Seen) -> JobPage:
        wanted = (seen.one("status") or "").split(",")
        older = sorted(
            (one for one in self.jobs.values() if one.job_id < (seen.one("cursor") or "~")),
            key=lambda job: job.job_id,
            reverse=True,
        )
        found = [
            job
            for job in older[: self.look_max]
            if (wanted == [""] or job.status in wanted) and seen.one("queue") in (None, job.queue)
        ]
        limit = min(int(seen.one("limit") or 50), self.page_max)
        if len(found) > limit:
            return JobPage(found[:limit], found[limit - 1].job_id)
        rest = older[self.look_max - 1].job_id if len(older) > self.look_max else None
        return JobPage(found, rest)

    def get(self, seen: Seen, job_id: str) -> JobView:
        return self._job(job_id)

    def patch(self, seen: Seen, job_id: str) -> JobView:
        changes = seen.as_(dict[str, Any])
        self.jobs[job_id] = msgspec.structs.replace(
            self._job(job_id), priority=changes.get("priority", 0)
        )
        return self.jobs[job_id]

    def delete(self, seen: Seen, job_id: str) -> None:
        if self._job(job_id).status not in FINAL and seen.one("force") != "true":
            raise RefusedError(409, f"job {job_id} is live: cancel it first")
        del self.jobs[job_id]

    def cancel(self, seen: Seen, job_id: str) -> JobView:
        if self._job(job_id).status in FINAL:
            raise RefusedError(409, f"job {job_id} has ended: it cannot be cancelled")
        self.move(job_id, "cancelled")
        return self.jobs[job_id]

    def retry(self, seen: Seen, job_id: str) -> JobView:
        self.move(job_id, "queued")
        return self.jobs[job_id]

    def bulk(self, seen: Seen) -> BulkAnswer:
        spec = seen.as_(BulkSpec)
        if not spec.dry_run:
            for job_id in self.jobs:
                self.move(job_id, "cancelled")
        return BulkAnswer(len(self.jobs), 0, spec.dry_run)

    def why(self, seen: Seen, job_id: str) -> WhyView:
        cause = CauseView("no_room", "asks 64 cpu, the largest worker has 8", {"asks": 64})
        other = CauseView("paused", "queue default is paused", {})
        return WhyView(job_id, "queued", cause, [other], EstimateView(None, "unknown"))

    def graph(self, seen: Seen, job_id: str) -> GraphView:
        nodes = [GraphNode(job.job_id, job.name, job.status) for job in self.jobs.values()]
        edges = [
            GraphEdge(need.job_id, job.job_id, need.when)
            for job in self.jobs.values()
            for need in job.dependencies
        ]
        return GraphView(nodes, edges)

    def execute(self, seen: Seen, job_id: str) -> ExecutionView:
        return self.executions[self.run(job_id)]

    def list_executions(self, seen: Seen) -> ExecutionPage:
        wanted = seen.one("job_id")
        found = [one for one in self.executions.values() if wanted in (None, one.job_id)]
        return ExecutionPage(found[::-1], None)

    def get_execution(self, seen: Seen, execution_id: str) -> ExecutionView:
        return self.executions[execution_id]

    def list_workers(self, seen: Seen) -> WorkerPage:
        return WorkerPage(list_of(self.workers), None)

    def get_worker(self, seen: Seen, worker_id: str) -> WorkerView:
        return self.workers[worker_id]

    def drain(self, seen: Seen, worker_id: str) -> WorkerView:
        worker = msgspec.structs.replace(self.workers[worker_id], status="draining")
        self.workers[worker_id] = worker
        return worker

    def remove(self, seen: Seen, worker_id: str) -> None:
        del self.workers[worker_id]

    def list_tenants(self, seen: Seen) -> TenantPage:
        return TenantPage([], None)

    def list_queues(self, seen: Seen) -> QueuePage:
        return QueuePage(list_of(self.queues), None)

    def _queue(self, name: str) -> QueueView:
        fresh = QueueView(
            name=name,
            priority=0,
            weight=1.0,
            max_workers=None,
            rate_limit=None,
            paused=False,
            depth=DepthView(1, 2, 3, 0),
            created_at=from_instant(START_MS),
        )
        return self.queues.setdefault(name, fresh)

    def get_queue(self, seen: Seen, name: str) -> QueueView:
        return self._queue(name)

    def set_queue(self, seen: Seen, name: str) -> QueueView:
        if seen.method == "PATCH" and name not in self.queues:
            raise answer_404(f"queue {name}")
        spec = seen.as_(QueueSpec)
        changes = {"max_workers": spec.max_workers} if spec.max_workers is not msgspec.UNSET else {}
        self.queues[name] = msgspec.structs.replace(self._queue(name), **changes)
        return self.queues[name]

    def pause(self, seen: Seen, name: str, verb: str) -> QueueView:
        self.queues[name] = msgspec.structs.replace(self._queue(name), paused=verb == "pause")
        return self.queues[name]

    def purge(self, seen: Seen, name: str) -> CountAnswer:
        return CountAnswer(3)

    def health(self, seen: Seen) -> Health:
        return Health("ok")

    def stats(self, seen: Seen) -> StatsView:
        counts: dict[str, int] = {}
        for job in self.jobs.values():
            counts[job.status] = counts.get(job.status, 0) + 1
        resources: dict[str, dict[str, float | int]] = {"cpu": {"used": 1, "capacity": 4}}
        workers = {"online": len(self.workers)}
        return StatsView(
            counts, 1, workers, resources, len(self.jobs), "0.1.0", from_instant(START_MS)
        )

    def cluster(self, seen: Seen) -> ClusterView:
        return self.company

    def show_quarantine(self, seen: Seen) -> QuarantinePage:
        return QuarantinePage(self.quarantine, None)

    def repair(self, seen: Seen) -> RepairView:
        """All that it refuses stays in quarantine."""
        msgspec.json.decode(seen.body, type=RepairSpec)
        failed = [RepairFailure(one.job_id, one.reason) for one in self.quarantine if one.reason]
        repaired = [one.job_id for one in self.quarantine if not one.reason]
        return RepairView(repaired, failed)


def alone() -> ClusterView:
    """One server, which leads."""
    at, lag = from_instant(START_MS), LagView(0, 0)
    node = NodeView("here", "http://here", "leader", "up", "0.1.0", lag, at, at)
    return ClusterView("here", 1, [node], "single")


def list_of(kept: dict[str, Any]) -> Any:
    """The values, as a list."""
    return [*kept.values()]


ROUTES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("POST", "/jobs", SmallCell.submit),
    ("POST", "/jobs/batch", SmallCell.batch),
    ("POST", "/jobs/bulk", SmallCell.bulk),
    ("GET", "/jobs", SmallCell.list),
    ("GET", "/dead-letters", SmallCell.list),
    ("GET", "/jobs/([^/]+)", SmallCell.get),
    ("PATCH", "/jobs/([^/]+)", SmallCell.patch),
    ("DELETE", "/jobs/([^/]+)", SmallCell.delete),
    ("PUT", "/jobs/([^/]+)/cancel", SmallCell.cancel),
    ("POST", "/jobs/([^/]+)/retry", SmallCell.retry),
    ("GET", "/jobs/([^/]+)/why", SmallCell.why),
    ("GET", "/jobs/([^/]+)/graph", SmallCell.graph),
    ("POST", "/jobs/([^/]+)/execute", SmallCell.execute),
    ("GET", "/executions", SmallCell.list_executions),
    ("GET", "/executions/([^/]+)", SmallCell.get_execution),
    ("GET", "/workers", SmallCell.list_workers),
    ("GET", "/workers/([^/]+)", SmallCell.get_worker),
    ("POST", "/workers/([^/]+)/drain", SmallCell.drain),
    ("DELETE", "/workers/([^/]+)", SmallCell.remove),
    ("GET", "/tenants", SmallCell.list_tenants),
    ("GET", "/queues", SmallCell.list_queues),
    ("GET", "/queues/([^/]+)", SmallCell.get_queue),
    ("(PUT|PATCH)", "/queues/([^/]+)", SmallCell.set_queue),
    ("POST", "/queues/([^/]+)/(pause|resume)", SmallCell.pause),
    ("POST", "/queues/([^/]+)/purge", SmallCell.purge),
    ("GET", "/policy", lambda cell, seen: cell.policy),
    ("GET", "/autoscale", lambda cell, seen: msgspec.convert(example("autoscale"), AutoscaleView)),
    ("GET", "/reports/waste", lambda cell, seen: msgspec.convert(example("waste"), WasteView)),
    ("GET", "/healthz", SmallCell.health),
    ("GET", "/readyz", SmallCell.health),
    ("GET", "/stats", SmallCell.stats),
    ("GET", "/cluster", SmallCell.cluster),
    ("GET", "/quarantine", SmallCell.show_quarantine),
    ("POST", "/quarantine/repair", SmallCell.repair),
)
