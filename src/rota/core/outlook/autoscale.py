"""How many workers would clear what waits in time: from kept sums, whatever the backlog is.

Each class of jobs gets the slots that it could use: enough to run what waits within the target, to
go on with what runs, and to keep up with what comes. What a queue, a quota, a rate or the whole
cell would not let run asks for nobody. Slots become workers of the kind on which such a job would
go first. The cost is that of classes, lines, workers and what runs; no job that waits is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf

import msgspec

from rota.core.memory.cells import MachineClass, QueueEntry
from rota.core.memory.rooms import FreeCapacities
from rota.core.model import Instant, Millis, Needs, Resources, Worker, WorkerId, WorkerState
from rota.core.order.lanes import rounded_length
from rota.core.outlook.backlog import ShapeBacklog, backlog_by_shape
from rota.core.place.fitness import infeasible_reasons, score
from rota.core.resources import amounts
from rota.core.tables import SchedulerState


class WorkerCount(msgspec.Struct):
    """Workers: those there are, and how many there should be."""

    online: int = 0
    idle: int = 0
    needed: int = 0

    @property
    def add(self) -> int:
        """How many more would be needed."""
        return max(0, self.needed - self.online)

    @property
    def remove(self) -> int:
        """How many of the idle ones could go."""
        return min(self.idle, max(0, self.online - self.needed))


class WorkerType(msgspec.Struct):
    """Workers of about the same size that are good for the same."""

    machine: MachineClass
    capacity: Resources
    """The least that one of them has."""
    workers: WorkerCount
    load: float = 0.0
    """Workers that the jobs which go there first would keep busy."""


class PlacedShape(msgspec.Struct):
    """A shape, and on which workers it would go."""

    shape: ShapeBacklog
    worker_type: WorkerType | None
    """None: no worker is known that could run it, nor would more of them help."""
    per_worker: int
    """How many fit on one worker; 0 where none could be run."""

    @property
    def load(self) -> float:
        """Workers it would keep busy."""
        return self.shape.slots / self.per_worker if self.per_worker else 0.0

    @property
    def stranded(self) -> int:
        """Jobs that no worker could run, as far as workers are known."""
        return 0 if self.per_worker else self.shape.jobs


class QueueDemand(msgspec.Struct):
    """One queue: what it has, and how many workers it would need by itself."""

    name: str
    paused: bool
    shapes: list[PlacedShape]
    workers: WorkerCount


class Demand(msgspec.Struct):
    """The whole cell."""

    at: Instant
    target_ms: Millis
    queues: list[QueueDemand]
    worker_types: list[WorkerType]
    workers: WorkerCount


def demand(t: SchedulerState, target_ms: Millis, size: Resources | None, now: Instant) -> Demand:
    """What it takes to clear all that waits within the target.

    `size` is that of the workers which somebody would add; None: such as there are.
    """
    shapes = backlog_by_shape(t, target_ms, now)
    for cell in t.queues.values():
        _cap(_queue_slots_left(cell, shapes), [s for s in shapes if s.queue == cell.queue.name])
    _cap(_slots_left(t.policy.max_running, shapes), shapes)
    kinds = _worker_types(t)
    if size is not None:
        kinds.insert(
            0, WorkerType(MachineClass(0, _any_worker(size), FreeCapacities()), size, WorkerCount())
        )
    fitted = [_place(shape, kinds, size) for shape in shapes]
    for one in fitted:
        if one.worker_type is not None:
            one.worker_type.load += one.load
    for kind in kinds:
        kind.workers.needed = _workers(kind.load)
    strangers = _workers(sum(one.load for one in fitted if one.worker_type is None))
    crew = _summed(kinds)
    crew.needed += strangers
    queues = [_queue(t.queues[name], fitted, kinds) for name in sorted(t.queues)]
    return Demand(now, target_ms, queues, kinds, crew)


def _workers(load: float) -> int:
    return ceil(load - 1e-9)  # parts that make a whole may add up to a little more


# What may run at all


def _slots_left(limit: int | None, shapes: Iterable[ShapeBacklog]) -> float:
    """Slots that a limit on what runs leaves to what does not run yet."""
    if limit is None:
        return inf
    return max(0.0, limit - sum(shape.running_load for shape in shapes))


def _queue_slots_left(cell: QueueEntry, shapes: Iterable[ShapeBacklog]) -> float:
    queue = cell.queue
    if queue.paused:
        return 0.0
    mine = [shape for shape in shapes if shape.queue == queue.name]
    room = _slots_left(queue.max_workers, mine)
    jobs = sum(shape.jobs for shape in mine)
    if queue.rate_limit is not None and jobs:
        # What may start in a second, times how long it runs, is what ever runs at once.
        starts_per_s = queue.rate_limit.count * 1000 / queue.rate_limit.per_ms
        mean_s = sum(shape.work for shape in mine) / jobs / 1000
        room = min(room, max(1.0, starts_per_s * mean_s))
    return room


def _cap(room: float, shapes: list[ShapeBacklog]) -> None:
    wanted = sum(shape.wanted_slots for shape in shapes)
    if wanted > room:
        for shape in shapes:
            shape.wanted_slots *= room / wanted


# Who would run it


def _worker_types(t: SchedulerState) -> list[WorkerType]:
    """The workers that are there; where none is, those that were there within the last day."""
    found: dict[object, WorkerType] = {}
    by_machine: dict[int, WorkerType] = {}
    for cell in t.fleet.workers.values():
        kind = by_machine.get(cell.machine.index)
        if kind is None:
            worker = cell.worker
            key = (_size_key(worker.capacity), worker.capabilities, worker.queues, worker.only)
            new = WorkerType(cell.machine, worker.capacity, WorkerCount())
            kind = by_machine[cell.machine.index] = found.setdefault(key, new)
            kind.capacity = _least(kind.capacity, worker.capacity)
        if cell.worker.state is WorkerState.ONLINE:
            kind.workers.online += 1
            kind.workers.idle += not cell.held
    there = [kind for kind in found.values() if kind.workers.online]
    return there or list(found.values())


def _size_key(capacity: Resources) -> tuple[object, ...]:
    """Machines of one type differ in free disk, and a little in memory."""
    return (
        capacity.cpu_milli,
        rounded_length(capacity.memory),
        capacity.gpu_milli,
        capacity.custom,
    )


def _least(one: Resources, other: Resources) -> Resources:
    memory, storage = min(one.memory, other.memory), min(one.storage, other.storage)
    return Resources(one.cpu_milli, memory, storage, one.gpu_milli, one.custom)


def _any_worker(size: Resources) -> Worker:
    return Worker(WorkerId(""), "", "", size)


def _place(shape: ShapeBacklog, kinds: list[WorkerType], size: Resources | None) -> PlacedShape:
    """On the kind where a job like this would go first, by the score that decides it."""
    needs = shape.needs
    able = [kind for kind in kinds if not infeasible_reasons(shape.queue, needs, kind.machine)]
    if size is not None and able and able[0] is kinds[0]:
        able = able[:1]  # those that somebody would add, if they would do
    if not able:
        # Where nobody has ever seen a worker, one for each job is as good a guess as any.
        return PlacedShape(shape, None, 0 if kinds else 1)
    best = min(able, key=lambda kind: score(needs.resources, kind.machine, kind.capacity))
    return PlacedShape(shape, best, max(1, _how_many(needs, best.capacity)))


def _how_many(needs: Needs, capacity: Resources) -> int:
    there = dict(amounts(capacity))
    asked = [(kind, amount) for kind, amount in amounts(needs.resources) if amount > 0]
    return min((there.get(kind, 0) // amount for kind, amount in asked), default=1)


def _summed(kinds: Iterable[WorkerType]) -> WorkerCount:
    crew = WorkerCount()
    for kind in kinds:
        crew.online += kind.workers.online
        crew.idle += kind.workers.idle
        crew.needed += kind.workers.needed
    return crew


def _queue(cell: QueueEntry, fitted: list[PlacedShape], kinds: list[WorkerType]) -> QueueDemand:
    """A queue by itself: the workers that serve it, and how many it would need if it were alone."""
    name = cell.queue.name
    mine = [one for one in fitted if one.shape.queue == name]
    serving = [k for k in kinds if k.machine.queues is None or name in k.machine.queues]
    crew = _summed(serving)
    crew.needed = _workers(sum(one.load for one in mine))
    return QueueDemand(name, cell.queue.paused, mine, crew)
