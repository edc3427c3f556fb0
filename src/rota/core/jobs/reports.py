"""Takes a worker's reports of ended executions: one by one, or alike jobs that succeeded together.

A worker with hundreds of short jobs reports hundreds at once. Their bookkeeping is then done once
for all of them. The result is that of taking them one by one (docs/performance.md, "Alike jobs
start and end together").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rota.core.commands import Completion
from rota.core.entries import JobEntry, WorkerEntry
from rota.core.errors import Refusal
from rota.core.jobs.finish import complete_execution, ended_as_reported, learn_runtimes
from rota.core.jobs.plain import Report, end_alone, ended_well, plain_report
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
from rota.core.state import SchedulerState

FEW = 8
"""From this many reports in a call on it pays to look for alike ones."""
_GONE_WELL = ExecutionState.SUCCEEDED
_RUNNING, _SUCCEEDED = JobState.RUNNING, JobState.SUCCEEDED


def take_reports(
    t: SchedulerState, worker: WorkerEntry, reports: Sequence[Completion], now: Instant
) -> list[ExecutionId]:
    """Takes the reports; returns the executions that are not the worker's any more."""
    lost: list[ExecutionId] = []
    alike = _Alike(t, worker, now) if len(reports) >= FEW else None
    has_listener = t.trigger_index.wants_end(_SUCCEEDED)
    for completion in reports:
        plain = None if has_listener else plain_report(t, worker, completion)
        if plain is not None and alike is not None:
            alike.take(plain)
        elif plain is not None and completion.execution_id not in worker.prefetched:
            end_alone(t, worker, plain, now)
        else:
            if alike is not None:
                alike.end()
            try:
                complete_execution(t, completion, now)
            except Refusal:
                lost.append(completion.execution_id)
    if alike is not None:
        alike.end()
    return lost


class _Alike:
    """Consecutive reports of plain jobs with the same terms."""

    def __init__(self, t: SchedulerState, worker: WorkerEntry, now: Instant) -> None:
        self._t = t
        self._worker = worker
        self._now = now
        self._terms: Terms | None = None
        self._reports: dict[ExecutionId, Report] = {}
        self._taken_over: list[Resources] = []
        """What executions prefetched behind them take over of the released resources."""

    def take(self, report: Report) -> None:
        """Adds the report; the collected ones end first if their terms differ."""
        entry, job, _, _ = report
        execution_id = entry.execution.id
        if job.spec.terms is not self._terms:
            self.end()
            self._terms = job.spec.terms
        self._reports[execution_id] = report  # a repeated report counts once
        # The next report may be of the execution prefetched behind it, which now takes its place.
        follower = self._worker.prefetched.pop(execution_id, None)
        if follower is not None:
            prefetched_id, amount = follower
            self._worker.held[prefetched_id] = amount
            self._taken_over.append(amount)
            self._t.executions[prefetched_id].since = self._now

    def end(self) -> None:
        """Ends all collected executions and their jobs."""
        reports, terms, now = list(self._reports.values()), self._terms, self._now
        if terms is None or not reports:
            return
        self._reports, self._terms = {}, None
        if len(reports) == 1 and not self._taken_over:
            end_alone(self._t, self._worker, reports[0], now)
            return
        self._give_back(terms, reports)
        ended = [
            (ended_as_reported(entry, completion, _GONE_WELL, now), completion)
            for entry, _, _, completion in reports
        ]
        recent, executions = self._t.recently_finished, self._t.changeset.executions
        for execution, completion in ended:
            executions[execution.id] = execution
            recent.remember_execution(execution, completion.state, now)
        learn_runtimes(self._t, terms, ended, now)
        jobs = [job for _, job, _, _ in reports]
        self._finish(terms, jobs, [execution for execution, _ in ended])

    def _give_back(self, terms: Terms, reports: Sequence[Report]) -> None:
        """Releases what they held: of their worker, their queue, their tenant."""
        t, now = self._t, self._now
        queue, tenant = t.queues[terms.queue], t.tenants.entries[terms.tenant]
        ends: dict[ExecutionId, Instant] = {}
        for entry, _, _, _ in reports:
            execution_id = entry.execution.id
            ends[execution_id] = entry.ends_at
            del t.executions[execution_id], tenant.held[execution_id]
        queue.running -= len(reports)
        self._worker.release_together(ends, self._taken_over)
        self._taken_over = []
        order = t.ready_queue.order
        charged = ((entry.rate, entry.ends_at) for entry, _, _, _ in reports)
        for (rate, ends_at), same in groupby(charged):
            if rate:
                account = t.terms.of(terms).account(order)
                order.settle_charge(account, rate, (now, ends_at), sum(1 for _ in same))

    def _finish(
        self, terms: Terms, jobs: Sequence[JobEntry], executions: Sequence[Execution]
    ) -> None:
        t, now, moved = self._t, self._now, self._t.changeset.moved
        ends = t.changeset.ends
        for job, execution in zip(jobs, executions, strict=True):
            life = job.life = ended_well(job.life, execution, now)
            moved[job.id] = job
            del t.jobs[job.id]
            ends.append(Ended(terms.queue, _SUCCEEDED, now - (life.started_at or 0)))
        t.recently_finished.remember_jobs([job.id for job in jobs], now, _SUCCEEDED)
        t.terms.of(terms).count_ended(len(jobs))
