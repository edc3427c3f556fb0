"""The conservative plan: every job in order has a place and a time, and nobody delays another.

The plan is kept from pass to pass. Each pass takes the jobs in order and moves each to the earliest
place that the others leave free, which is never later than the one it had, as long as nobody runs
longer than expected. A job whose time has come starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

from rota.core.limits import PLANNED_MAX, RESERVE_LOOK
from rota.core.memory.cells import NO_CLASS, JobEntry, OrderKey, WorkerEntry
from rota.core.model import Instant, WorkerId
from rota.core.order.ordering import is_spill_marker
from rota.core.plan.gang_places import find_gang_workers
from rota.core.plan.profile import Availability, PlannedUse
from rota.core.plan.reserving import NEVER, Candidate, Reservations
from rota.core.records.policy import OrderKind
from rota.core.resources import fits
from rota.core.tables import SchedulerState


class ConservativePlan:
    """One pass over the plan."""

    def __init__(self, t: SchedulerState, now: Instant) -> None:
        self._t = t
        self._now = now
        self._reservations = Reservations(t, now)
        self._profiles: dict[WorkerId, Availability] = {}
        self._planned: dict[WorkerId, list[PlannedUse]] = {}
        """What was planned before this pass, for profiles that are not made yet."""
        entries = nsmallest(PLANNED_MAX, self._waiting())
        # One that left a line and came back to the same place stands there twice.
        self._jobs = [t.jobs[job_id] for job_id in dict.fromkeys(key[2] for _, key in entries)]
        kept = {job.id: None for job in self._jobs}
        t.conservative_plan = {
            job_id: place for job_id, place in t.conservative_plan.items() if job_id in kept
        }
        for job in self._jobs:
            self._enter(job)

    def _waiting(self) -> Iterator[tuple[int, OrderKey]]:
        t = self._t
        by_queue = t.policy.order is OrderKind.PRIORITY
        for job_class in t.ready_queue.classes:
            if t.blocked_classes & job_class.bit or not t.ready_queue.ready & job_class.bit:
                continue
            if not t.fleet.machines_for(job_class).machine_classes:
                continue
            rank = -job_class.queue.queue.priority if by_queue else 0
            for line in job_class.class_queues.values():
                party = t.ready_queue.order.account(line.tenant, job_class.queue)
                for entry in line.jobs if party.ready & job_class.bit else ():
                    if not is_spill_marker(entry) and t.ready_queue.is_current(entry, line):
                        yield rank, entry

    def _profile(self, worker_id: WorkerId) -> Availability:
        profile = self._profiles.get(worker_id)
        if profile is None:
            worker = self._t.fleet.workers[worker_id]
            self._reservations.extend_overdue(worker)
            planned = self._planned.pop(worker_id, ())
            profile = self._profiles[worker_id] = Availability(worker, self._now, planned)
        return profile

    def _enter(self, job: JobEntry) -> None:
        """The place a job had stays taken; one that has passed is now."""
        place = self._t.conservative_plan.get(job.id)
        if place is None:
            return
        if not self._t.fleet.is_online(place[0]):
            del self._t.conservative_plan[job.id]
            return
        start = max(self._now, place[1])
        self._t.conservative_plan[job.id] = (place[0], start)
        stay = (start, start + job.estimate, job.spec.terms.needs.resources)
        self._planned.setdefault(place[0], []).append(stay)

    def candidates(self) -> Iterator[Candidate]:
        """Jobs whose time is now, in order; each has started when the next is asked for."""
        for job in self._jobs:
            if job.class_index == NO_CLASS:
                continue  # an array that went before it has taken its slot of their key
            if job.spec.terms.needs.copies > 1:
                yield from self._gang(job)
                continue
            while (worker := self._replan(job)) is not None and self._fits_now(worker, job):
                yield Candidate(job, worker)
                if job.class_index == NO_CLASS:
                    break
                # An array: what its member took stays taken, and the next one is planned for.
                del self._t.conservative_plan[job.id]

    def _fits_now(self, worker: WorkerEntry, job: JobEntry) -> bool:
        is_open = worker.worker.id in self._t.fleet.open
        return is_open and fits(job.spec.terms.needs.resources, worker.free)

    def _gang(self, job: JobEntry) -> Iterator[Candidate]:
        """A gang starts if all of it fits beside the plan, or else has its places kept in it."""
        t, needs = self._t, job.spec.terms.needs.resources
        job_class = t.ready_queue.classes[job.class_index]

        def may(worker: WorkerEntry) -> bool:
            profile = self._profile(worker.worker.id)
            return profile.earliest(needs, job.estimate) <= self._now

        found = find_gang_workers(t, job_class, job.order_key(), may)
        if found:
            for worker in found:
                self._profile(worker.worker.id).take(self._now, job.estimate, needs)
            yield Candidate(job, found[0])
            return
        if self._reservations.reserve(job_class, job.id) is None:
            return
        for place in self._reservations.by_worker.values():
            for _ in range(place.copies if place.job_id == job.id else 0):
                self._profile(place.worker_id).take(place.at, job.estimate, needs)

    def _replan(self, job: JobEntry) -> WorkerEntry | None:
        """Moves the job to its earliest place; the worker, if that is now."""
        t, needs = self._t, job.spec.terms.needs.resources
        before = t.conservative_plan.get(job.id)
        best = self._earliest(job, before)
        if best is None:
            return None
        if before is not None:
            self._profile(before[0]).give(before[1], job.estimate, needs)
        start, worker_id = best
        t.conservative_plan[job.id] = (worker_id, start)
        self._profile(worker_id).take(start, job.estimate, needs)
        return t.fleet.workers[worker_id] if start <= self._now else None

    def _earliest(
        self, job: JobEntry, before: tuple[WorkerId, Instant] | None
    ) -> tuple[Instant, WorkerId] | None:
        """Its earliest place, or the one it has if its time has come; None: there is no earlier."""
        needs, best = job.spec.terms.needs.resources, None
        if before is not None:
            start = self._profile(before[0]).earlier(needs, job.estimate, before[1])
            if start is not None or before[1] <= self._now:
                best = (before[1] if start is None else start, before[0])
        for worker_id in self._workers_for(job):
            if before is not None and worker_id == before[0]:
                continue
            start = self._profile(worker_id).earliest(needs, job.estimate)
            if start < (NEVER if before is None else before[1]) and (
                best is None or start < best[0]
            ):
                best = (start, worker_id)
        return best

    def _workers_for(self, job: JobEntry) -> Iterator[WorkerId]:
        job_class = self._t.ready_queue.classes[job.class_index]
        kinds = self._t.fleet.machines_for(job_class).machine_classes
        able = (worker_id for machine in kinds for worker_id in machine.workers)
        there = (one for one in able if self._t.fleet.is_online(one))
        liked = self._t.affinity.sorted(job, there) if job_class.has_preference else there
        yield from islice(liked, RESERVE_LOOK)
