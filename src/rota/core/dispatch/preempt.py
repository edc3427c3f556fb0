"""Preemption: stops the fewest, youngest preemptible executions for a much more urgent job.

Only for a job whose priority is higher by the policy's gap and that has waited for a while. The
preempted jobs keep their place by submission time, and the attempt does not count. The worker is
reserved until the urgent job has started.
"""

from __future__ import annotations

from rota.core.entries import ExecutionEntry, JobEntry, WorkerEntry
from rota.core.groups.gangs import stop_gangs_of
from rota.core.jobs.finish import request_stop
from rota.core.limits import PREEMPT_LOOK
from rota.core.model import ExecutionId, Instant, Resources, Stop, WorkerId
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.resources import fits, plus
from rota.core.state import SchedulerState
from rota.core.timers import TimerKind


def preempt(t: SchedulerState, now: Instant) -> None:
    """Preempts for the first waiting job, if it is due, after everything that could start has
    started."""
    gap = t.policy.preempt_gap
    if gap is None or not t.preemptible:
        return
    job = _first(t)
    if job is None or job.id in t.being_preempted.values() or not _is_due(t, job, now):
        return
    best: tuple[tuple[int, int, int], WorkerEntry, list[ExecutionEntry]] | None = None
    for worker in _workers(t, job, now):
        victims = _victims(t, worker, job, gap)
        if victims is not None:
            lost = sum(now - one.since for one in victims)
            cost = (len(victims), lost, worker.rank)
            if best is None or cost < best[0]:
                best = (cost, worker, victims)
    if best is not None:
        _, worker, victims = best
        t.being_preempted[worker.worker.id] = job.id
        for entry in victims:
            request_stop(t, entry, Stop.PREEMPT, now)
        stop_gangs_of(t, victims, now)


def _first(t: SchedulerState) -> JobEntry | None:
    """The first waiting job that some worker could run.

    A job that no worker there could run may be first for days and must not block preemption; nor
    must a gang, since capacity for one member does not help it.
    """
    passed = t.blocked_classes
    for _ in range(PREEMPT_LOOK):
        class_queue = t.ready_queue.first(~passed)
        head = None if class_queue is None else t.ready_queue.head(class_queue)
        if head is None or is_spill_marker(head):
            return None
        job = t.jobs[head[2]]
        job_class = t.ready_queue.classes[job.class_index]
        if job.spec.terms.needs.copies == 1 and t.fleet.machines_for(job_class).indexes:
            return job
        passed |= job_class.bit
    return None


def _is_due(t: SchedulerState, job: JobEntry, now: Instant) -> bool:
    """Whether it has waited long enough; if not, sets a timer."""
    due = (job.life.ready_at or now) + t.policy.preempt_after_ms
    if due <= now:
        return True
    if t.next_preemption != (job.id, due):
        t.next_preemption = (job.id, due)
        t.timers.set(due, TimerKind.JOB, job.id)
    return False


def _workers(t: SchedulerState, job: JobEntry, now: Instant) -> list[WorkerEntry]:
    """Online workers that could run it and run something preemptible."""
    able = t.fleet.machines_for(t.ready_queue.classes[job.class_index]).indexes
    found: dict[WorkerId, WorkerEntry] = {}
    for execution_id in t.preemptible:
        worker = t.fleet.workers[t.executions[execution_id].execution.worker_id]
        is_free = worker.worker.id not in t.being_preempted and t.fleet.is_online(worker.worker.id)
        if worker.machine.index in able and is_free:
            found[worker.worker.id] = worker
    return list(found.values())


def _victims(
    t: SchedulerState, worker: WorkerEntry, job: JobEntry, gap: int
) -> list[ExecutionEntry] | None:
    """The fewest executions whose end frees enough, youngest first; None: not even all of them."""
    needs, ceiling = job.spec.terms.needs.resources, job.spec.terms.priority - gap
    candidates = [
        t.executions[execution_id]
        for execution_id in worker.held
        if execution_id in t.preemptible and _priority(t, execution_id) <= ceiling
    ]
    candidates.sort(key=lambda entry: (-entry.since, entry.execution.id))
    for entry in candidates:  # a single one is the least possible
        if fits(needs, _free_without(worker, [entry])):
            return [entry]
    chosen: list[ExecutionEntry] = []
    for entry in candidates:
        chosen.append(entry)
        if fits(needs, _free_without(worker, chosen)):
            return _fewest(worker, needs, chosen)
    return None


def _fewest(
    worker: WorkerEntry, needs: Resources, chosen: list[ExecutionEntry]
) -> list[ExecutionEntry]:
    """Drops executions that need not be stopped after all, the oldest first."""
    kept = chosen
    for entry in reversed(chosen):
        rest = [one for one in kept if one is not entry]
        if fits(needs, _free_without(worker, rest)):
            kept = rest
    return kept


def _free_without(worker: WorkerEntry, entries: list[ExecutionEntry]) -> Resources:
    free = worker.free
    for entry in entries:
        free = plus(free, worker.held[entry.execution.id])
    return free


def _priority(t: SchedulerState, execution_id: ExecutionId) -> int:
    entry = t.executions[execution_id]
    return t.jobs[entry.execution.job_id].spec.terms.priority
