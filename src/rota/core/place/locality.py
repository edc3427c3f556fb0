"""Which of the workers with room a job would rather have, and how long it waits for one of those.

Delay scheduling: a class of jobs that finds room only where it would rather not be waits a while,
and others pass. When the while is over its jobs go anywhere, until one of them has got the place it
wanted or the class has been quiet. So a preference costs each stretch of work one wait, not every
job one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from rota.core.affinity import Affinity
from rota.core.learned import Name
from rota.core.limits import HOMES_KEPT, PLACES_COMPARED, PLACES_LOOKED_AT
from rota.core.memory.cells import JobCell, LineKey, WorkerCell
from rota.core.model import ExecutionId, Instant, JobId, Millis, Terms, WorkerId, WorkerState
from rota.core.order.ordering import Lines, is_mark
from rota.core.order.party import JobClass, Line
from rota.core.place.fitness import score
from rota.core.place.labels import HOST, value_of
from rota.core.place.placement import Fleet, May
from rota.core.resources import fits
from rota.core.times.timers import TimerKind, Timers

K = TypeVar("K")

FAR = 2
"""Neither the worker nor the machine that a job wants to be near."""


class Liking(NamedTuple):
    """How well a worker suits a job beyond its needs; the smallest is the best."""

    distance: int
    """0: the worker of the previous run; 1: the same machine; 2: neither, or it does not care."""
    misses: int
    """Preferred labels that the worker lacks."""
    crowd: int
    """Jobs of its kind that run where its spread says to keep apart."""


class Patience:
    """Since when a class has been offered nothing that it likes."""

    __slots__ = ("job_class", "job_id", "seen", "since", "touched")

    def __init__(self, job_class: JobClass, now: Instant) -> None:
        self.job_class = job_class
        self.since = self.touched = now
        self.job_id = JobId("")
        """Whose turn it was when workers were last looked at."""
        self.seen = 0
        """How many had opened by then."""

    def is_of(self, job_class: JobClass, job: JobCell, now: Instant) -> bool:
        """Whether it is the patience of this class and job, and not over."""
        return self.job_class is job_class and self.job_id == job.id and now < self.until()

    def until(self) -> Instant:
        """When it takes what there is."""
        return self.since + _wish(self.job_class).wait_ms

    def is_stale(self, job_class: JobClass, now: Instant) -> bool:
        """Whether it is of a class that has been quiet since, or of another of that number."""
        return self.job_class is not job_class or now - self.touched > _wish(job_class).wait_ms


class Locality:
    """Where jobs run that care, and who waits for a better place."""

    def __init__(
        self, jobs: Mapping[JobId, JobCell], lines: Lines, fleet: Fleet, timers: Timers
    ) -> None:
        self._jobs = jobs
        self._lines = lines
        self._fleet = fleet
        self._timers = timers
        self._patience: dict[int, Patience] = {}
        self._crowds: dict[tuple[Name, str], dict[str, int]] = {}
        """By name and label: how many run at each of its values."""
        self._stands: dict[ExecutionId, tuple[tuple[Name, str], str]] = {}
        """What of that each execution is counted in."""
        self._last: dict[Name, WorkerId] = {}
        """Where the newest job of a name started that cares."""
        self._homes: dict[JobId, WorkerId] = {}
        """Where what a job waited for has run."""

    # What runs where

    def begin(self, execution_id: ExecutionId, terms: Terms, worker: WorkerCell) -> None:
        """A job that cares starts there."""
        affinity, name = terms.needs.affinity, (terms.tenant, terms.name)
        assert affinity is not None
        if affinity.spread:
            key, value = (name, affinity.spread), value_of(worker.worker, affinity.spread)
            self._stands[execution_id] = (key, value)
            crowd = self._crowds.setdefault(key, {})
            crowd[value] = crowd.get(value, 0) + 1
        if affinity.near_previous:
            _remember(self._last, name, worker.worker.id)

    def end(self, execution_id: ExecutionId) -> None:
        """It has ended."""
        stood = self._stands.pop(execution_id, None)
        if stood is None:
            return
        key, value = stood
        crowd = self._crowds[key]
        crowd[value] -= 1
        if not crowd[value]:
            del crowd[value]
        if not crowd:
            del self._crowds[key]

    def follows(self, job: JobCell, upstream: JobCell) -> None:
        """What the job waited for has ended, and where."""
        affinity, worker_id = job.spec.terms.needs.affinity, upstream.life.worker_id
        if affinity is not None and affinity.near_previous and worker_id is not None:
            _remember(self._homes, job.id, worker_id)

    def home(self, job: JobCell) -> WorkerId | None:
        """Whom it wants to be near: its own last run, what it waited for, the last of its name."""
        if job.life.worker_id is not None:
            return job.life.worker_id
        terms = job.spec.terms
        return self._homes.get(job.id) or self._last.get((terms.tenant, terms.name))

    # Choosing

    def pick(
        self, line: Line, now: Instant, may: May | None = None, key: LineKey | None = None
    ) -> WorkerCell | None:
        """The worker for the head of a line, or for another job of it; None: it does not start."""
        key = key or self._lines.head(line)
        if is_mark(key):
            return self._fleet.choose(line.job_class, may)
        return self.choose(line.job_class, self._jobs[key[2]], may, now)

    def choose(
        self, job_class: JobClass, job: JobCell, may: May | None, now: Instant
    ) -> WorkerCell | None:
        """The open worker that suits the job best; None: none has room, or it waits for better."""
        patience = self._patience.get(job_class.index)
        if patience is not None and patience.is_of(job_class, job, now):
            # All that were open were looked at for this job when it began to wait.
            candidates = self._fleet.opened_since(patience.seen)
        else:
            candidates = self._open_for(job_class, job)
        best = self._best_of(candidates, job_class, job, may)
        if best is None or self._waits(job_class, job, best[0], now):
            return None
        return best[1]

    def _best_of(
        self, candidates: Iterator[WorkerCell], job_class: JobClass, job: JobCell, may: May | None
    ) -> tuple[Liking, WorkerCell] | None:
        best: tuple[Liking, tuple[int, int], int, WorkerCell] | None = None
        liked = 0
        for cell in candidates:
            if not self._fleet.fitting(cell) & job_class.bit or (may is not None and not may(cell)):
                continue
            fit = score(job_class.needs.resources, cell.machine, cell.free)
            found = (self.liking(job, cell), fit, cell.rank, cell)
            if best is None or found[:3] < best[:3]:
                best = found
            liked += _is_ideal(_wish(job_class), found[0])
            if liked >= PLACES_COMPARED:
                break
        return None if best is None else (best[0], best[3])

    def _open_for(self, job_class: JobClass, job: JobCell) -> Iterator[WorkerCell]:
        """Open workers, those first that it asks for by name or label, as far as is looked."""
        is_open = self._fleet.open
        likely = chain(self._near(job), self._preferred(_wish(job_class)))
        known = (is_open[one] for one in likely if one in is_open) if len(is_open) > 1 else ()
        return islice(chain(known, is_open.values()), PLACES_LOOKED_AT)

    def liking(self, job: JobCell, cell: WorkerCell) -> Liking:
        """How well the worker suits the job."""
        terms = job.spec.terms
        affinity = terms.needs.affinity
        if affinity is None:
            return Liking(FAR, 0, 0)
        worker, crowd = cell.worker, 0
        misses = sum(value_of(worker, label) not in values for label, values in affinity.prefer)
        if affinity.spread:
            crowds = self._crowds.get(((terms.tenant, terms.name), affinity.spread), {})
            crowd = crowds.get(value_of(worker, affinity.spread), 0)
        return Liking(self._distance(affinity, job, cell), misses, crowd)

    def _distance(self, affinity: Affinity, job: JobCell, cell: WorkerCell) -> int:
        home = self.home(job) if affinity.near_previous else None
        if home is None:
            return FAR
        if home == cell.worker.id:
            return 0
        there = self._fleet.workers.get(home)
        is_near = there is not None and value_of(there.worker, HOST) == value_of(cell.worker, HOST)
        return 1 if is_near else FAR

    def sorted(self, job: JobCell, workers: Iterator[WorkerId]) -> Iterator[WorkerId]:
        """Those first that suit the job best."""
        looked_at = islice(workers, PLACES_LOOKED_AT)
        cells = [self._fleet.workers[worker_id] for worker_id in looked_at]
        cells.sort(key=lambda cell: (self.liking(job, cell), cell.rank))
        return iter([cell.worker.id for cell in cells])

    def _waits(self, job_class: JobClass, job: JobCell, liking: Liking, now: Instant) -> bool:
        """Whether the class would rather have another worker, and has not waited for it enough."""
        affinity = _wish(job_class)
        if not affinity.wait_ms or _is_ideal(affinity, liking):
            self._patience.pop(job_class.index, None)
            return False
        patience = self._patience.get(job_class.index)
        is_stale = patience is None or patience.is_stale(job_class, now)
        if patience is not None and not is_stale and patience.until() <= now:
            patience.touched = now
            return False
        if self.better(job_class, job, liking) is None:
            self._patience.pop(job_class.index, None)
            return False
        if patience is None or is_stale:
            patience = self._patience[job_class.index] = Patience(job_class, now)
            self._timers.set(patience.until(), TimerKind.PLACE, str(job_class.index))
        patience.touched, patience.job_id, patience.seen = now, job.id, self._fleet.opened()
        return now < patience.until()

    # Who would be better

    def better(self, job_class: JobClass, job: JobCell, than: Liking) -> WorkerCell | None:
        """A worker that takes work, though perhaps not now, where the job would rather be."""
        affinity = _wish(job_class)
        if affinity.near_previous and than.distance == FAR:
            for worker_id in self._near(job):
                if (found := self._could(job_class, worker_id)) is not None:
                    return found
        if than.misses:
            for worker_id in islice(self._preferred(affinity), PLACES_LOOKED_AT):
                found = self._could(job_class, worker_id)
                if found is not None and not self.liking(job, found).misses:
                    return found
        return self._lonelier(job_class, job, than.crowd) if than.crowd else None

    def _lonelier(self, job_class: JobClass, job: JobCell, crowd: int) -> WorkerCell | None:
        """A worker with room where fewer of its kind run."""
        values = self._fleet.labels.values(_wish(job_class).spread)
        needs = job_class.needs.resources
        for worker_id in islice(chain.from_iterable(values.values()), PLACES_LOOKED_AT):
            found = self._could(job_class, worker_id)
            has_room = found is not None and fits(needs, found.free)
            if found is not None and has_room and self.liking(job, found).crowd < crowd:
                return found
        return None

    def _could(self, job_class: JobClass, worker_id: WorkerId) -> WorkerCell | None:
        cell = self._fleet.workers.get(worker_id)
        if cell is None or cell.worker.state is not WorkerState.ONLINE:
            return None
        return cell if self._fleet.able(cell.machine) & job_class.bit else None

    def _near(self, job: JobCell) -> Iterator[WorkerId]:
        """The worker it wants to be near, and the others of that machine."""
        affinity = job.spec.terms.needs.affinity
        home = self.home(job) if affinity is not None and affinity.near_previous else None
        if home is not None:
            yield home
            there = self._fleet.workers.get(home)
            if there is not None:
                host = value_of(there.worker, HOST)
                yield from self._fleet.labels.values(HOST).get(host, ())

    def _preferred(self, affinity: Affinity) -> Iterator[WorkerId]:
        """Workers that have the first of the preferred labels."""
        for label, values in affinity.prefer[:1]:
            known = self._fleet.labels.values(label)
            for value in values:
                yield from known.get(value, ())

    # Time

    def waits_until(self, job_class: JobClass, now: Instant) -> Instant | None:
        """Until when the class waits for a better place; None: it does not."""
        patience = self._patience.get(job_class.index)
        if patience is None or patience.job_class is not job_class or patience.until() <= now:
            return None
        return patience.until()

    def rings_at(self, index: int) -> Instant | None:
        """When the patience of the class of this number ends."""
        patience = self._patience.get(index)
        return None if patience is None else patience.until()

    def follow_clock(self, by: Millis) -> None:
        """The clock was set by so much."""
        for index, patience in self._patience.items():
            patience.since += by
            patience.touched += by
            self._timers.set(patience.until(), TimerKind.PLACE, str(index))


def _is_ideal(affinity: Affinity, liking: Liking) -> bool:
    is_near = liking.distance < FAR or not affinity.near_previous
    return is_near and not liking.misses and not liking.crowd


def _wish(job_class: JobClass) -> Affinity:
    affinity = job_class.needs.affinity
    assert affinity is not None
    return affinity


def _remember(places: dict[K, WorkerId], key: K, worker_id: WorkerId) -> None:
    places.pop(key, None)
    if len(places) >= HOMES_KEPT:
        del places[next(iter(places))]
    places[key] = worker_id
