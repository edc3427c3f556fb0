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
from rota.core.model import (
    Array,
    Gang,
    Instant,
    JobId,
    Millis,
    Needs,
    Resources,
    Worker,
    WorkerId,
    WorkerState,
)
from rota.core.placement.feasibility import infeasible_reasons, score
from rota.core.ready_queue.classes import ClassQueue, JobClass
from rota.core.ready_queue.merge_queue import rounded_length
from rota.core.resources import amounts
from rota.core.state import SchedulerState


class ShapeBacklog(msgspec.Struct):
    """Backlog of the jobs of one queue with the same needs: waiting, running and expected ones."""

    queue: str
    needs: Needs
    jobs: int = 0
    work: Millis = 0
    running: int = 0
    running_load: float = 0.0
    """Slots that running jobs keep busy, on average until the target."""
    jobs_per_s: float = 0.0
    work_per_s: float = 0.0
    """Seconds of work that arrive per second: slots that keep up with them."""
    wanted_slots: float = 0.0
    """Slots for waiting and expected jobs."""

    @property
    def slots(self) -> float:
        """Slots for all of them at once."""
        return self.wanted_slots + self.running_load


def backlog_by_shape(t: SchedulerState, target_ms: Millis, now: Instant) -> list[ShapeBacklog]:
    """Backlog of all jobs that wait for a worker, run, or arrived lately."""
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
            # What arrives until the target cannot use more slots than there are jobs.
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
        # Alike jobs share one terms object: comparing ids is much faster than comparing values.
        shape = known.get(id(terms))
        if shape is None:
            key = (terms.queue, terms.needs)
            shape = known[id(terms)] = shapes.setdefault(key, ShapeBacklog(*key))
        shape.running += 1
        left = entry.ends_at - now
        if left > 0:
            shape.running_load += 1.0 if left >= target_ms else left / target_ms


