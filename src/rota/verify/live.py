"""Live check of a real installation through its API: submits jobs, judges their history, and
deletes them.

The number of jobs is limited and all have a label, so that it can run beside real work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from rota.sdk.calls import JobSearch
from rota.sdk.client import Client
from rota.sdk.errors import ApiError, ConflictError, NotFoundError, RotaError, UnreachableError
from rota.verify.checkers import judge
from rota.verify.history import History, ObservedExecution, ObservedJob
from rota.wire.jobs import JobView

LABEL = "rota-verify"
WAIT_S = 60.0
"""Time for jobs that do nothing."""
PLAIN = 20
CHAIN = 3
NOOP = {"kind": "noop"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of the check of one promise."""

    promise: str
    kept: bool
    detail: str = ""


@dataclass(slots=True)
class LiveCheck:
    """Check of one installation."""

    client: Client
    tag: str
    """Value of the label of all its jobs; different for every check."""
    history: History = field(default_factory=History)
    ids: dict[str, str] = field(default_factory=dict)

    def run(self, disturbed: Callable[[LiveCheck], None] | None = None) -> Iterator[CheckResult]:
        """Checks each promise; `disturbed` submits jobs while the operator disturbs the cell."""
        try:
            yield from self._repeats()
            yield from self._chain()
            yield from self._cancelled()
            if disturbed is not None:
                disturbed(self)
            yield from self._everything_ends()
            yield from self._judged()
        finally:
            left = self._clean_up()
            self.ids.clear()
        yield CheckResult(
            "cleaned up", kept=not left, detail=f"{left} jobs could not be deleted" if left else ""
        )

    # Requests

    def submit(self, key: str, **more: Any) -> str:
        """Submits a job that does nothing."""
        job = {"name": LABEL, "task": NOOP, "labels": {LABEL: self.tag, "key": key}, **more}
        self.history.sent.append(key)
        job_id = self.client.submit(job, idempotency_key=f"{self.tag}-{key}").job_id
        self.history.answered.append((key, job_id))
        self.ids[key] = job_id
        return job_id

    def _repeats(self) -> Iterator[CheckResult]:
        for number in range(PLAIN):
            first, again = (self.submit(f"plain-{number}") for _ in range(2))
            if first != again:
                yield CheckResult(
                    "a repeat is the same job", kept=False, detail=f"{first} became {again}"
                )
                return
        yield CheckResult(
            "a repeat is the same job", kept=True, detail=f"{PLAIN} jobs, each submitted twice"
        )
        try:
            self.submit("plain-0", priority=9)
        except ConflictError:
            yield CheckResult("a key is not for two requests", kept=True)
        else:
            yield CheckResult(
                "a key is not for two requests", kept=False, detail="another body was accepted"
            )

    def _chain(self) -> Iterator[CheckResult]:
        before: list[str] = []
        for number in range(CHAIN):
            before = [self.submit(f"chain-{number}", dependencies=before)]
        yield CheckResult("a chain is accepted", kept=True, detail=f"{CHAIN} jobs")

    def _cancelled(self) -> Iterator[CheckResult]:
        job_id = self.submit("later", run_at=self._in_an_hour())
        status = self.client.cancel(job_id).status
        yield CheckResult(
            "a waiting job is cancelled at once",
            kept=status == "cancelled",
            detail=f"it is {status}",
        )

    def _in_an_hour(self) -> str:
        now = datetime.fromtimestamp(self.client.state.clock.now_ms() / 1000, UTC)
        return (now + timedelta(hours=1)).isoformat()

    # Results

    def _everything_ends(self) -> Iterator[CheckResult]:
        try:
            ends = self.client.wait_all(self.ids.values(), timeout_s=WAIT_S)
        except (TimeoutError, UnreachableError) as error:
            yield CheckResult(
                "everything ends", kept=False, detail=f"{error}; is a worker there? `rota workers`"
            )
            return
        yield CheckResult("everything ends", kept=True, detail=f"{len(ends)} jobs")

    def _judged(self) -> Iterator[CheckResult]:
        jobs = [self.client.job(job_id) for job_id in self.ids.values()]
        keys = {job.job_id: job.labels["key"] for job in jobs}
        self.history.jobs = [self._observed(job, keys) for job in jobs]
        listed = list(self.client.jobs(JobSearch(labels={LABEL: self.tag})))
        missing = [job.job_id for job in jobs if all(one.job_id != job.job_id for one in listed)]
        yield CheckResult(
            "lists show what was accepted", kept=not missing, detail=", ".join(missing[:3])
        )
        yield from self._in_order({job.labels["key"]: job for job in jobs})
        broken = judge(self.history)
        for one in broken:
            yield CheckResult(one.promise, kept=False, detail=one.violation.message)
        if not broken:
            yield CheckResult(
                "nothing lost, doubled or made up", kept=True, detail=f"{len(jobs)} jobs"
            )

    def _in_order(self, jobs: dict[str, JobView]) -> Iterator[CheckResult]:
        chain = [jobs[f"chain-{number}"] for number in range(CHAIN)]
        wrong = [
            f"{after.job_id} started at {after.started_at}, {before.job_id} ended at"
            f" {before.finished_at}"
            for before, after in pairwise(chain)
            if not (before.finished_at and after.started_at)
            or after.started_at < before.finished_at
        ]
        yield CheckResult(
            "dependents start after what they wait for", kept=not wrong, detail="; ".join(wrong)
        )

    def _observed(self, job: JobView, keys: dict[str, str]) -> ObservedJob:
        page = self.client.executions(job_id=job.job_id, limit=100)
        executions = [ObservedExecution(one.fence, one.status) for one in reversed(page.items)]
        return ObservedJob(
            job.job_id,
            job.labels["key"],
            job.status,
            job.fence,
            after=[keys[one.job_id] for one in job.dependencies if one.job_id in keys],
            executions=executions,
            has_witness=False,
            duplicate=job.reason == "duplicate",
        )

    def _clean_up(self) -> int:
        """Deletes all jobs of this check, also unacknowledged ones; returns how many are left."""
        left = 0
        try:
            for job in list(self.client.jobs(JobSearch(labels={LABEL: self.tag}))):
                try:
                    self.client.delete(job.job_id, force=True)
                except NotFoundError:
                    continue
                except (ApiError, UnreachableError):
                    left += 1
        except RotaError:
            return max(1, len(self.ids))
        return left
