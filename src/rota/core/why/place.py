"""Where a job stands in line, and how long the line would take if it flowed evenly."""

from __future__ import annotations

from itertools import islice

from rota.core.limits import POSITION_LOOK
from rota.core.memory.cells import JobCell
from rota.core.model import Instant, JobId, JobRecord, Needs, WorkerState
from rota.core.order.fair import FairOrder
from rota.core.order.ordering import is_mark
from rota.core.order.party import Line
from rota.core.place.fitness import unable
from rota.core.records.glance import Position
from rota.core.resources import amounts
from rota.core.tables import Tables
from rota.core.why.views import entitlement


def position_of(t: Tables, job_id: JobId, record: JobRecord | None) -> Position | None:
    """Where it stands; on the shelf it is known by `record`."""
    cell = t.jobs.get(job_id)
    if cell is not None:
        line = t.lines.line_of_job(cell)
        return None if line is None else _position_in_class_queue(t, cell, line)
    lane = None if record is None else t.lines.numbered.get(record.life.line)
    if record is None or lane is None:
        return None
    line = t.lines.line_of_lane(lane)
    # Arrivals are numbered through: those on the shelf are taken to have come evenly.
    part = (record.spec.order - lane.edge) / max(1, t.order_next - lane.edge)
    ahead = line.waiting + int(max(0.0, part) * lane.shelved)
    tenants = _tenants_ahead(t, record.spec.terms.tenant)
    return Position(ahead, line.waiting + line.shelved, is_exact=False, tenants_ahead=tenants)


def _position_in_class_queue(t: Tables, cell: JobCell, line: Line) -> Position:
    mine, row = cell.line_key(), line.row
    tenants = _tenants_ahead(t, cell.spec.terms.tenant)
    waiting = line.waiting + line.shelved
    if row.size > POSITION_LOOK:
        sample = list(islice(row, None, None, row.size // POSITION_LOOK))
        part = sum(1 for entry in sample if entry < mine) / len(sample)
        return Position(int(part * line.waiting), waiting, is_exact=False, tenants_ahead=tenants)
    before = [entry for entry in row if entry < mine and t.lines.stands(entry, line)]
    ahead = sum(1 for entry in before if not is_mark(entry))
    return Position(ahead, waiting, is_exact=ahead == len(before), tenants_ahead=tenants)


def _tenants_ahead(t: Tables, tenant: str) -> int:
    order = t.lines.order
    return order.ahead_of(tenant) if isinstance(order, FairOrder) else 0


def fluid_start(t: Tables, job_id: JobId, record: JobRecord | None, now: Instant) -> Instant | None:
    """Now, and the time that those before it take on the tenant's part of what could run them."""
    position = position_of(t, job_id, record)
    cell = t.jobs.get(job_id)
    spec = cell.spec if cell is not None else None if record is None else record.spec
    if position is None or spec is None:
        return None
    terms = spec.terms
    side_by_side = _slots(t, terms.queue, terms.needs)
    tenant = t.tenants.cells.get(terms.tenant)
    part = 1.0
    if tenant is not None and isinstance(t.lines.order, FairOrder):
        part = entitlement(t, tenant)
    if not side_by_side:
        return None
    pace = max(1.0, side_by_side * part)
    # Those that run now are half done on average.
    return now + int((position.ahead + 0.5) * t.runtimes.estimate(terms) / pace)


def _slots(t: Tables, queue: str, needs: Needs) -> int:
    """How many such jobs the workers that are there could run side by side, were they empty."""
    places = 0
    asked = [(kind, amount) for kind, amount in amounts(needs.resources) if amount]
    for machine in t.fleet.machines.values():
        if unable(queue, needs, machine):
            continue
        has = dict(amounts(machine.capacity))
        each = min((has.get(kind, 0) // amount for kind, amount in asked), default=1)
        workers = (t.fleet.workers[worker_id].worker for worker_id in machine.workers)
        places += each * sum(1 for one in workers if one.state is WorkerState.ONLINE)
    return places
