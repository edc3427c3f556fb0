"""A picture of what matters for the next starts, small enough to play them through on a copy.

Taken between two turns, of frozen records only: a copy built of it (restore.py) can be stepped
elsewhere while the scheduler goes on. It has the front of every line, not all that waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from rota.core.band import GroupMember
from rota.core.limits import EXPLAINED_MAX, REHEARSED_JOBS, REHEARSED_LINE
from rota.core.memory.cells import JobCell, LineKey
from rota.core.model import (
    Instant,
    JobId,
    JobRecord,
    Runtime,
    Tenant,
)
from rota.core.order.fair import FairOrder
from rota.core.order.ordering import is_mark
from rota.core.order.party import Line
from rota.core.restore import Stored
from rota.core.tables import Tables


class ForecastInput(msgspec.Struct, frozen=True):
    """What a copy is built of."""

    stored: Stored
    taken_at: Instant
    left_out: int
    """Jobs in line that are not in it: they come after those that are."""


def forecast_input(t: Tables, wanted: Sequence[JobId], now: Instant) -> ForecastInput:
    """The fleet, what runs, and the first of those that wait; the wanted ones if they can be."""
    jobs: dict[JobId, JobCell] = {}
    for job_id in wanted:
        _take(t, job_id, jobs)
    _take_fronts(t, jobs)
    waiting = sum(one.waiting + one.shelved for one in t.lines.classes)
    in_line = sum(1 for cell in jobs.values() if t.lines.line_of_job(cell) is not None)
    for cell in t.executions.values():
        job_id = cell.execution.job_id
        jobs[job_id] = t.jobs[job_id]
    if t.bands.cells:
        _take_groups(t, jobs)
    order = t.lines.order
    cells = sorted(jobs.values(), key=lambda cell: cell.spec.order)
    stored = Stored(
        jobs=[_record(cell) for cell in cells],
        executions=[cell.execution for cell in t.executions.values()],
        workers=[cell.worker for cell in t.fleet.workers.values()],
        queues=[cell.queue for cell in t.queues.values()],
        order_next=t.order_next,
        policy=t.policy,
        tenants=_tenants(t, now),
        runtimes=_runtimes(t, cells),
        standings=order.standings(now) if isinstance(order, FairOrder) else (),
        reservations=[(place.job_id, place.worker_id) for place in t.places.values()],
        plan=dict(t.plan),
        rates=[(name, cell.next_start) for name, cell in t.queues.items() if cell.next_start],
    )
    return ForecastInput(stored, now, waiting - in_line)


def _take_groups(t: Tables, jobs: dict[JobId, JobCell]) -> None:
    """A member is nothing without its array or gang, nor a gang without all of its members."""
    for cell in list(jobs.values()):
        if isinstance(cell.spec.band, GroupMember):
            parent = JobId(cell.spec.band.parent)
            jobs[parent] = t.jobs[parent]
            for job_id in t.bands.cells[parent].live if cell.spec.band.in_gang else ():
                jobs[job_id] = t.jobs[job_id]


def fixed_size(t: Tables) -> int:
    """How many records a picture would have beside those that wait."""
    return len(t.executions) + len(t.fleet.workers)


def _record(cell: JobCell) -> JobRecord:
    """Without what a copy has no use for."""
    spec, life = cell.spec, cell.life
    if spec.origin is not None or spec.stimulus is not None:
        spec = replace(spec, origin=None, stimulus=None)
    return JobRecord(cell.id, spec, replace(life, line=0) if life.line else life)


def _take(t: Tables, job_id: JobId, jobs: dict[JobId, JobCell]) -> None:
    """A job, and what it waits for by name: other jobs, and those at its key."""
    to_visit = [job_id]
    while to_visit and len(jobs) < REHEARSED_JOBS:
        cell = t.jobs.get(to_visit.pop())
        if cell is None or cell.id in jobs:
            continue
        jobs[cell.id] = cell
        if cell.unmet:
            to_visit.extend(dependency.job_id for dependency in cell.spec.dependencies)
        group = t.keys.group_of(cell)
        if group is not None:
            to_visit.extend(group.holders)
            to_visit.extend(list(group.waiting)[:EXPLAINED_MAX])
        line = t.lines.line_of_job(cell)
        if line is not None:
            before = _front(t, line, REHEARSED_LINE, cell.line_key())
            jobs.update((entry[2], t.jobs[entry[2]]) for entry in before)


def _take_fronts(t: Tables, jobs: dict[JobId, JobCell]) -> None:
    lines = [line for job_class in t.lines.classes for line in job_class.lines.values()]
    each = max(1, REHEARSED_JOBS // max(1, len(lines)))
    for line in lines[:REHEARSED_JOBS]:
        for entry in _front(t, line, each):
            jobs.setdefault(entry[2], t.jobs[entry[2]])


def _front(t: Tables, line: Line, most: int, last: LineKey | None = None) -> Iterator[LineKey]:
    """The first of a line, in order, as far as `last`."""
    found = 0
    for entry in line.row.in_order():
        if found == most or (last is not None and entry > last):
            return
        if not is_mark(entry) and t.lines.stands(entry, line):
            found += 1
            yield entry


def _tenants(t: Tables, now: Instant) -> list[Tenant]:
    order = t.lines.order
    cells = t.tenants.cells.values()
    if not isinstance(order, FairOrder):
        return [cell.tenant for cell in cells]
    places = {name: place for place, (name, _, _) in enumerate(order.standings(now))}
    tenants = [
        replace(cell.tenant, used=order.usage(cell.tenant.name, now), used_at=now) for cell in cells
    ]
    return sorted(tenants, key=lambda tenant: places.get(tenant.name, len(places)))


def _runtimes(t: Tables, cells: Sequence[JobCell]) -> list[Runtime]:
    names = {(cell.spec.terms.tenant, cell.spec.terms.name): None for cell in cells}
    known = (Runtime(*name, t.runtimes.recent(name)) for name in names)
    return [runtime for runtime in known if runtime.recent]
