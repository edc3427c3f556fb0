"""Gang placement: finds capacity for all members at once, now or as early as possible.

Members may share a worker. A reservation for a gang is a set of workers and one time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from rota.core.entries import GroupEntry, OrderKey, WorkerEntry
from rota.core.limits import GANG_HOLD_MS, GANG_LOOK
from rota.core.model import Instant, JobId, Resources
from rota.core.placement.feasibility import score
from rota.core.placement.fleet import Reservation, WorkerFilter
from rota.core.ready_queue.classes import ClassQueue, JobClass
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.resources import amounts, minus, plus
from rota.core.state import SchedulerState


def pick_worker(
    t: SchedulerState,
    class_queue: ClassQueue,
    now: Instant,
    may: WorkerFilter | None = None,
    key: OrderKey | None = None,
) -> WorkerEntry | None:
    """Worker for the head of a class queue or the job with this key; a gang's first one."""
    if class_queue.job_class.needs.copies == 1:
        return t.affinity.pick(class_queue, now, may, key)
    found = find_gang_workers(t, class_queue.job_class, key or t.ready_queue.head(class_queue), may)
    return found[0] if found else None


def find_gang_workers(
    t: SchedulerState, job_class: JobClass, key: OrderKey, may: WorkerFilter | None = None
) -> list[WorkerEntry]:
    """A worker for each member of the gang, by index; empty: they do not fit now.

    Workers that hold the most members come first, so that a gang is on few machines.
    """
    assert not is_spill_marker(key), "a gang is never spilled"
    size, job = job_class.needs.copies, t.jobs[key[2]]
    if starts_left(t, job_class) < size:
        return []
    candidates = []
    for worker in t.fleet.open.values():
        if t.fleet.fitting(worker) & job_class.bit and (may is None or may(worker)):
            count = _copies_now(worker, job_class.needs.resources)
            fit = score(job_class.needs.resources, worker.machine, worker.free)
            candidates.append(
                (t.affinity.soft_affinity(job, worker), -count, fit, worker.rank, worker)
            )
    candidates.sort(key=lambda one: one[:4])
    places: list[WorkerEntry] = []
    for _, count, _, _, worker in candidates:
        places += [worker] * min(-count, size - len(places))
    if len(places) < size:
        return []
    t.groups.entries[job.id].places = [worker.worker.id for worker in places]
    return places


def _copies_now(worker: WorkerEntry, needs: Resources) -> int:
    assert worker.poll is not None
    return min(worker.poll.free_slots, copies_in(needs, worker.free))


def copies_in(needs: Resources, free: Resources) -> int:
    """How many times the needs fit into the free capacity."""
    available = dict(amounts(free))
    counts = (available.get(kind, 0) // amount for kind, amount in amounts(needs) if amount)
    return max(0, min(counts, default=GANG_LOOK))


def starts_left(t: SchedulerState, job_class: JobClass) -> int:
    """How many more executions the limits of the queue and of the cell allow."""
    queue, limits = job_class.queue, [GANG_LOOK]
    if queue.queue.max_workers is not None:
        limits.append(queue.queue.max_workers - queue.running)
    if t.policy.max_running is not None:
        limits.append(t.policy.max_running - len(t.executions))
    return min(limits)


def reserve_gang(
    t: SchedulerState, workers: Iterable[WorkerEntry], gang: tuple[JobClass, JobId], now: Instant
) -> list[Reservation]:
    """Reserves the earliest set of workers on which the whole gang fits; empty: these are too few.

    A reservation that stays idle for too long, because a worker does not poll, is released for a
    while: nothing else could use the capacity meanwhile.
    """
    job_class, job_id = gang
    needs, size = job_class.needs.resources, job_class.needs.copies
    looked_at = list(islice(workers, GANG_LOOK))
    at = _earliest(looked_at, job_class, now)
    if at is None or _is_hold_over(t.groups.entries[job_id], at, now):
        return []
    candidates = [(_free_at(worker, at), worker) for worker in looked_at]
    candidates.sort(key=lambda one: (-copies_in(needs, one[0]), one[1].rank))
    reservations: list[Reservation] = []
    left = size
    for free, worker in candidates:
        count = min(left, copies_in(needs, free))
        for _ in range(count - 1):
            free = minus(free, needs)
        if count:
            reservation = Reservation((worker.worker.id, at, free), job_class, job_id)
            reservation.copies = count
            reservations.append(reservation)
        left -= count
    assert not left, "they fit at the time that was found"
    return reservations


def _earliest(workers: list[WorkerEntry], job_class: JobClass, now: Instant) -> Instant | None:
    """When the whole gang will fit, by the expected ends of what the workers run."""
    needs, size = job_class.needs.resources, job_class.needs.copies
    gains: list[tuple[Instant, int]] = []
    for worker in workers:
        free, had = worker.free, copies_in(needs, worker.free)
        gains.append((now, had))
        for ends_at, execution_id in worker.ends:
            free = plus(free, worker.held[execution_id])
            count = copies_in(needs, free)
            gains.append((ends_at, count - had))
            had = count
    total = 0
    for at, more in sorted(gains):
        total += more
        if total >= size:
            return max(now, at)
    return None


def _free_at(worker: WorkerEntry, at: Instant) -> Resources:
    free = worker.free
    for ends_at, execution_id in worker.ends:
        if ends_at <= at:
            free = plus(free, worker.held[execution_id])
    return free


def _is_hold_over(group: GroupEntry, at: Instant, now: Instant) -> bool:
    """Whether its reservation was idle too long; then others get as much time without it."""
    if at > now:
        group.idle_since = None
        return False
    if group.idle_since is None or now - group.idle_since >= 2 * GANG_HOLD_MS:
        group.idle_since = now
    return now - group.idle_since >= GANG_HOLD_MS
