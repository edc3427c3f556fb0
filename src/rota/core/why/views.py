"""Draws the small pictures of glance.py from the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.core.memory.cells import QueueEntry, WorkerEntry
from rota.core.model import Instant, JobId, JobState, WorkerId
from rota.core.order.fair import FairOrder
from rota.core.order.sharing import dominant_share
from rota.core.order.tenants import TenantEntry
from rota.core.records.glance import (
    QueueInfo,
    ReservationInfo,
    ScheduleInfo,
    TenantInfo,
    WorkerInfo,
)
from rota.core.records.policy import BackfillKind
from rota.core.resources import minus
from rota.core.tables import SchedulerState
from rota.core.times.agenda import ScheduleEntry


def worker_info(t: SchedulerState, cell: WorkerEntry, now: Instant) -> WorkerInfo:
    """A worker as it is now."""
    return WorkerInfo(
        cell.worker,
        cell.last_seen,
        minus(cell.worker.capacity, cell.free),
        tuple(cell.held),
        now - cell.last_seen <= 2 * t.timing.heartbeat_ms,
    )


def reservation_infos(t: SchedulerState, now: Instant) -> Iterator[ReservationInfo]:
    """What is reserved, or planned where the policy plans all that waits."""
    places: Iterable[tuple[JobId, tuple[WorkerId, Instant]]] = ()
    if t.policy.backfill is BackfillKind.EASY:
        places = ((one.job_id, (one.worker_id, one.at)) for one in t.reservations.values())
    elif t.policy.backfill is BackfillKind.CONSERVATIVE:
        places = t.conservative_plan.items()
    for job_id, (worker_id, at) in places:
        cell = t.jobs.get(job_id)
        # A place outlives its job's wait until the next pass looks at it.
        if cell is None or cell.life.state is not JobState.QUEUED:
            continue
        terms, start = cell.spec.terms, max(now, at)
        end = start + t.runtime_estimates.estimate(terms)
        yield ReservationInfo(job_id, terms.name, terms.tenant, worker_id, start, end)


def tenant_info(t: SchedulerState, cell: TenantEntry, now: Instant) -> TenantInfo:
    """A tenant as it is now."""
    holds, order = cell.holds(), t.ready_queue.order
    used = order.usage(cell.tenant.name, now) if isinstance(order, FairOrder) else 0.0
    return TenantInfo(
        cell.tenant,
        cell.depth.by_state(),
        holds,
        dominant_share(holds, t.fleet.capacity),
        entitlement(t, cell),
        used,
    )


def entitlement(t: SchedulerState, cell: TenantEntry) -> float:
    """The part of the fleet that is the tenant's while those are active who are now."""
    others = (one for one in t.tenants.entries.values() if one is not cell)
    active = sum(one.tenant.weight for one in others if one.depth.by_state())
    return cell.tenant.weight / (cell.tenant.weight + active)


def queue_info(t: SchedulerState, cell: QueueEntry) -> QueueInfo:
    """A queue as it is now."""
    depth = t.depths.of(cell.queue.name).by_state()
    return QueueInfo(cell.queue, depth, t.ready_queue.spilled_of(cell))


def schedule_info(t: SchedulerState, cell: ScheduleEntry) -> ScheduleInfo:
    """A schedule as it is now."""
    zone = cell.schedule.definition.timetable.timezone
    return ScheduleInfo(
        cell.schedule,
        cell.next_at,
        cell.due_at,
        tuple(t.schedule_index.live_jobs_of(cell.schedule.id)),
        "" if cell.recurrence is not None else f"this server's zone data has no {zone}",
    )
