"""Input of a forecast: the part of the state that decides the next starts, for a small copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from rota.core.entries import JobEntry, OrderKey
from rota.core.group_model import GroupMember
from rota.core.limits import EXPLAINED_MAX, FORECAST_JOBS, FORECAST_QUEUE_JOBS
from rota.core.model import (
    Instant,
    JobId,
    JobRecord,
    RuntimeStats,
    Tenant,
)
from rota.core.ready_queue.classes import ClassQueue
from rota.core.ready_queue.fair_share import FairOrder
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.restore import Stored
from rota.core.state import SchedulerState


class ForecastInput(msgspec.Struct, frozen=True):
    """What a copy is built of."""

    stored: Stored
    taken_at: Instant
    left_out: int
    """Jobs in line that are not in it: they come after those that are."""


def forecast_input(t: SchedulerState, wanted: Sequence[JobId], now: Instant) -> ForecastInput:
    """The fleet, what runs, and the first of those that wait; the wanted ones if they can be."""
    jobs: dict[JobId, JobEntry] = {}
    for job_id in wanted:
        _take(t, job_id, jobs)
    _take_fronts(t, jobs)
    waiting = sum(one.waiting + one.spilled for one in t.ready_queue.classes)
    in_line = sum(1 for cell in jobs.values() if t.ready_queue.queue_of_job(cell) is not None)
    for cell in t.executions.values():
        job_id = cell.execution.job_id
        jobs[job_id] = t.jobs[job_id]
    if t.groups.entries:
        _take_groups(t, jobs)
    order = t.ready_queue.order
    cells = sorted(jobs.values(), key=lambda cell: cell.spec.arrival_number)
    stored = Stored(
        jobs=[_record(cell) for cell in cells],
        executions=[cell.execution for cell in t.executions.values()],
        workers=[cell.worker for cell in t.fleet.workers.values()],
        queues=[cell.queue for cell in t.queues.values()],
        order_next=t.next_arrival_number,
        policy=t.policy,
        tenants=_tenants(t, now),
        runtimes=_runtimes(t, cells),
        standings=order.balances(now) if isinstance(order, FairOrder) else (),
        reservations=[(place.job_id, place.worker_id) for place in t.reservations.values()],
        plan=dict(t.conservative_plan),
        rates=[(name, cell.next_start) for name, cell in t.queues.items() if cell.next_start],
    )
    return ForecastInput(stored, now, waiting - in_line)


def _take_groups(t: SchedulerState, jobs: dict[JobId, JobEntry]) -> None:
    """A member is nothing without its array or gang, nor a gang without all of its members."""
    for cell in list(jobs.values()):
        if isinstance(cell.spec.group, GroupMember):
            parent = JobId(cell.spec.group.parent)
            jobs[parent] = t.jobs[parent]
            for job_id in t.groups.entries[parent].live if cell.spec.group.in_gang else ():
                jobs[job_id] = t.jobs[job_id]


def fixed_size(t: SchedulerState) -> int:
    """How many records a picture would have beside those that wait."""
    return len(t.executions) + len(t.fleet.workers)


def _record(cell: JobEntry) -> JobRecord:
    """Without what a copy has no use for."""
    spec, life = cell.spec, cell.life
    if spec.origin is not None or spec.trigger_origin is not None:
        spec = replace(spec, origin=None, trigger_origin=None)
    return JobRecord(cell.id, spec, replace(life, line=0) if life.line else life)


def _take(t: SchedulerState, job_id: JobId, jobs: dict[JobId, JobEntry]) -> None:
    """A job, and what it waits for by name: other jobs, and those at its key."""
    to_visit = [job_id]
    while to_visit and len(jobs) < FORECAST_JOBS:
        cell = t.jobs.get(to_visit.pop())
        if cell is None or cell.id in jobs:
            continue
        jobs[cell.id] = cell
        if cell.unmet:
            to_visit.extend(dependency.job_id for dependency in cell.spec.dependencies)
        group = t.concurrency_keys.group_of(cell)
        if group is not None:
            to_visit.extend(group.holders)
            to_visit.extend(list(group.waiting)[:EXPLAINED_MAX])
        line = t.ready_queue.queue_of_job(cell)
        if line is not None:
            before = _front(t, line, FORECAST_QUEUE_JOBS, cell.order_key())
            jobs.update((entry[2], t.jobs[entry[2]]) for entry in before)


def _take_fronts(t: SchedulerState, jobs: dict[JobId, JobEntry]) -> None:
    lines = [
        line for job_class in t.ready_queue.classes for line in job_class.class_queues.values()
    ]
    each = max(1, FORECAST_JOBS // max(1, len(lines)))
    for line in lines[:FORECAST_JOBS]:
        for entry in _front(t, line, each):
            jobs.setdefault(entry[2], t.jobs[entry[2]])


def _front(
    t: SchedulerState, line: ClassQueue, most: int, last: OrderKey | None = None
) -> Iterator[OrderKey]:
    """The first of a line, in order, as far as `last`."""
    found = 0
    for entry in line.jobs.in_order():
        if found == most or (last is not None and entry > last):
            return
        if not is_spill_marker(entry) and t.ready_queue.is_current(entry, line):
            found += 1
            yield entry


def _tenants(t: SchedulerState, now: Instant) -> list[Tenant]:
    order = t.ready_queue.order
    cells = t.tenants.entries.values()
    if not isinstance(order, FairOrder):
        return [cell.tenant for cell in cells]
    places = {name: place for place, (name, _, _) in enumerate(order.balances(now))}
    tenants = [
        replace(cell.tenant, used=order.usage(cell.tenant.name, now), used_at=now) for cell in cells
    ]
    return sorted(tenants, key=lambda tenant: places.get(tenant.name, len(places)))


def _runtimes(t: SchedulerState, cells: Sequence[JobEntry]) -> list[RuntimeStats]:
    names = {(cell.spec.terms.tenant, cell.spec.terms.name): None for cell in cells}
    known = (RuntimeStats(*name, t.runtime_estimates.recent(name)) for name in names)
    return [runtime for runtime in known if runtime.recent]
