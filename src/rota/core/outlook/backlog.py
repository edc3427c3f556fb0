"""How much there is to do, by shape of job: counts and sums that are kept, so nobody is looked at.

A shape is a class of jobs (one queue, the same needs), or what runs of one that nobody waits in.
"""

from __future__ import annotations

import msgspec

from rota.core.band import Array, Gang
from rota.core.memory.cells import NO_CLASS
from rota.core.model import Instant, JobId, Millis, Needs
from rota.core.order.party import ClassQueue, JobClass
from rota.core.tables import SchedulerState


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
