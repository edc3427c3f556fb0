"""Places kept for jobs that do not fit yet: where and when each can start at the earliest.

A reservation is a worker and a time. Only that worker is restricted: another job may start there
if it will have ended by then, or fits beside what is reserved. All other workers run on freely.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from rota.core.cells import NO_CLASS, MachineClass, WorkerCell
from rota.core.executions import outlive
from rota.core.limits import RESERVE_LOOK, RESERVED_MAX
from rota.core.model import Instant, JobId, Resources, WorkerId, WorkerState
from rota.core.party import JobClass
from rota.core.places import Place, Reservation
from rota.core.resources import fits, plus
from rota.core.tables import Tables


class Reservations:
    """The places reserved in one pass over what waits."""

    def __init__(self, t: Tables, now: Instant) -> None:
        self._t = t
        self._now = now
        self.by_worker: dict[WorkerId, Reservation] = {}
        for worker_id in list(t.cleared):
            self._keep_cleared(worker_id)

    def _keep_cleared(self, worker_id: WorkerId) -> None:
        """A worker where others were stopped for a job is kept for it, as long as it waits."""
        t = self._t
        job = t.jobs.get(t.cleared[worker_id])
        if job is None or job.class_index == NO_CLASS or not self.is_there(worker_id):
            del t.cleared[worker_id]
            return
        worker, job_class = t.fleet.workers[worker_id], t.lines.classes[job.class_index]
        at, room = earliest(worker, job_class.needs.resources, self._now)
        self.by_worker[worker_id] = Reservation((worker_id, at, room), job_class, job.id)

    def able(self, job_class: JobClass) -> list[MachineClass]:
        """The kinds of workers that could run such a job, and of which one is there."""
        fleet = self._t.fleet
        return [
            machine
            for machine in fleet.machines.values()
            if machine.workers
            and fleet.able(machine) & job_class.bit
            and any(self.is_there(worker_id) for worker_id in machine.workers)
        ]

    def is_there(self, worker_id: WorkerId) -> bool:
        """Whether the worker takes work."""
        worker = self._t.fleet.workers.get(worker_id)
        return worker is not None and worker.worker.state is WorkerState.ONLINE

    def reserve(
        self, job_class: JobClass, job_id: JobId, machines: list[MachineClass]
    ) -> Reservation | None:
        """The earliest place for the first job of a class; None: all that could are taken.

        A place that was found in an earlier pass is kept, unless a worker that waits is earlier.
        """
        if len(self.by_worker) >= RESERVED_MAX:
            return None
        needs = job_class.needs.resources
        best: Place | None = None
        for worker in self._candidates(job_class, job_id, machines):
            self.mind_outlived(worker)
            at, room = earliest(worker, needs, self._now)
            if best is None or at < best[1]:
                best = (worker.worker.id, at, room)
                if at <= self._now:
                    break
        if best is None:
            return None
        reservation = self.by_worker[best[0]] = Reservation(best, job_class, job_id)
        self._t.places[job_class.index] = reservation
        return reservation

    def _candidates(
        self, job_class: JobClass, job_id: JobId, machines: list[MachineClass]
    ) -> Iterator[WorkerCell]:
        fleet = self._t.fleet
        kept = self._t.places.get(job_class.index)
        known = fleet.workers.get(kept.worker_id) if kept and kept.job_id == job_id else None
        indexes = [machine.index for machine in machines]
        is_known = known is not None and known.machine.index in indexes and self._may_use(known)
        if known is not None and is_known:
            yield known
        waiting = islice(fleet.open.values(), RESERVE_LOOK)
        yield from (w for w in waiting if w.machine.index in indexes and self._may_use(w))
        if is_known:
            return
        others = chain.from_iterable(machine.workers for machine in machines)
        for worker_id in islice(others, RESERVE_LOOK):
            if self._may_use(fleet.workers[worker_id]):
                yield fleet.workers[worker_id]

    def _may_use(self, worker: WorkerCell) -> bool:
        is_there = worker.worker.state is WorkerState.ONLINE
        return is_there and worker.worker.id not in self.by_worker

    def mind_outlived(self, worker: WorkerCell) -> None:
        """What runs longer than was thought gets another end."""
        while worker.ends and worker.ends[0][0] <= self._now:
            outlive(self._t, self._t.executions[worker.ends[0][1]], self._now)


def earliest(worker: WorkerCell, needs: Resources, now: Instant) -> tuple[Instant, Resources]:
    """When the worker will have room for this, and how much it will have free then.

    The worker could run it when empty, so the time comes by the last of the ends at the latest.
    """
    free = worker.free
    if fits(needs, free):
        return now, free
    ends, held = worker.ends, worker.held
    cpu, memory, storage, gpu = free.cpu_milli, free.memory, free.storage, free.gpu_milli
    at, index = now, 0
    while index < len(ends):
        at = ends[index][0]
        while index < len(ends) and ends[index][0] == at:
            amount = held[ends[index][1]]
            cpu += amount.cpu_milli
            memory += amount.memory
            storage += amount.storage
            gpu += amount.gpu_milli
            if amount.custom:
                free = plus(free, Resources(custom=amount.custom))
            index += 1
        room = Resources(cpu, memory, storage, gpu, free.custom)
        if fits(needs, room):
            return at, room
    return at, Resources(cpu, memory, storage, gpu, free.custom)
