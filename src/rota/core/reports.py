"""What a worker reports to have ended: one by one, or together where alike jobs all went well.

A worker that runs hundreds of short jobs reports hundreds at once. What they would give back and
note one by one is then done once for all of them. It comes to the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from rota.core.cells import ExecutionCell, JobCell, WorkerCell
from rota.core.errors import Refusal
from rota.core.executions import complete, reported, succeeded
from rota.core.gates import is_limited
from rota.core.inputs import Completion
from rota.core.learning import learn
from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobState,
    Resources,
    Terms,
)
from rota.core.outcome import Ended
from rota.core.tables import Tables

FEW = 8
"""Reports in one call from which on it pays to look for those that are alike."""
_GONE_WELL = ExecutionState.SUCCEEDED
_RUNNING, _SUCCEEDED = JobState.RUNNING, JobState.SUCCEEDED


class _Report(NamedTuple):
    """A report of a job that went well, with which nobody but its worker has to do."""

    cell: ExecutionCell
    job: JobCell
    done: Completion


def take_reports(
    t: Tables, worker: WorkerCell, reports: Sequence[Completion], now: Instant
) -> list[ExecutionId]:
    """Answers with those that were refused: they are not the worker's any more."""
    lost: list[ExecutionId] = []
    alike = _Alike(t, worker, now) if len(reports) >= FEW else None
    for done in reports:
        if alike is None or not alike.take(done):
            try:
                complete(t, done, now)
            except Refusal:
                lost.append(done.execution_id)
    if alike is not None:
        alike.end()
    return lost


class _Alike:
    """Reports that came one after the other, of jobs with the same terms."""

    def __init__(self, t: Tables, worker: WorkerCell, now: Instant) -> None:
        self._t = t
        self._worker = worker
        self._now = now
        self._terms: Terms | None = None
        self._reports: dict[ExecutionId, _Report] = {}
        self._inherited: list[Resources] = []
        """What the heirs of those took of what they give back."""

    def take(self, done: Completion) -> bool:
        """Whether the report is one of them; if not, all that came before it have ended."""
        found = self._find(done)
        if found is None or found.job.spec.terms is not self._terms:
            self.end()
            if found is None or not self._may_be_many(found.job.spec.terms):
                return False
            self._terms = found.job.spec.terms
        self._reports[done.execution_id] = found  # once, if it is there twice
        # Its heir may be the next: that one has begun, and has its place.
        heir = self._worker.heirs.pop(done.execution_id, None)
        if heir is not None:
            heir_id, amount = heir
            self._worker.held[heir_id] = amount
            self._inherited.append(amount)
            self._t.executions[heir_id].since = self._now
        return True

    def _find(self, done: Completion) -> _Report | None:
        t, cell = self._t, self._t.executions.get(done.execution_id)
        if cell is None or done.state is not _GONE_WELL:
            return None
        execution = cell.execution
        if (
            execution.fence != done.fence
            or execution.worker_id != self._worker.worker.id
            or execution.stop is not None
            or self._worker.is_heir(execution)
        ):
            return None
        job = t.jobs[execution.job_id]
        spec = job.spec
        if (
            job.life.state is not _RUNNING
            or job.life.doomed
            or spec.band is not None
            or spec.concurrency is not None
            or spec.origin is not None
            or spec.finish_by is not None
            or t.graph.is_awaited(job.id)
        ):
            return None
        return _Report(cell, job, done)

    def _may_be_many(self, terms: Terms) -> bool:
        """Whether nobody waits for what such a job gives back but whoever comes next."""
        t = self._t
        return (
            not terms.preemptible
            and terms.needs.affinity is None
            and not is_limited(t.queues[terms.queue])
            and t.tenants.cells[terms.tenant].tenant.quota is None
            and not t.bus.hears(_SUCCEEDED)
        )

    def end(self) -> None:
        """All of them have ended, and their jobs with them."""
        reports, terms, now = list(self._reports.values()), self._terms, self._now
        if terms is None or not reports:
            return
        self._reports, self._terms = {}, None
        self._give_back(terms, reports)
        ended = [(reported(cell, done, _GONE_WELL, now), done) for cell, _, done in reports]
        recent, executions = self._t.recent, self._t.draft.executions
        for execution, done in ended:
            executions[execution.id] = execution
            recent.end(execution, done.state, now)
        learn(self._t, terms, ended, now)
        jobs = [report.job for report in reports]
        self._finish(terms, jobs, [execution for execution, _ in ended])

    def _give_back(self, terms: Terms, reports: Sequence[_Report]) -> None:
        """What they held comes back: to their worker, their queue, their tenant."""
        t, now = self._t, self._now
        queue, tenant = t.queues[terms.queue], t.tenants.cells[terms.tenant]
        ends: dict[ExecutionId, Instant] = {}
        for cell, _, _ in reports:
            execution_id = cell.execution.id
            ends[execution_id] = cell.ends_at
            del t.executions[execution_id], queue.running[execution_id], tenant.held[execution_id]
        self._worker.let_go_together(ends, self._inherited)
        self._inherited = []
        charged = ((report.cell.rate, report.cell.ends_at) for report in reports)
        for (rate, ends_at), same in groupby(charged):
            payer = (terms.tenant, queue)
            t.lines.order.end(payer, rate, (now, ends_at), sum(1 for _ in same))

    def _finish(
        self, terms: Terms, jobs: Sequence[JobCell], executions: Sequence[Execution]
    ) -> None:
        """The jobs have succeeded and leave memory."""
        t, now, moved = self._t, self._now, self._t.draft.moved
        ends = t.draft.ends
        for job, execution in zip(jobs, executions, strict=True):
            life = succeeded(job.life, execution)
            job.life = replace(life, state=_SUCCEEDED, finished_at=now, due_at=None)
            moved[job.id] = job
            del t.jobs[job.id]
            ends.append(Ended(terms.queue, _SUCCEEDED, now - (life.started_at or 0)))
        t.recent.depart_together([job.id for job in jobs], now, _SUCCEEDED)
        t.depths.count(terms, _RUNNING, -len(jobs))
