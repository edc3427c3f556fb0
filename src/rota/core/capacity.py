"""Capacity: how many workers would clear the backlog in time, from kept sums and arrival rates.

Each class of jobs gets the slots that it could use: enough to run its backlog within the target, to
go on with what runs, and to keep up with arrivals. What a queue, a quota, a rate limit or the cell
would not let run adds nothing. Slots become workers of the type on which such a job would go first.
The cost depends on classes, queues, workers and executions; no waiting job is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf

import msgspec

from rota.core.entries import NO_CLASS, FreeCapacities, MachineClass, QueueEntry
from rota.core.group_model import Array, Gang
from rota.core.model import Instant, JobId, Millis, Needs, Resources, Worker, WorkerId, WorkerState
from rota.core.placement.feasibility import infeasible_reasons, score
from rota.core.ready_queue.classes import ClassQueue, JobClass
from rota.core.ready_queue.merge_queue import rounded_length
from rota.core.resources import amounts
from rota.core.state import SchedulerState


class ShapeBacklog(msgspec.Struct):
    """What waits, runs and comes of one queue with the same needs."""

    queue: str
    needs: Needs
    jobs: int = 0
    work: Millis = 0
    running: int = 0
    running_load: float = 0.0
    """Slots that what runs keeps busy, on average until the target."""
    jobs_per_s: float = 0.0
    work_per_s: float = 0.0
    """Seconds of work that come in each second: slots that keep up with them."""
    wanted_slots: float = 0.0
    """Slots for what waits and what comes."""

    @property
    def slots(self) -> float:
        """How many of them should run at once."""
        return self.wanted_slots + self.running_load


def backlog_by_shape(t: SchedulerState, target_ms: Millis, now: Instant) -> list[ShapeBacklog]:
    """All that waits for a worker, runs, or has come in lately."""
    shapes: dict[tuple[str, Needs], ShapeBacklog] = {}
    bands = _waiting_members(t)
    for job_class in t.ready_queue.classes:
        jobs_per_s, work_per_s = t.arrival_rates.rate(job_class, now)
        if job_class.waiting or job_class.spilled or jobs_per_s:
            key = (job_class.queue.queue.name, job_class.needs)
            shape = shapes[key] = ShapeBacklog(*key, jobs_per_s=jobs_per_s, work_per_s=work_per_s)
            _count_waiting(t, shape, job_class, target_ms)
            for extra, estimate, at_least in bands.get(job_class.index, ()):
                shape.jobs += extra
                shape.work += extra * estimate
                slots = slots_for(extra, extra * estimate, target_ms)
                shape.wanted_slots += max(slots, at_least)
            # What comes until the target takes no more slots than it has jobs.
            shape.wanted_slots += min(work_per_s, jobs_per_s * target_ms / 1000)
    _count_running(t, shapes, target_ms, now)
    return list(shapes.values())


def _count_running(
    t: SchedulerState,
    shapes: dict[tuple[str, Needs], ShapeBacklog],
    target_ms: Millis,
    now: Instant,
) -> None:
    jobs, known = t.jobs, dict[int, ShapeBacklog]()
    for cell in t.executions.values():
        terms = jobs[cell.execution.job_id].spec.terms
        # Terms are shared by alike jobs, and told apart much faster by what they are than by value.
        shape = known.get(id(terms))
        if shape is None:
            key = (terms.queue, terms.needs)
            shape = known[id(terms)] = shapes.setdefault(key, ShapeBacklog(*key))
        shape.running += 1
        left = cell.ends_at - now
        if left > 0:
            shape.running_load += 1.0 if left >= target_ms else left / target_ms


def slots_for(jobs: int, work: Millis, target_ms: Millis) -> int:
    """How many must run at once so that all have ended in time; longer ones at least begin."""
    if not jobs:
        return 0
    rounds = max(1, target_ms * jobs // work) if work else jobs
    return min(jobs, max(-(-jobs // rounds), -(-work // target_ms)))


def _count_waiting(
    t: SchedulerState, shape: ShapeBacklog, job_class: JobClass, target_ms: Millis
) -> None:
    """Line by line, for a tenant's quota may allow less than it has waiting."""
    mean = _mean_runtime(job_class)
    for line in job_class.class_queues.values():
        jobs, work = line.waiting + line.spilled, line.work
        if line.spilled:
            work += _spilled_work(t, line, job_class, mean)
        shape.jobs += jobs
        shape.work += work
        shape.wanted_slots += min(
            slots_for(jobs, work, target_ms), _quota_left(t, line, shape.needs)
        )


def _mean_runtime(job_class: JobClass) -> Millis:
    """How long jobs in memory run: those on the shelf that say nothing are taken to run as long."""
    if job_class.waiting:
        return sum(line.work for line in job_class.class_queues.values()) // job_class.waiting
    return job_class.arrived_work // max(1, job_class.arrived)


def _spilled_work(t: SchedulerState, line: ClassQueue, job_class: JobClass, mean: Millis) -> Millis:
    lanes = (lane for lane in job_class.fifo_groups.values() if lane.spilled)
    mine = (lane for lane in lanes if t.ready_queue.queue_of_group(lane) is line)
    return sum(lane.spilled * (mean if lane.key[2] < 0 else lane.key[2]) for lane in mine)


def _quota_left(t: SchedulerState, line: ClassQueue, needs: Needs) -> float:
    """How many more the tenant may run; a line with a quota is of one tenant."""
    tenant = t.tenants.entries.get(line.tenant)
    if tenant is None or tenant.tenant.quota is None:
        return float("inf")
    quota, used, asked = tenant.tenant.quota, tenant.used, needs.resources
    room = float("inf")
    for limit, taken, each in (
        (quota.running, len(tenant.held), 1),
        (quota.cpu_milli, used.cpu_milli, asked.cpu_milli),
        (quota.memory, used.memory, asked.memory),
    ):
        if limit is not None and each:
            room = min(room, max(0, (limit - taken) // each))
    return room


def _waiting_members(t: SchedulerState) -> dict[int, list[tuple[int, Millis, int]]]:
    """Members that wait behind the first of each band in line: (how many, length, at least)."""
    found: dict[int, list[tuple[int, Millis, int]]] = {}
    for job_id, band in t.groups.entries.items():
        job = t.jobs.get(JobId(job_id))
        if job is None or job.class_index == NO_CLASS or band.waiting < 2:
            continue
        kind, extra = job.spec.group, band.waiting - 1
        if isinstance(kind, Array) and kind.max_parallel is not None:
            extra = min(extra, max(0, kind.max_parallel - len(band.live) - 1))
        at_least = extra if isinstance(kind, Gang) else 0
        found.setdefault(job.class_index, []).append((extra, job.estimate, at_least))
    return found


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
