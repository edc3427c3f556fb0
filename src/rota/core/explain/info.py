"""Snapshots for readers: workers, queues, tenants, reservations, a job's position in its queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from rota.core.entries import JobEntry, QueueEntry, WorkerEntry
from rota.core.info_model import (
    Position,
    QueueInfo,
    ReservationInfo,
    ScheduleInfo,
    TenantInfo,
    WorkerInfo,
)
from rota.core.limits import POSITION_LOOK
from rota.core.model import Instant, JobId, JobRecord, JobState, Needs, WorkerId, WorkerState
from rota.core.placement.feasibility import infeasible_reasons
from rota.core.policy import BackfillKind
from rota.core.ready_queue.classes import ClassQueue
from rota.core.ready_queue.fair_share import FairOrder, dominant_share
from rota.core.ready_queue.limits_and_quotas import TenantEntry
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.resources import amounts, minus
from rota.core.schedules.schedule_index import ScheduleEntry
from rota.core.state import SchedulerState


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


def position_of(t: SchedulerState, job_id: JobId, record: JobRecord | None) -> Position | None:
    """Where it stands; on the shelf it is known by `record`."""
    cell = t.jobs.get(job_id)
    if cell is not None:
        line = t.ready_queue.queue_of_job(cell)
        return None if line is None else _position_in_class_queue(t, cell, line)
    lane = None if record is None else t.ready_queue.by_spill_queue.get(record.life.line)
    if record is None or lane is None:
        return None
    line = t.ready_queue.queue_of_group(lane)
    # Arrivals are numbered through: those on the shelf are taken to have come evenly.
    part = (record.spec.arrival_number - lane.boundary) / max(
        1, t.next_arrival_number - lane.boundary
    )
    ahead = line.waiting + int(max(0.0, part) * lane.spilled)
    tenants = _tenants_ahead(t, record.spec.terms.tenant)
    return Position(ahead, line.waiting + line.spilled, is_exact=False, tenants_ahead=tenants)


def _position_in_class_queue(t: SchedulerState, cell: JobEntry, line: ClassQueue) -> Position:
    mine, row = cell.order_key(), line.jobs
    tenants = _tenants_ahead(t, cell.spec.terms.tenant)
    waiting = line.waiting + line.spilled
    if row.size > POSITION_LOOK:
        sample = list(islice(row, None, None, row.size // POSITION_LOOK))
        part = sum(1 for entry in sample if entry < mine) / len(sample)
        return Position(int(part * line.waiting), waiting, is_exact=False, tenants_ahead=tenants)
    before = [entry for entry in row if entry < mine and t.ready_queue.is_current(entry, line)]
    ahead = sum(1 for entry in before if not is_spill_marker(entry))
    return Position(ahead, waiting, is_exact=ahead == len(before), tenants_ahead=tenants)


def _tenants_ahead(t: SchedulerState, tenant: str) -> int:
    order = t.ready_queue.order
    return order.ahead_of(tenant) if isinstance(order, FairOrder) else 0


def fluid_start(
    t: SchedulerState, job_id: JobId, record: JobRecord | None, now: Instant
) -> Instant | None:
    """Now, and the time that those before it take on the tenant's part of what could run them."""
    position = position_of(t, job_id, record)
    cell = t.jobs.get(job_id)
    spec = cell.spec if cell is not None else None if record is None else record.spec
    if position is None or spec is None:
        return None
    terms = spec.terms
    side_by_side = _slots(t, terms.queue, terms.needs)
    tenant = t.tenants.entries.get(terms.tenant)
    part = 1.0
    if tenant is not None and isinstance(t.ready_queue.order, FairOrder):
        part = entitlement(t, tenant)
    if not side_by_side:
        return None
    pace = max(1.0, side_by_side * part)
    # Those that run now are half done on average.
    return now + int((position.ahead + 0.5) * t.runtime_estimates.estimate(terms) / pace)


def _slots(t: SchedulerState, queue: str, needs: Needs) -> int:
    """How many such jobs the workers that are there could run side by side, were they empty."""
    places = 0
    asked = [(kind, amount) for kind, amount in amounts(needs.resources) if amount]
    for machine in t.fleet.machines.values():
        if infeasible_reasons(queue, needs, machine):
            continue
        has = dict(amounts(machine.capacity))
        each = min((has.get(kind, 0) // amount for kind, amount in asked), default=1)
        workers = (t.fleet.workers[worker_id].worker for worker_id in machine.workers)
        places += each * sum(1 for one in workers if one.state is WorkerState.ONLINE)
    return places
