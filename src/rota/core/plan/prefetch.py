"""Chooses jobs to prefetch: a worker holds short jobs that begin when another ends there.

A worker with room for two short jobs would otherwise wait for a round trip after each of them. So
it may hold a few more, each behind one that it runs, whose place it takes (life/prefetched.py).
Without this, functions of a millisecond run at less than half the rate
(docs/decisions/0013-prefetch-of-short-jobs.md).

Only what is known to be short is prefetched, only behind what is, and only the job that goes next
on that worker anyway, when no other has room for it. What makes a choice of its place (gangs,
affinity), stands for many, may be stopped for others or must not start twice waits for its turn.
Whatever is prefetched is charged to its queue, key and tenant like any other execution.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from rota.core.limits import PREFETCH_CHAIN, PREFETCH_MS, SHORT_MS
from rota.core.memory.cells import ExecutionCell, JobCell, WorkerCell
from rota.core.model import (
    ExecutionId,
    Instant,
    Millis,
    Resources,
    Semantics,
    Terms,
    WorkerId,
)
from rota.core.order.ordering import is_mark
from rota.core.resources import fits
from rota.core.tables import Tables


class Place(NamedTuple):
    """A place on a worker, and what is to be done there already; the least of that goes first."""

    work: Millis
    orders: int
    """Prefetched."""
    last: ExecutionId
    """The one behind which the next would wait."""
    room: Resources


class PrefetchChoice(NamedTuple):
    """A job to prefetch, and where."""

    job: JobCell
    worker: WorkerCell
    place: Place


class Prefetch:
    """Prefetches jobs at the end of one turn."""

    def __init__(self, t: Tables, now: Instant) -> None:
        self._t = t
        self._now = now
        self._places: dict[WorkerId, list[Place]] = {}

    def next(self) -> PrefetchChoice | None:
        """The next, each worker in turn; None: nothing more can be prefetched now.

        A worker that is of no use is not looked at again before its next poll.
        """
        t, spare = self._t, self._t.fleet.spare
        while spare and t.lines.ready & ~t.parked:
            worker_id = next(iter(spare))
            worker = t.fleet.workers[worker_id]
            job = self._job_for(worker)
            place = None if job is None else self._take_place(worker, job)
            del spare[worker_id]
            if job is not None and place is not None:
                return PrefetchChoice(job, worker, place)
        return None

    def given(self, choice: PrefetchChoice, cell: ExecutionCell) -> None:
        """It is its worker's now, the last at its place."""
        terms, place = choice.job.spec.terms, choice.place
        length = self._length(terms)
        grown = Place(
            place.work + length, place.orders + 1, cell.execution.id, terms.needs.resources
        )
        heappush(self._places[choice.worker.worker.id], grown)

    def _job_for(self, worker: WorkerCell) -> JobCell | None:
        """Who goes next on the worker, if it may be prefetched."""
        t = self._t
        if worker.worker.id in t.cleared or not t.fleet.is_there(worker.worker.id):
            return None
        line = t.lines.first(t.fleet.able(worker.machine) & ~t.parked)
        if line is None or line.job_class.picky or line.job_class.needs.affinity is not None:
            return None
        head = t.lines.head(line)
        if is_mark(head):
            t.lines.run_dry(head)  # it is next: the store is asked for it
            return None
        job = t.jobs[head[2]]
        if not self._may_wait_there(job) or t.fleet.choose(line.job_class) is not None:
            return None
        return job

    def _may_wait_there(self, job: JobCell) -> bool:
        terms = job.spec.terms
        return (
            job.spec.band is None
            and not terms.preemptible
            and terms.semantics is Semantics.AT_LEAST_ONCE
            and self._t.runtimes.short(terms) is not None
        )

    def _take_place(self, worker: WorkerCell, job: JobCell) -> Place | None:
        """The place with the least to do that is large enough; it is the caller's."""
        places = self._places.get(worker.worker.id)
        if places is None:
            places = self._places[worker.worker.id] = self._places_of(worker)
        small: list[Place] = []
        found: Place | None = None
        while places and found is None:
            place = heappop(places)
            if fits(job.spec.terms.needs.resources, place.room):
                found = place
            else:
                small.append(place)
        for place in small:
            heappush(places, place)
        if found is None or found.work > PREFETCH_MS or found.orders >= PREFETCH_CHAIN:
            return None
        return found

    def _places_of(self, worker: WorkerCell) -> list[Place]:
        t = self._t
        places = []
        for execution_id, room in worker.held.items():
            cell = t.executions[execution_id]
            if not worker.is_prefetched(cell.execution):
                work = self._work_left(cell)
                if work is not None:
                    places.append(self._with_prefetched(worker, Place(work, 0, execution_id, room)))
        heapify(places)
        return places

    def _work_left(self, cell: ExecutionCell) -> Millis | None:
        """How long it takes, if it will be over soon."""
        job = self._t.jobs[cell.execution.job_id]
        is_late = self._now - cell.since > SHORT_MS
        if is_late or cell.execution.stop is not None or job.spec.band is not None:
            return None
        return self._t.runtimes.short(job.spec.terms)

    def _length(self, terms: Terms) -> Millis:
        """Of a prefetched one; it may not be known to be short any more."""
        length = self._t.runtimes.short(terms)
        return SHORT_MS if length is None else length

    def _with_prefetched(self, worker: WorkerCell, place: Place) -> Place:
        t = self._t
        while place.last in worker.prefetched:
            prefetched_id, room = worker.prefetched[place.last]
            terms = t.jobs[t.executions[prefetched_id].execution.job_id].spec.terms
            length = self._length(terms)
            place = Place(place.work + length, place.orders + 1, prefetched_id, room)
        return place
