"""Passes the place of an ended execution to the prefetched one behind it, or frees it.

A prefetched execution (plan/prefetch.py) begins on its worker the moment the one before it ends,
before anybody here has heard of that. So its place passes on by the same rule on both sides. When
the one before it ends, the prefetched one has its place. When one ends that never began, the one
behind it moves up. None is ever dropped here on anybody's decision but its worker's, or by its
lease: whatever the worker may have begun is accounted for.
"""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.memory.cells import ExecutionEntry, JobEntry
from rota.core.model import Execution, Instant
from rota.core.tables import SchedulerState


def end_execution(
    t: SchedulerState, cell: ExecutionEntry, execution: Execution, now: Instant
) -> JobEntry:
    """The execution has ended, as given; who was behind it moves up. Answers with its job."""
    worker = t.fleet.workers[execution.worker_id]
    was_prefetched = worker.is_prefetched(cell.execution)
    follower = worker.prefetched.pop(execution.id, None)
    if was_prefetched and cell.execution.behind is not None:
        del worker.prefetched[cell.execution.behind]
    job = t.end_execution(cell, execution, now)
    if follower is None:
        return job
    prefetched_id, amount = follower
    behind = t.executions[prefetched_id]
    if was_prefetched and cell.execution.behind is not None:
        worker.prefetched[cell.execution.behind] = follower
        t.put_execution(behind, replace(behind.execution, behind=cell.execution.behind))
    else:
        worker.take_over(prefetched_id, amount)
        t.fleet.offer(worker)
        behind.since = now
    return job


def began_at(cell: ExecutionEntry) -> Instant:
    """When its worker began it, as far as is known here."""
    execution = cell.execution
    if execution.started_at is not None:
        return execution.started_at
    return execution.claimed_at if execution.behind is None else cell.since