def slots_for(jobs: int, work: Millis, target_ms: Millis) -> int:
    """Number of jobs to run at once so that all end in time; longer ones at least begin."""
    if not jobs:
        return 0
    rounds = max(1, target_ms * jobs // work) if work else jobs
    return min(jobs, max(-(-jobs // rounds), -(-work // target_ms)))


def _count_waiting(
    t: SchedulerState, shape: ShapeBacklog, job_class: JobClass, target_ms: Millis
) -> None:
    """Counts each class queue by itself, because quotas of tenants may allow less than waits."""
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
    """Mean run time of jobs in memory; spilled jobs without an expected run time get the same."""
    if job_class.waiting:
        queues = job_class.class_queues.values()
        return sum(class_queue.work for class_queue in queues) // job_class.waiting
    return job_class.arrived_work // max(1, job_class.arrived)


def _spilled_work(
    t: SchedulerState, class_queue: ClassQueue, job_class: JobClass, mean: Millis
) -> Millis:
    work = 0
    for group in job_class.fifo_groups.values():
        if group.spilled and t.ready_queue.queue_of_group(group) is class_queue:
            length = group.key[2]
            work += group.spilled * (mean if length < 0 else length)
    return work


def _quota_left(t: SchedulerState, class_queue: ClassQueue, needs: Needs) -> float:
    """How many more jobs the tenant may run; a class queue with a quota has one tenant."""
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
    """Members behind the first of each queued group: (how many, run time, slots at least)."""
    found: dict[int, list[tuple[int, Millis, int]]] = {}
    for job_id, group in t.groups.entries.items():
        job = t.jobs.get(JobId(job_id))
        if job is None or job.class_index == NO_CLASS or group.waiting < 2:
            continue
        spec, extra = job.spec.group, group.waiting - 1
        if isinstance(spec, Array) and spec.max_parallel is not None:
            extra = min(extra, max(0, spec.max_parallel - len(group.live) - 1))
        at_least = extra if isinstance(spec, Gang) else 0
        found.setdefault(job.class_index, []).append((extra, job.estimate, at_least))
    return found


class WorkerCount(msgspec.Struct):
    """Number of workers of a type: online, idle, and needed."""

    online: int = 0
    idle: int = 0
    needed: int = 0

    @property
    def add(self) -> int:
        """How many more are needed."""
        return max(0, self.needed - self.online)

    @property
    def remove(self) -> int:
        """How many idle ones are not needed."""
        return min(self.idle, max(0, self.online - self.needed))


class WorkerType(msgspec.Struct):
    """Workers of about the same size with the same capabilities and queues."""

    machine: MachineClass
    capacity: Resources
    """Least capacity of any of them."""
    workers: WorkerCount
    load: float = 0.0
    """Number of workers kept busy by the jobs that go there first."""


class PlacedShape(msgspec.Struct):
    """Jobs of one shape, and the type of worker that would run them."""

    shape: ShapeBacklog
    worker_type: WorkerType | None
    """None: no known worker could run it, nor would more of them help."""
    per_worker: int
    """How many such jobs fit on one worker; 0 if none could run."""

    @property
    def load(self) -> float:
        """Number of workers that it would keep busy."""
        return self.shape.slots / self.per_worker if self.per_worker else 0.0

    @property
    def stranded(self) -> int:
        """Jobs that no known worker could run."""
        return 0 if self.per_worker else self.shape.jobs


class QueueDemand(msgspec.Struct):
    """Demand of one queue, and how many workers it would need by itself."""

    name: str
    paused: bool
    shapes: list[PlacedShape]
    workers: WorkerCount


class Demand(msgspec.Struct):
    """Demand of the cell: workers needed to clear the backlog in time."""

    at: Instant
    target_ms: Millis
    queues: list[QueueDemand]
    worker_types: list[WorkerType]
    workers: WorkerCount


def demand(t: SchedulerState, target_ms: Millis, size: Resources | None, now: Instant) -> Demand:
    """Demand of the cell: workers needed to clear all that waits within the target.

    `size` is that of workers to be added; None: workers like the known ones.
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
    placed = [_place(shape, worker_types, size) for shape in shapes]
    for one in placed:
        if one.worker_type is not None:
            one.worker_type.load += one.load
    for worker_type in worker_types:
        worker_type.workers.needed = _workers(worker_type.load)
    unplaced = _workers(sum(one.load for one in placed if one.worker_type is None))
    count = _summed(worker_types)
    count.needed += unplaced
    queues = [_queue(t.queues[name], placed, worker_types) for name in sorted(t.queues)]
    return Demand(now, target_ms, queues, worker_types, count)


def _workers(load: float) -> int:
    return ceil(load - 1e-9)  # the sum of parts of a whole may be a little more than it


# Limits on what may run


def _slots_left(limit: int | None, shapes: Iterable[ShapeBacklog]) -> float:
    """Slots that a limit leaves to jobs that do not run yet."""
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
        # Starts per second, times the run time, is the number that ever runs at once.
        starts_per_s = queue.rate_limit.count * 1000 / queue.rate_limit.per_ms
        mean_s = sum(shape.work for shape in mine) / jobs / 1000
        left = min(left, max(1.0, starts_per_s * mean_s))
    return left


def _cap(left: float, shapes: list[ShapeBacklog]) -> None:
    wanted = sum(shape.wanted_slots for shape in shapes)
    if wanted > left:
        for shape in shapes:
            shape.wanted_slots *= left / wanted


# Worker types


def _worker_types(t: SchedulerState) -> list[WorkerType]:
    """Types of online workers; if there are none, of those that were online within the last day."""
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
    """Size of a machine: those of one type differ in free disk, and a little in memory."""
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
    """Chooses the worker type where such a job would go first, by the score of placement."""
    needs = shape.needs
    able = [
        worker_type
        for worker_type in worker_types
        if not infeasible_reasons(shape.queue, needs, worker_type.machine)
    ]
    if size is not None and able and able[0] is worker_types[0]:
        able = able[:1]  # the workers to be added, if they could run it
    if not able:
        # If no worker was ever known, one for each job is as good a guess as any.
        return PlacedShape(shape, None, 0 if worker_types else 1)
    best = min(
        able,
        key=lambda worker_type: score(needs.resources, worker_type.machine, worker_type.capacity),
    )
    return PlacedShape(shape, best, max(1, _how_many(needs, best.capacity)))


def _how_many(needs: Needs, capacity: Resources) -> int:
    there = dict(amounts(capacity))
    asked = [(kind, amount) for kind, amount in amounts(needs.resources) if amount > 0]
    return min((there.get(kind, 0) // amount for kind, amount in asked), default=1)


def _summed(worker_types: Iterable[WorkerType]) -> WorkerCount:
    count = WorkerCount()
    for worker_type in worker_types:
        count.online += worker_type.workers.online
        count.idle += worker_type.workers.idle
        count.needed += worker_type.workers.needed
    return count


def _queue(
    entry: QueueEntry, placed: list[PlacedShape], worker_types: list[WorkerType]
) -> QueueDemand:
    """Demand of one queue: the workers that serve it, and how many it would need by itself."""
    name = entry.queue.name
    mine = [one for one in placed if one.shape.queue == name]
    serving = [k for k in worker_types if k.machine.queues is None or name in k.machine.queues]
    count = _summed(serving)
    count.needed = _workers(sum(one.load for one in mine))
    return QueueDemand(name, entry.queue.paused, mine, count)
