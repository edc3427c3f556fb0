"""Reservations of one turn: where and when jobs that do not fit yet can start at the earliest.

A reservation is a worker and a time. Only that worker is restricted: another job may start there if
it will have ended by then, or fits beside what is reserved.

Why: docs/decisions/0016-backfill-reserves-a-worker-and-a-time.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

import msgspec

from rota.core.entries import NO_CLASS, JobEntry, WorkerEntry
from rota.core.groups.placement import reserve_gang
from rota.core.jobs.start import extend_estimate
from rota.core.limits import GANG_LOOK, RESERVE_LOOK, RESERVED_MAX
from rota.core.model import Instant, JobId, Resources, WorkerId, WorkerState
from rota.core.placement.fleet import Reservation, ReservedPlace
from rota.core.ready_queue.classes import JobClass
from rota.core.resources import fits
from rota.core.state import SchedulerState

NEVER: Instant = 1 << 62
_ONLINE = WorkerState.ONLINE


class Candidate(msgspec.Struct, gc=False):
    """Candidate for a start: a job that may start now, and its worker."""

    job: JobEntry
    worker: WorkerEntry
    mask: int = 0
    """Bits of the classes among which it goes first; 0 if more was considered than order."""


class Reservations:
    """Reservations made and kept in one turn, by worker."""

    def __init__(self, t: SchedulerState, now: Instant) -> None:
        self._t = t
        self._now = now
        self.by_worker: dict[WorkerId, Reservation] = {}
        self.affected_classes = 0
        """Bits of the classes that could run on a reserved worker; only these must check."""
        for worker_id in list(t.being_preempted):
            self._keep_being_preempted(worker_id)

    def _keep_being_preempted(self, worker_id: WorkerId) -> None:
        """Keeps a worker reserved for the job for which its executions were stopped."""
        t = self._t
        job = t.jobs.get(t.being_preempted[worker_id])
        if job is None or job.class_index == NO_CLASS or not t.fleet.is_online(worker_id):
            del t.being_preempted[worker_id]
            return
        worker, job_class = t.fleet.workers[worker_id], t.ready_queue.classes[job.class_index]
        at, free = earliest_fit(worker, job_class.needs.resources, self._now)
        self._keep(Reservation((worker_id, at, free), job_class, job.id))

    def _keep(self, reservation: Reservation) -> None:
        worker = self._t.fleet.workers[reservation.worker_id]
        self.by_worker[reservation.worker_id] = reservation
        self.affected_classes |= self._t.fleet.able(worker.machine)

    def reserve(self, job_class: JobClass, job_id: JobId) -> Reservation | None:
        """Reserves an early place for the first job of a class; None: all possible workers are
        reserved.

        A reservation of an earlier turn is kept, unless an open worker is earlier.
        """
        if len(self.by_worker) >= RESERVED_MAX:
            return None
        if job_class.needs.copies > 1:
            return self._reserve_for_gang(job_class, job_id)
        reservation = self._earliest_place(job_class, self._kept_place(job_class, job_id), job_id)
        if reservation is None:
            return None
        self._keep(reservation)
        reservation.stamp = self._t.fleet.workers[reservation.worker_id].stamp
        self._t.reservations[job_class.index] = reservation
        return reservation

    def _earliest_place(
        self, job_class: JobClass, kept: Reservation | None, job_id: JobId
    ) -> Reservation | None:
        """The earliest place that the job could have, the present one included."""
        now, needs, bit, taken = self._now, job_class.needs.resources, job_class.bit, self.by_worker
        best: ReservedPlace | None = None
        before = NEVER if kept is None else kept.at
        for worker in self._candidates(job_class, kept is not None):
            record = worker.worker
            # `_may_use`, inlined: in a small fleet most turns ask it of most workers.
            if record.state is not _ONLINE or record.id in taken:
                continue
            if not worker.machine.can_mask & bit:
                continue
            ends = worker.ends
            if ends and ends[0][0] <= now:
                self.extend_overdue(worker)
            at, free = now, worker.free_capacity.free
            if not fits(needs, free):
                for at, free in worker.expected_free():
                    if at >= before or fits(needs, free):
                        break
                if at >= before:
                    continue
            best, before = (record.id, at, free), at
            if at <= now:
                break
        return kept if best is None else Reservation(best, job_class, job_id)

    def _reserve_for_gang(self, job_class: JobClass, job_id: JobId) -> Reservation | None:
        """Reserves places on several workers for one time; returns the last reservation."""
        machines = self._t.fleet.machines_for(job_class).machine_classes
        able = chain.from_iterable(machine.workers for machine in machines)
        workers = (self._t.fleet.workers[worker_id] for worker_id in able)
        usable = [
            worker for worker in islice(workers, GANG_LOOK) if self._may_use(worker, job_class)
        ]
        for worker in usable:
            self.extend_overdue(worker)
        reservations = reserve_gang(self._t, usable, (job_class, job_id), self._now)
        for reservation in reservations:
            self._keep(reservation)
            self._t.reservations[job_class.index] = reservation
        return reservations[-1] if reservations else None

    def _kept_place(self, job_class: JobClass, job_id: JobId) -> Reservation | None:
        """The job's present reservation, computed again if anything changed on its worker."""
        reservation = self._t.reservations.get(job_class.index)
        if reservation is None or reservation.job_id != job_id:
            return None
        worker = self._t.fleet.workers.get(reservation.worker_id)
        if worker is None or not self._may_use(worker, job_class):
            return None
        ends = worker.ends
        has_outlived = ends and ends[0][0] <= self._now
        # The index may belong to another class since.
        is_same = worker.stamp == reservation.stamp and reservation.job_class is job_class
        if is_same and not has_outlived:
            reservation.reset()
            return reservation
        self.extend_overdue(worker)
        at, free = earliest_fit(worker, job_class.needs.resources, self._now)
        return Reservation((reservation.worker_id, at, free), job_class, job_id)

    def _candidates(self, job_class: JobClass, has_reservation: bool) -> Iterable[WorkerEntry]:
        """Open workers; in a small fleet all able ones, unless the job has a reservation."""
        fleet = self._t.fleet
        waiting = islice(fleet.open.values(), RESERVE_LOOK)
        if has_reservation or len(fleet.workers) > RESERVE_LOOK:
            return waiting
        machines = fleet.machines_for(job_class).machine_classes
        able = chain.from_iterable(machine.workers for machine in machines)
        return chain(waiting, map(fleet.workers.__getitem__, able))

    def _may_use(self, worker: WorkerEntry, job_class: JobClass) -> bool:
        """Whether the worker could run such a job, takes work, and is not reserved."""
        return bool(
            worker.machine.can_mask & job_class.bit
            and worker.worker.state is _ONLINE
            and worker.worker.id not in self.by_worker
        )

    def extend_overdue(self, worker: WorkerEntry) -> None:
        """Moves the expected ends of executions that run longer than estimated."""
        while worker.ends and worker.ends[0][0] <= self._now:
            extend_estimate(self._t, self._t.executions[worker.ends[0][1]], self._now)


def restore_reservation(
    t: SchedulerState, job_id: JobId, worker_id: WorkerId, now: Instant
) -> None:
    """Restores the job's reservation on the worker."""
    job, worker = t.jobs.get(job_id), t.fleet.workers.get(worker_id)
    if job is not None and worker is not None and job.class_index != NO_CLASS:
        job_class = t.ready_queue.classes[job.class_index]
        at, free = earliest_fit(worker, job_class.needs.resources, now)
        t.reservations[job_class.index] = Reservation((worker_id, at, free), job_class, job_id)


def earliest_fit(worker: WorkerEntry, needs: Resources, now: Instant) -> tuple[Instant, Resources]:
    """When the worker will have enough free capacity, and how much it will have free then.

    The worker could run it when empty, so it fits after the last end at the latest.
    """
    for at, free in (found := [(now, worker.free_capacity.free), *worker.expected_free()]):
        if fits(needs, free):
            return at, free
    return found[-1]
