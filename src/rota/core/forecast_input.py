"""Input of a forecast: the part of the state that decides the next starts, for a small copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from rota.core.entries import JobEntry, OrderKey
from rota.core.limits import EXPLAINED_MAX, FORECAST_JOBS, FORECAST_QUEUE_JOBS
from rota.core.model import (
    GroupMember,
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
    """Stored records for the copy, and how many queued jobs it lacks."""

    stored: Stored
    taken_at: Instant
    left_out: int
    """Queued jobs that are not in it; they come after those that are."""


def forecast_input(t: SchedulerState, wanted: Sequence[JobId], now: Instant) -> ForecastInput:
    """Collects the fleet, live executions, and the first queued jobs; `wanted` ones if possible."""
    jobs: dict[JobId, JobEntry] = {}
    for job_id in wanted:
        _take(t, job_id, jobs)
    _take_fronts(t, jobs)
    waiting = sum(one.waiting + one.spilled for one in t.ready_queue.classes)
    queued = sum(1 for entry in jobs.values() if t.ready_queue.queue_of_job(entry) is not None)
    for entry in t.executions.values():
        job_id = entry.execution.job_id
        jobs[job_id] = t.jobs[job_id]
    if t.groups.entries:
        _take_groups(t, jobs)
    order = t.ready_queue.order
    entries = sorted(jobs.values(), key=lambda entry: entry.spec.arrival_number)
    stored = Stored(
        jobs=[_record(entry) for entry in entries],
        executions=[entry.execution for entry in t.executions.values()],
        workers=[entry.worker for entry in t.fleet.workers.values()],
        queues=[entry.queue for entry in t.queues.values()],
        order_next=t.next_arrival_number,
        policy=t.policy,
        tenants=_tenants(t, now),
        runtimes=_runtimes(t, entries),
        standings=order.balances(now) if isinstance(order, FairOrder) else (),
        reservations=[(place.job_id, place.worker_id) for place in t.reservations.values()],
        plan=dict(t.conservative_plan),
        rates=[(name, entry.next_start) for name, entry in t.queues.items() if entry.next_start],
    )
    return ForecastInput(stored, now, waiting - queued)


def _take_groups(t: SchedulerState, jobs: dict[JobId, JobEntry]) -> None:
    """Adds the groups of members, and all members of gangs: one cannot be restored alone."""
    for entry in list(jobs.values()):
        if isinstance(entry.spec.group, GroupMember):
            parent = JobId(entry.spec.group.parent)
            jobs[parent] = t.jobs[parent]
            for job_id in t.groups.entries[parent].live if entry.spec.group.in_gang else ():
                jobs[job_id] = t.jobs[job_id]


def fixed_size(t: SchedulerState) -> int:
    """Number of records that do not depend on what waits."""
    return len(t.executions) + len(t.fleet.workers)


def _record(entry: JobEntry) -> JobRecord:
    """Record of a job, without what the copy does not use."""
    spec, life = entry.spec, entry.life
    if spec.origin is not None or spec.trigger_origin is not None:
        spec = replace(spec, origin=None, trigger_origin=None)
    return JobRecord(entry.id, spec, replace(life, line=0) if life.line else life)


def _take(t: SchedulerState, job_id: JobId, jobs: dict[JobId, JobEntry]) -> None:
    """Adds a job, what it depends on, and what is before it in its queue or for its key."""
    to_visit = [job_id]
    while to_visit and len(jobs) < FORECAST_JOBS:
        entry = t.jobs.get(to_visit.pop())
        if entry is None or entry.id in jobs:
            continue
        jobs[entry.id] = entry
        if entry.unmet:
            to_visit.extend(dependency.job_id for dependency in entry.spec.dependencies)
        group = t.concurrency_keys.group_of(entry)
        if group is not None:
            to_visit.extend(group.holders)
            to_visit.extend(list(group.waiting)[:EXPLAINED_MAX])
        class_queue = t.ready_queue.queue_of_job(entry)
        if class_queue is not None:
            before = _front(t, class_queue, FORECAST_QUEUE_JOBS, entry.order_key())
            jobs.update((key[2], t.jobs[key[2]]) for key in before)


def _take_fronts(t: SchedulerState, jobs: dict[JobId, JobEntry]) -> None:
    class_queues = [
        class_queue
        for job_class in t.ready_queue.classes
        for class_queue in job_class.class_queues.values()
    ]
    each = max(1, FORECAST_JOBS // max(1, len(class_queues)))
    for class_queue in class_queues[:FORECAST_JOBS]:
        for key in _front(t, class_queue, each):
            jobs.setdefault(key[2], t.jobs[key[2]])


def _front(
    t: SchedulerState, class_queue: ClassQueue, most: int, last: OrderKey | None = None
) -> Iterator[OrderKey]:
    """First jobs of a class queue, in order, up to `last`."""
    found = 0
    for key in class_queue.jobs.in_order():
        if found == most or (last is not None and key > last):
            return
        if not is_spill_marker(key) and t.ready_queue.is_current(key, class_queue):
            found += 1
            yield key


def _tenants(t: SchedulerState, now: Instant) -> list[Tenant]:
    order = t.ready_queue.order
    entries = t.tenants.entries.values()
    if not isinstance(order, FairOrder):
        return [entry.tenant for entry in entries]
    places = {name: place for place, (name, _, _) in enumerate(order.balances(now))}
    tenants = [
        replace(entry.tenant, used=order.usage(entry.tenant.name, now), used_at=now)
        for entry in entries
    ]
    return sorted(tenants, key=lambda tenant: places.get(tenant.name, len(places)))


def _runtimes(t: SchedulerState, entries: Sequence[JobEntry]) -> list[RuntimeStats]:
    names = {(entry.spec.terms.tenant, entry.spec.terms.name): None for entry in entries}
    known = (RuntimeStats(*name, t.runtime_estimates.recent(name)) for name in names)
    return [runtime for runtime in known if runtime.recent]
