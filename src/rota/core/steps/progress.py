"""What a running execution says of itself: that it runs, and how far it is."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.errors import NotFound, StaleFence
from rota.core.inputs import Running
from rota.core.lifecycle import ExecutionVerb, move_execution
from rota.core.limits import PROGRESS_EVERY_MS
from rota.core.memory.cells import ExecutionEntry
from rota.core.model import ExecutionId, ExecutionState, Instant
from rota.core.outcome import ExecutionAnswer
from rota.core.tables import SchedulerState
from rota.core.times.timers import TimerKind


def confirm_running(t: SchedulerState, cell: ExecutionEntry, report: Running, now: Instant) -> None:
    """Its worker named it: it runs, if it did not before."""
    before = cell.execution
    worker = t.fleet.workers[before.worker_id]
    # A prefetched one is there, and waits: it runs once the one before it has ended.
    if before.state is ExecutionState.CLAIMED and not worker.is_prefetched(before):
        state = move_execution(before.id, before.state, ExecutionVerb.START)
        t.put_execution(cell, replace(before, state=state, started_at=now))
        worker.named[before.id] = None
    if report.progress is not None or report.message is not None:
        _note_progress(t, cell, report, now)


def report_progress(t: SchedulerState, report: Running, now: Instant) -> ExecutionAnswer:
    """An execution says how far it is. This alone renews no lease."""
    cell = t.executions.get(report.execution_id)
    if cell is None:
        raise NotFound("live execution", report.execution_id)
    if report.fence is not None and report.fence != cell.execution.fence:
        raise StaleFence(f"execution {report.execution_id} has fence {cell.execution.fence}")
    confirm_running(t, cell, report, now)
    return ExecutionAnswer(cell.execution)


def _note_progress(t: SchedulerState, cell: ExecutionEntry, report: Running, now: Instant) -> None:
    """The first change is written at once, the following at most once a second."""
    value = cell.progress if report.progress is None else report.progress
    message = cell.message if report.message is None else report.message
    if (value, message) == (cell.progress, cell.message):
        return
    cell.progress, cell.message = value, message
    due = cell.progress_at + PROGRESS_EVERY_MS
    if now >= due:
        _write_progress(t, cell, now)
    elif not cell.progress_due:
        cell.progress_due = True
        t.timers.set(due, TimerKind.PROGRESS, cell.execution.id)


def progress_timer_fired(t: SchedulerState, execution_id: ExecutionId, now: Instant) -> None:
    """Writes the newest progress that was held back."""
    cell = t.executions.get(execution_id)
    if cell is not None and cell.progress_due:
        _write_progress(t, cell, now)


def _write_progress(t: SchedulerState, cell: ExecutionEntry, now: Instant) -> None:
    cell.progress_at, cell.progress_due = now, False
    job = t.jobs[cell.execution.job_id]
    t.set_life(job, replace(job.life, progress=cell.progress, message=cell.message))
