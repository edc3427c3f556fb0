"""Who is given ahead: short jobs wait on a worker for a place that is about to become free.

A worker with room for two short jobs would otherwise wait for a round trip after each of them. So
it may hold a few more, each behind one that it runs: the heir of that one's place (succession.py).

Only what is known to be short is given ahead, only behind what is, and only the job that goes next
on that worker anyway, when no other has room for it. What makes a choice of its place (gangs,
affinity), stands for many, may be stopped for others or must not start twice waits for its turn.
Whatever is given ahead is charged to its queue, key and tenant like any other execution.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from rota.core.limits import AHEAD_CHAIN, AHEAD_MS, SHORT_MS
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
    """Given ahead."""
    last: ExecutionId
    """The one whose heir would be next."""
    room: Resources


class Heir(NamedTuple):
    """A job that is to be given ahead, and where."""

    job: JobCell
    worker: WorkerCell
    place: Place


class Ahead:
    """One look at who can be given ahead, at the end of a turn."""

    def __init__(self, t: Tables, now: Instant) -> None:
        self._t = t
        self._now = now
        self._places: dict[WorkerId, list[Place]] = {}

    def next(self) -> Heir | None:
        """The next, each worker in turn; None: nothing more can be given ahead now.

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
                return Heir(job, worker, place)
        return None

    def given(self, heir: Heir, cell: ExecutionCell) -> None:
        """It is its worker's now, the last at its place."""
        terms, place = heir.job.spec.terms, heir.place
        length = self._length(terms)
        grown = Place(
            place.work + length, place.orders + 1, cell.execution.id, terms.needs.resources
        )
        heappush(self._places[heir.worker.worker.id], grown)

    def _job_for(self, worker: WorkerCell) -> JobCell | None:
        """Who goes next on the worker, if it may be given ahead."""
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
        if found is None or found.work > AHEAD_MS or found.orders >= AHEAD_CHAIN:
            return None
        return found

    def _places_of(self, worker: WorkerCell) -> list[Place]:
        t = self._t
        places = []
        for execution_id, room in worker.held.items():
            cell = t.executions[execution_id]
            if not worker.is_heir(cell.execution):
                work = self._work_left(cell)
                if work is not None:
                    places.append(self._with_heirs(worker, Place(work, 0, execution_id, room)))
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
        """Of one that was given ahead; it may not be known to be short any more."""
        length = self._t.runtimes.short(terms)
        return SHORT_MS if length is None else length

    def _with_heirs(self, worker: WorkerCell, place: Place) -> Place:
        t = self._t
        while place.last in worker.heirs:
            heir_id, room = worker.heirs[place.last]
            terms = t.jobs[t.executions[heir_id].execution.job_id].spec.terms
            length = self._length(terms)
            place = Place(place.work + length, place.orders + 1, heir_id, room)
        return place
