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
    groups = _waiting_members(t)
    for job_class in t.ready_queue.classes:
        jobs_per_s, work_per_s = t.arrival_rates.rate(job_class, now)
        if job_class.waiting or job_class.spilled or jobs_per_s:
            key = (job_class.queue.queue.name, job_class.needs)
            shape = shapes[key] = ShapeBacklog(*key, jobs_per_s=jobs_per_s, work_per_s=work_per_s)
            _count_waiting(t, shape, job_class, target_ms)
            for extra, estimate, at_least in groups.get(job_class.index, ()):
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
    for entry in t.executions.values():
        terms = jobs[entry.execution.job_id].spec.terms
        # Terms are shared by alike jobs, and told apart much faster by what they are than by value.
        shape = known.get(id(terms))
        if shape is None:
            key = (terms.queue, terms.needs)
            shape = known[id(terms)] = shapes.setdefault(key, ShapeBacklog(*key))
        shape.running += 1
        left = entry.ends_at - now
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
    for class_queue in job_class.class_queues.values():
        jobs, work = class_queue.waiting + class_queue.spilled, class_queue.work
        if class_queue.spilled:
            work += _spilled_work(t, class_queue, job_class, mean)
        shape.jobs += jobs
        shape.work += work
        shape.wanted_slots += min(
            slots_for(jobs, work, target_ms), _quota_left(t, class_queue, shape.needs)
        )


def _mean_runtime(job_class: JobClass) -> Millis:
    """How long jobs in memory run: those on the shelf that say nothing are taken to run as long."""
    if job_class.waiting:
        return (
            sum(class_queue.work for class_queue in job_class.class_queues.values())
            // job_class.waiting
        )
    return job_class.arrived_work // max(1, job_class.arrived)


def _spilled_work(
    t: SchedulerState, class_queue: ClassQueue, job_class: JobClass, mean: Millis
) -> Millis:
    fifo_groups = (
        fifo_group for fifo_group in job_class.fifo_groups.values() if fifo_group.spilled
    )
    mine = (
        fifo_group
        for fifo_group in fifo_groups
        if t.ready_queue.queue_of_group(fifo_group) is class_queue
    )
    return sum(
        fifo_group.spilled * (mean if fifo_group.key[2] < 0 else fifo_group.key[2])
        for fifo_group in mine
    )


