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


def worker_info(t: SchedulerState, worker: WorkerEntry, now: Instant) -> WorkerInfo:
    return WorkerInfo(
        worker.worker,
        worker.last_seen,
        minus(worker.worker.capacity, worker.free),
        tuple(worker.held),
        now - worker.last_seen <= 2 * t.timing.heartbeat_ms,
    )


def reservation_infos(t: SchedulerState, now: Instant) -> Iterator[ReservationInfo]:
    """Reservations, or the plan where the policy plans all waiting jobs."""
    reserved: Iterable[tuple[JobId, tuple[WorkerId, Instant]]] = ()
    if t.policy.backfill is BackfillKind.EASY:
        reserved = ((one.job_id, (one.worker_id, one.at)) for one in t.reservations.values())
    elif t.policy.backfill is BackfillKind.CONSERVATIVE:
        reserved = t.conservative_plan.items()
    for job_id, (worker_id, at) in reserved:
        job = t.jobs.get(job_id)
        # A reservation outlasts its job's wait until the next turn checks it.
        if job is None or job.life.state is not JobState.QUEUED:
            continue
        terms, start = job.spec.terms, max(now, at)
        end = start + t.runtime_estimates.estimate(terms)
        yield ReservationInfo(job_id, terms.name, terms.tenant, worker_id, start, end)


def tenant_info(t: SchedulerState, tenant: TenantEntry, now: Instant) -> TenantInfo:
    holds, order = tenant.holds(), t.ready_queue.order
    used = order.usage(tenant.tenant.name, now) if isinstance(order, FairOrder) else 0.0
    return TenantInfo(
        tenant.tenant,
        tenant.depth.by_state(),
        holds,
        dominant_share(holds, t.fleet.capacity),
        entitlement(t, tenant),
        used,
    )


def entitlement(t: SchedulerState, tenant: TenantEntry) -> float:
    """Share of the fleet that is the tenant's, while the present tenants are active."""
    others = (one for one in t.tenants.entries.values() if one is not tenant)
    active = sum(one.tenant.weight for one in others if one.depth.by_state())
    return tenant.tenant.weight / (tenant.tenant.weight + active)


def queue_info(t: SchedulerState, queue: QueueEntry) -> QueueInfo:
    depth = t.depths.of(queue.queue.name).by_state()
    return QueueInfo(queue.queue, depth, t.ready_queue.spilled_of(queue))


def schedule_info(t: SchedulerState, entry: ScheduleEntry) -> ScheduleInfo:
    zone = entry.schedule.definition.timetable.timezone
    return ScheduleInfo(
        entry.schedule,
        entry.next_at,
        entry.due_at,
        tuple(t.schedule_index.live_jobs_of(entry.schedule.id)),
        "" if entry.recurrence is not None else f"this server's zone data has no {zone}",
    )


def position_of(t: SchedulerState, job_id: JobId, record: JobRecord | None) -> Position | None:
    """Position of the job in its class queue; `record` is needed for a spilled one."""
    job = t.jobs.get(job_id)
    if job is not None:
        class_queue = t.ready_queue.queue_of_job(job)
        return None if class_queue is None else _position_in_class_queue(t, job, class_queue)
    fifo_group = None if record is None else t.ready_queue.by_spill_queue.get(record.life.line)
    if record is None or fifo_group is None:
        return None
    class_queue = t.ready_queue.queue_of_group(fifo_group)
    # Spilled jobs are taken to have arrived evenly: only their count is known.
    part = (record.spec.arrival_number - fifo_group.boundary) / max(
        1, t.next_arrival_number - fifo_group.boundary
    )
    ahead = class_queue.waiting + int(max(0.0, part) * fifo_group.spilled)
    tenants = _tenants_ahead(t, record.spec.terms.tenant)
    return Position(
        ahead, class_queue.waiting + class_queue.spilled, is_exact=False, tenants_ahead=tenants
    )


def _position_in_class_queue(t: SchedulerState, job: JobEntry, class_queue: ClassQueue) -> Position:
    own_key, keys = job.order_key(), class_queue.jobs
    tenants = _tenants_ahead(t, job.spec.terms.tenant)
    waiting = class_queue.waiting + class_queue.spilled
    if keys.size > POSITION_LOOK:
        sample = list(islice(keys, None, None, keys.size // POSITION_LOOK))
        part = sum(1 for entry in sample if entry < own_key) / len(sample)
        return Position(
            int(part * class_queue.waiting), waiting, is_exact=False, tenants_ahead=tenants
        )
    before = [
        entry for entry in keys if entry < own_key and t.ready_queue.is_current(entry, class_queue)
    ]
    ahead = sum(1 for entry in before if not is_spill_marker(entry))
    return Position(ahead, waiting, is_exact=ahead == len(before), tenants_ahead=tenants)


def _tenants_ahead(t: SchedulerState, tenant: str) -> int:
    order = t.ready_queue.order
    return order.ahead_of(tenant) if isinstance(order, FairOrder) else 0


def fluid_start(
    t: SchedulerState, job_id: JobId, record: JobRecord | None, now: Instant
) -> Instant | None:
    """Estimated start, by the jobs before it and the tenant's share of the slots for them."""
    position = position_of(t, job_id, record)
    job = t.jobs.get(job_id)
    spec = job.spec if job is not None else None if record is None else record.spec
    if position is None or spec is None:
        return None
    terms = spec.terms
    side_by_side = _slots(t, terms.queue, terms.needs)
    tenant = t.tenants.entries.get(terms.tenant)
    entitled = 1.0
    if tenant is not None and isinstance(t.ready_queue.order, FairOrder):
        entitled = entitlement(t, tenant)
    if not side_by_side:
        return None
    rate = max(1.0, side_by_side * entitled)
    # Running jobs are taken to be half done on average.
    return now + int((position.ahead + 0.5) * t.runtime_estimates.estimate(terms) / rate)


def _slots(t: SchedulerState, queue: str, needs: Needs) -> int:
    """How many such jobs the online workers could run at once if they were empty."""
    slots = 0
    asked = [(kind, amount) for kind, amount in amounts(needs.resources) if amount]
    for machine in t.fleet.machines.values():
        if infeasible_reasons(queue, needs, machine):
            continue
        has = dict(amounts(machine.capacity))
        per_machine = min((has.get(kind, 0) // amount for kind, amount in asked), default=1)
        workers = (t.fleet.workers[worker_id].worker for worker_id in machine.workers)
        slots += per_machine * sum(1 for one in workers if one.state is WorkerState.ONLINE)
    return slots
