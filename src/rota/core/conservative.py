"""The conservative plan: every job in order has a place and a time, and nobody delays another.

The plan is kept from pass to pass. Each pass takes the jobs in order and moves each to the earliest
place that the others leave free, which is never later than the one it had, as long as nobody runs
longer than expected. A job whose time has come starts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

from rota.core.backfill import Candidate
from rota.core.cells import JobCell, LineKey, WorkerCell
from rota.core.limits import PLANNED_MAX, RESERVE_LOOK
from rota.core.model import Instant, Millis, Resources, WorkerId
from rota.core.ordering import is_mark
from rota.core.policy import OrderKind
from rota.core.reserving import Reservations
from rota.core.resources import fits, minus, plus
from rota.core.tables import Tables


class Profile:
    """How much of one worker is free from when to when."""

    def __init__(self, worker: WorkerCell, now: Instant) -> None:
        self._times = [now]
        self._free = [worker.free]
        for at, execution_id in worker.ends:
            free = plus(self._free[-1], worker.held[execution_id])
            if at <= self._times[-1]:
                self._free[-1] = free
            else:
                self._times.append(at)
                self._free.append(free)

    def earliest(self, needs: Resources, length: Millis) -> Instant:
        """The first time from which on there is room for so long."""
        start, times = 0, self._times
        while True:
            end = times[start] + length
            clash = next(
                (
                    index
                    for index in range(start, len(times))
                    if times[index] < end and not fits(needs, self._free[index])
                ),
                None,
            )
            if clash is None:
                return times[start]
            start = clash + 1
            assert start < len(times), "a worker that could run it has room in the end"

    def take(self, start: Instant, length: Millis, needs: Resources) -> None:
        """So much is taken from then on for so long."""
        self._change(start, start + length, needs, taken=True)

    def give(self, start: Instant, length: Millis, needs: Resources) -> None:
        """What was taken is free again."""
        self._change(start, start + length, needs, taken=False)

    def _change(self, start: Instant, end: Instant, needs: Resources, *, taken: bool) -> None:
        first, last = self._split(start), self._split(end)
        for index in range(first, last):
            free = self._free[index]
            self._free[index] = minus(free, needs) if taken else plus(free, needs)

    def _split(self, at: Instant) -> int:
        """The index of the stretch that begins at this time."""
        index = bisect_right(self._times, at) - 1
        if self._times[index] != at:
            index += 1
            self._times.insert(index, at)
            self._free.insert(index, self._free[index - 1])
        return index


class Plan:
    """One pass over the plan."""

    def __init__(self, t: Tables, now: Instant) -> None:
        self._t = t
        self._now = now
        self._reservations = Reservations(t, now)
        self._profiles: dict[WorkerId, Profile] = {}
        entries = nsmallest(PLANNED_MAX, self._waiting())
        self._jobs = [t.jobs[key[2]] for _, key in entries]
        kept = {job.id: None for job in self._jobs}
        t.plan = {job_id: place for job_id, place in t.plan.items() if job_id in kept}
        for job in self._jobs:
            self._enter(job)

    def _waiting(self) -> Iterator[tuple[int, LineKey]]:
        t = self._t
        by_queue = t.policy.order is OrderKind.PRIORITY
        for job_class in t.lines.classes:
            if t.parked & job_class.bit or not t.lines.ready & job_class.bit:
                continue
            if not self._reservations.able(job_class):
                continue
            rank = -job_class.queue.queue.priority if by_queue else 0
            for line in job_class.lines.values():
                party = t.lines.order.party(line.tenant, job_class.queue)
                for entry in line.heap if party.ready & job_class.bit else ():
                    if not is_mark(entry) and t.lines.stands(entry, line):
                        yield rank, entry

    def _profile(self, worker_id: WorkerId) -> Profile:
        profile = self._profiles.get(worker_id)
        if profile is None:
            worker = self._t.fleet.workers[worker_id]
            self._reservations.mind_outlived(worker)
            profile = self._profiles[worker_id] = Profile(worker, self._now)
        return profile

    def _enter(self, job: JobCell) -> None:
        """The place a job had is taken in the worker's profile; one that has passed is now."""
        place = self._t.plan.get(job.id)
        if place is None:
            return
        if not self._reservations.is_there(place[0]):
            del self._t.plan[job.id]
            return
        start = max(self._now, place[1])
        self._t.plan[job.id] = (place[0], start)
        self._profile(place[0]).take(start, job.estimate, job.spec.terms.needs.resources)

    def candidates(self) -> Iterator[Candidate]:
        """Jobs whose time is now, in order; each has started when the next is asked for."""
        for job in self._jobs:
            worker = self._replan(job)
            if (
                worker is not None
                and worker.worker.id in self._t.fleet.open
                and fits(job.spec.terms.needs.resources, worker.free)
            ):
                yield Candidate(job.line_key(), job.estimate, worker)

    def _replan(self, job: JobCell) -> WorkerCell | None:
        """Moves the job to its earliest place; the worker, if that is now."""
        t, needs = self._t, job.spec.terms.needs.resources
        before = t.plan.pop(job.id, None)
        if before is not None:
            self._profile(before[0]).give(before[1], job.estimate, needs)
        best: tuple[Instant, WorkerId] | None = None
        for worker_id in self._workers_for(job, before):
            start = self._profile(worker_id).earliest(needs, job.estimate)
            if best is None or start < best[0]:
                best = (start, worker_id)
        if best is None:
            return None
        start, worker_id = best
        t.plan[job.id] = (worker_id, start)
        self._profile(worker_id).take(start, job.estimate, needs)
        return t.fleet.workers[worker_id] if start <= self._now else None

    def _workers_for(
        self, job: JobCell, before: tuple[WorkerId, Instant] | None
    ) -> Iterator[WorkerId]:
        if before is not None:
            yield before[0]
        job_class = self._t.lines.classes[job.class_index]
        machines = self._reservations.able(job_class)
        able = (worker_id for machine in machines for worker_id in machine.workers)
        there = (one for one in able if self._reservations.is_there(one))
        yield from islice(there, RESERVE_LOOK)
