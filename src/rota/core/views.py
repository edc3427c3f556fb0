"""Draws the small pictures of glance.py from the tables."""

from __future__ import annotations

from rota.core.agenda import ScheduleCell
from rota.core.cells import QueueCell, WorkerCell
from rota.core.glance import QueueGlance, ScheduleGlance, WorkerGlance
from rota.core.model import Instant
from rota.core.resources import minus
from rota.core.tables import Tables


def glance_worker(t: Tables, cell: WorkerCell, now: Instant) -> WorkerGlance:
    """A worker as it is now."""
    return WorkerGlance(
        cell.worker,
        cell.last_seen,
        minus(cell.worker.capacity, cell.free),
        tuple(cell.held),
        now - cell.last_seen <= 2 * t.timing.heartbeat_ms,
    )


def glance_queue(t: Tables, cell: QueueCell) -> QueueGlance:
    """A queue as it is now."""
    depth = dict(t.depth.get(cell.queue.name, {}))
    return QueueGlance(cell.queue, depth, t.lines.shelved_of(cell))


def glance_schedule(t: Tables, cell: ScheduleCell) -> ScheduleGlance:
    """A schedule as it is now."""
    zone = cell.schedule.plan.timetable.timezone
    return ScheduleGlance(
        cell.schedule,
        cell.next_at,
        cell.due_at,
        tuple(t.agenda.runs_of(cell.schedule.id)),
        "" if cell.ways is not None else f"this server's zone data has no {zone}",
    )