def _quota_left(t: SchedulerState, class_queue: ClassQueue, needs: Needs) -> float:
    """How many more the tenant may run; a line with a quota is of one tenant."""
    tenant = t.tenants.entries.get(class_queue.tenant)
    if tenant is None or tenant.tenant.quota is None:
        return float("inf")
    quota, used, asked = tenant.tenant.quota, tenant.used, needs.resources
    left = float("inf")
    for limit, taken, each in (
        (quota.running, len(tenant.held), 1),
        (quota.cpu_milli, used.cpu_milli, asked.cpu_milli),
        (quota.memory, used.memory, asked.memory),
    ):
        if limit is not None and each:
            left = min(left, max(0, (limit - taken) // each))
    return left


def _waiting_members(t: SchedulerState) -> dict[int, list[tuple[int, Millis, int]]]:
    """Members that wait behind the first of each band in line: (how many, length, at least)."""
    found: dict[int, list[tuple[int, Millis, int]]] = {}
    for job_id, group in t.groups.entries.items():
        job = t.jobs.get(JobId(job_id))
        if job is None or job.class_index == NO_CLASS or group.waiting < 2:
            continue
        worker_type, extra = job.spec.group, group.waiting - 1
        if isinstance(worker_type, Array) and worker_type.max_parallel is not None:
            extra = min(extra, max(0, worker_type.max_parallel - len(group.live) - 1))
        at_least = extra if isinstance(worker_type, Gang) else 0
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
    for entry in t.queues.values():
        _cap(_queue_slots_left(entry, shapes), [s for s in shapes if s.queue == entry.queue.name])
    _cap(_slots_left(t.policy.max_running, shapes), shapes)
    worker_types = _worker_types(t)
    if size is not None:
        worker_types.insert(
            0, WorkerType(MachineClass(0, _any_worker(size), FreeCapacities()), size, WorkerCount())
        )
    fitted = [_place(shape, worker_types, size) for shape in shapes]
    for one in fitted:
        if one.worker_type is not None:
            one.worker_type.load += one.load
    for worker_type in worker_types:
        worker_type.workers.needed = _workers(worker_type.load)
    unplaced = _workers(sum(one.load for one in fitted if one.worker_type is None))
    count = _summed(worker_types)
    count.needed += unplaced
    queues = [_queue(t.queues[name], fitted, worker_types) for name in sorted(t.queues)]
    return Demand(now, target_ms, queues, worker_types, count)


def _workers(load: float) -> int:
    return ceil(load - 1e-9)  # parts that make a whole may add up to a little more


# What may run at all


def _slots_left(limit: int | None, shapes: Iterable[ShapeBacklog]) -> float:
    """Slots that a limit on what runs leaves to what does not run yet."""
    if limit is None:
        return inf
    return max(0.0, limit - sum(shape.running_load for shape in shapes))


def _queue_slots_left(entry: QueueEntry, shapes: Iterable[ShapeBacklog]) -> float:
    queue = entry.queue
    if queue.paused:
        return 0.0
    mine = [shape for shape in shapes if shape.queue == queue.name]
    left = _slots_left(queue.max_workers, mine)
    jobs = sum(shape.jobs for shape in mine)
    if queue.rate_limit is not None and jobs:
        # What may start in a second, times how long it runs, is what ever runs at once.
        starts_per_s = queue.rate_limit.count * 1000 / queue.rate_limit.per_ms
        mean_s = sum(shape.work for shape in mine) / jobs / 1000
        left = min(left, max(1.0, starts_per_s * mean_s))
    return left


def _cap(left: float, shapes: list[ShapeBacklog]) -> None:
    wanted = sum(shape.wanted_slots for shape in shapes)
    if wanted > left:
        for shape in shapes:
            shape.wanted_slots *= left / wanted


# Who would run it


def _worker_types(t: SchedulerState) -> list[WorkerType]:
    """The workers that are there; where none is, those that were there within the last day."""
    found: dict[object, WorkerType] = {}
    by_machine: dict[int, WorkerType] = {}
    for entry in t.fleet.workers.values():
        worker_type = by_machine.get(entry.machine.index)
        if worker_type is None:
            worker = entry.worker
            key = (_size_key(worker.capacity), worker.capabilities, worker.queues, worker.only)
            new = WorkerType(entry.machine, worker.capacity, WorkerCount())
            worker_type = by_machine[entry.machine.index] = found.setdefault(key, new)
            worker_type.capacity = _least(worker_type.capacity, worker.capacity)
        if entry.worker.state is WorkerState.ONLINE:
            worker_type.workers.online += 1
            worker_type.workers.idle += not entry.held
    there = [worker_type for worker_type in found.values() if worker_type.workers.online]
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


def _place(
    shape: ShapeBacklog, worker_types: list[WorkerType], size: Resources | None
) -> PlacedShape:
    """On the kind where a job like this would go first, by the score that decides it."""
    needs = shape.needs
    able = [
        worker_type
        for worker_type in worker_types
        if not infeasible_reasons(shape.queue, needs, worker_type.machine)
    ]
    if size is not None and able and able[0] is worker_types[0]:
        able = able[:1]  # those that somebody would add, if they would do
    if not able:
        # Where nobody has ever seen a worker, one for each job is as good a guess as any.
        return PlacedShape(shape, None, 0 if worker_types else 1)
    best = min(
        able,
        key=lambda worker_type: score(needs.resources, worker_type.machine, worker_type.capacity),
    )
    return PlacedShape(shape, best, max(1, _how_many(needs, best.capacity)))


def _how_many(needs: Needs, capacity: Resources) -> int:
    there = dict(amounts(capacity))
    asked = [
        (worker_type, amount) for worker_type, amount in amounts(needs.resources) if amount > 0
    ]
    return min((there.get(worker_type, 0) // amount for worker_type, amount in asked), default=1)


def _summed(worker_types: Iterable[WorkerType]) -> WorkerCount:
    count = WorkerCount()
    for worker_type in worker_types:
        count.online += worker_type.workers.online
        count.idle += worker_type.workers.idle
        count.needed += worker_type.workers.needed
    return count


def _queue(
    entry: QueueEntry, fitted: list[PlacedShape], worker_types: list[WorkerType]
) -> QueueDemand:
    """A queue by itself: the workers that serve it, and how many it would need if it were alone."""
    name = entry.queue.name
    mine = [one for one in fitted if one.shape.queue == name]
    serving = [k for k in worker_types if k.machine.queues is None or name in k.machine.queues]
    count = _summed(serving)
    count.needed = _workers(sum(one.load for one in mine))
    return QueueDemand(name, entry.queue.paused, mine, count)
