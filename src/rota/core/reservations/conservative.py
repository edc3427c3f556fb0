"""Conservative backfill: plans a worker and a time for every job, so that no job delays another.

The plan is kept from turn to turn. Each turn takes the jobs in order and moves each to the earliest
place that the others leave free in the availability of a worker. That is never later than the place
it had, as long as nothing runs longer than expected. A job whose time has come starts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import TypeAlias

from rota.core.entries import NO_CLASS, JobEntry, OrderKey, WorkerEntry
from rota.core.groups.placement import find_gang_workers
from rota.core.limits import PLANNED_MAX, RESERVE_LOOK
from rota.core.model import Instant, Millis, Resources, WorkerId
from rota.core.policy import OrderKind
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.reservations.reserve import NEVER, Candidate, Reservations
from rota.core.resources import fits, minus, plus
from rota.core.state import SchedulerState

PlannedUse: TypeAlias = tuple[Instant, Instant, Resources]
"""(from, until, amount)."""


class Availability:
    """Availability of a worker: periods with what is free in each; the last never ends."""

    def __init__(
        self, worker: WorkerEntry, now: Instant, planned: Iterable[PlannedUse] = ()
    ) -> None:
        changes = [(at, 1, worker.held[execution_id]) for at, execution_id in worker.ends]
        for start, end, amount in planned:
            changes += ((start, -1, amount), (end, 1, amount))
        changes.sort(key=lambda change: change[0])
        self._times = [now]
        self._free = [worker.free]
        for at, sign, amount in changes:
            if at > self._times[-1]:
                self._times.append(at)
                self._free.append(self._free[-1])
            before = self._free[-1]
            self._free[-1] = plus(before, amount) if sign > 0 else minus(before, amount)

    def earliest(self, needs: Resources, length: Millis) -> Instant:
        """Earliest time from which on the needs fit for this length."""
        times, begin = self._times, self._times[0]
        for index, free in enumerate(self._free):
            if not fits(needs, free):
                begin = -1
                continue
            if begin < 0:
                begin = times[index]
            if index + 1 == len(times) or times[index + 1] >= begin + length:
                return begin
        raise AssertionError("a worker that could run it has the capacity in the end")

    def earlier(self, needs: Resources, length: Millis, than: Instant) -> Instant | None:
        """Earliest time before `than`, for a job whose planned use was given back; None: not before
        it.

        From `than` on it always fits, because its own use is not counted.
        """
        times, begin = self._times, -1
        for index, free in enumerate(self._free):
            if times[index] >= than:
                break
            if not fits(needs, free):
                begin = -1
                continue
            if begin < 0:
                begin = times[index]
            if index + 1 == len(times) or times[index + 1] >= min(begin + length, than):
                return begin
        return None

    def take(self, start: Instant, length: Millis, needs: Resources) -> None:
        self._change(start, start + length, needs, taken=True)

    def give(self, start: Instant, length: Millis, needs: Resources) -> None:
        self._change(start, start + length, needs, taken=False)

    def _change(self, start: Instant, end: Instant, needs: Resources, *, taken: bool) -> None:
        first, last = self._split(start), self._split(end)
        for index in range(first, last):
            free = self._free[index]
            self._free[index] = minus(free, needs) if taken else plus(free, needs)

    def _split(self, at: Instant) -> int:
        """Index of the period that begins at this time; splits one if necessary."""
        index = bisect_right(self._times, at) - 1
        if self._times[index] != at:
            index += 1
            self._times.insert(index, at)
            self._free.insert(index, self._free[index - 1])
        return index


class ConservativePlan:
    """Conservative plan of one turn: moves jobs to earlier places and yields those that start."""

    def __init__(self, t: SchedulerState, now: Instant) -> None:
        self._t = t
        self._now = now
        self._reservations = Reservations(t, now)
        self._availabilities: dict[WorkerId, Availability] = {}
        self._planned: dict[WorkerId, list[PlannedUse]] = {}
        """Use planned before this turn, for workers whose availability is not computed yet."""
        entries = nsmallest(PLANNED_MAX, self._waiting())
        # A job that left a queue and came back to the same place has two keys there.
        self._jobs = [t.jobs[job_id] for job_id in dict.fromkeys(key[2] for _, key in entries)]
        kept = {job.id: None for job in self._jobs}
        t.conservative_plan = {
            job_id: place for job_id, place in t.conservative_plan.items() if job_id in kept
        }
        for job in self._jobs:
            self._keep_place(job)

    def _waiting(self) -> Iterator[tuple[int, OrderKey]]:
        t = self._t
        by_queue = t.policy.order is OrderKind.PRIORITY
        for job_class in t.ready_queue.classes:
            if t.blocked_classes & job_class.bit or not t.ready_queue.ready & job_class.bit:
                continue
            if not t.fleet.machines_for(job_class).machine_classes:
                continue
            rank = -job_class.queue.queue.priority if by_queue else 0
            for class_queue in job_class.class_queues.values():
                account = t.ready_queue.order.account(class_queue.tenant, job_class.queue)
                for entry in class_queue.jobs if account.ready & job_class.bit else ():
                    if not is_spill_marker(entry) and t.ready_queue.is_current(entry, class_queue):
                        yield rank, entry

    def _availability_of(self, worker_id: WorkerId) -> Availability:
        availability = self._availabilities.get(worker_id)
        if availability is None:
            worker = self._t.fleet.workers[worker_id]
            self._reservations.extend_overdue(worker)
            planned = self._planned.pop(worker_id, ())
            availability = self._availabilities[worker_id] = Availability(
                worker, self._now, planned
            )
        return availability

    def _keep_place(self, job: JobEntry) -> None:
        """Keeps the place that the job had; one in the past begins now."""
        planned = self._t.conservative_plan.get(job.id)
        if planned is None:
            return
        if not self._t.fleet.is_online(planned[0]):
            del self._t.conservative_plan[job.id]
            return
        start = max(self._now, planned[1])
        self._t.conservative_plan[job.id] = (planned[0], start)
        use = (start, start + job.estimate, job.spec.terms.needs.resources)
        self._planned.setdefault(planned[0], []).append(use)

    def candidates(self) -> Iterator[Candidate]:
        """Jobs whose time is now, in order; each has started when the next is asked for."""
        for job in self._jobs:
            if job.class_index == NO_CLASS:
                continue  # an array before it has taken its slot of their concurrency key
            if job.spec.terms.needs.copies > 1:
                yield from self._plan_gang(job)
                continue
            while (worker := self._replan(job)) is not None and self._fits_now(worker, job):
                yield Candidate(job, worker)
                if job.class_index == NO_CLASS:
                    break
                # An array: the use of its member stays, and the next member is planned.
                del self._t.conservative_plan[job.id]

    def _fits_now(self, worker: WorkerEntry, job: JobEntry) -> bool:
        is_open = worker.worker.id in self._t.fleet.open
        return is_open and fits(job.spec.terms.needs.resources, worker.free)

    def _plan_gang(self, job: JobEntry) -> Iterator[Candidate]:
        """Starts a gang if all of it fits beside the plan, else reserves its places."""
        t, needs = self._t, job.spec.terms.needs.resources
        job_class = t.ready_queue.classes[job.class_index]

        def may(worker: WorkerEntry) -> bool:
            availability = self._availability_of(worker.worker.id)
            return availability.earliest(needs, job.estimate) <= self._now

        found = find_gang_workers(t, job_class, job.order_key(), may)
        if found:
            for worker in found:
                self._availability_of(worker.worker.id).take(self._now, job.estimate, needs)
            yield Candidate(job, found[0])
            return
        if self._reservations.reserve(job_class, job.id) is None:
            return
        for reservation in self._reservations.by_worker.values():
            for _ in range(reservation.copies if reservation.job_id == job.id else 0):
                self._availability_of(reservation.worker_id).take(
                    reservation.at, job.estimate, needs
                )

    def _replan(self, job: JobEntry) -> WorkerEntry | None:
        """Moves the job to its earliest place; returns the worker if that is now."""
        t, needs = self._t, job.spec.terms.needs.resources
        before = t.conservative_plan.get(job.id)
        best = self._earliest(job, before)
        if best is None:
            return None
        if before is not None:
            self._availability_of(before[0]).give(before[1], job.estimate, needs)
        start, worker_id = best
        t.conservative_plan[job.id] = (worker_id, start)
        self._availability_of(worker_id).take(start, job.estimate, needs)
        return t.fleet.workers[worker_id] if start <= self._now else None

    def _earliest(
        self, job: JobEntry, before: tuple[WorkerId, Instant] | None
    ) -> tuple[Instant, WorkerId] | None:
        """Earliest place, or the present one if its time has come; None: no earlier one."""
        needs, best = job.spec.terms.needs.resources, None
        if before is not None:
            start = self._availability_of(before[0]).earlier(needs, job.estimate, before[1])
            if start is not None or before[1] <= self._now:
                best = (before[1] if start is None else start, before[0])
        for worker_id in self._workers_for(job):
            if before is not None and worker_id == before[0]:
                continue
            start = self._availability_of(worker_id).earliest(needs, job.estimate)
            if start < (NEVER if before is None else before[1]) and (
                best is None or start < best[0]
            ):
                best = (start, worker_id)
        return best

    def _workers_for(self, job: JobEntry) -> Iterator[WorkerId]:
        job_class = self._t.ready_queue.classes[job.class_index]
        machines = self._t.fleet.machines_for(job_class).machine_classes
        able = (worker_id for machine in machines for worker_id in machine.workers)
        online = (one for one in able if self._t.fleet.is_online(one))
        preferred = self._t.affinity.sorted(job, online) if job_class.has_preference else online
        yield from islice(preferred, RESERVE_LOOK)
