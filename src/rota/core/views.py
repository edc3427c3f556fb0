"""Draws the small pictures of glance.py from the tables."""

from __future__ import annotations

from rota.core.agenda import ScheduleCell
from rota.core.cells import QueueCell, WorkerCell
from rota.core.glance import QueueGlance, ScheduleGlance, TenantGlance, WorkerGlance
from rota.core.model import Instant
from rota.core.order_fair import FairOrder
from rota.core.resources import minus
from rota.core.sharing import dominant_share
from rota.core.tables import Tables
from rota.core.tenants import TenantCell


def glance_worker(t: Tables, cell: WorkerCell, now: Instant) -> WorkerGlance:
    """A worker as it is now."""
    return WorkerGlance(
        cell.worker,
        cell.last_seen,
        minus(cell.worker.capacity, cell.free),
        tuple(cell.held),
        now - cell.last_seen <= 2 * t.timing.heartbeat_ms,
    )


def glance_tenant(t: Tables, cell: TenantCell, now: Instant) -> TenantGlance:
    """A tenant as it is now."""
    holds, order = cell.holds(), t.lines.order
    used = order.usage(cell.tenant.name, now) if isinstance(order, FairOrder) else 0.0
    return TenantGlance(
        cell.tenant,
        {state: count for state, count in cell.depth.items() if count},
        holds,
        dominant_share(holds, t.fleet.capacity),
        entitlement(t, cell),
        used,
    )


def entitlement(t: Tables, cell: TenantCell) -> float:
    """The part of the fleet that is the tenant's while those are active who are now."""
    others = (one for one in t.tenants.cells.values() if one is not cell)
    active = sum(one.tenant.weight for one in others if any(one.depth.values()))
    return cell.tenant.weight / (cell.tenant.weight + active)


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
