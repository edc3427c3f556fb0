"""Affinity: which free workers a job prefers, and how long it waits for one of those.

Delay scheduling: a class of jobs that finds free capacity only where it would rather not run waits
a while, and others pass. Then its jobs go anywhere, until one of them has got the worker it wanted
or the class has been quiet. So a preference costs one wait for many jobs, not one for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from rota.core.entries import JobEntry, OrderKey, WorkerEntry
from rota.core.limits import IDEAL_WORKERS_COMPARED, PREFERRED_WORKERS_TRIED, PREVIOUS_WORKERS_KEPT
from rota.core.model import (
    Affinity,
    ExecutionId,
    Instant,
    JobId,
    JobName,
    Millis,
    Terms,
    WorkerId,
    WorkerState,
)
from rota.core.placement.feasibility import HOST, score, value_of
from rota.core.placement.fleet import Fleet, WorkerFilter
from rota.core.ready_queue.classes import ClassQueue, JobClass
from rota.core.ready_queue.ready_queue import ReadyQueue, is_spill_marker
from rota.core.resources import fits
from rota.core.timers import TimerKind, Timers

K = TypeVar("K")

FAR = 2
"""Neither the worker nor the machine that a job wants to be near."""


class SoftAffinity(NamedTuple):
    """How well a worker suits a job beyond its needs; the smallest is the best."""

    distance: int
    """0: the worker of the previous run; 1: the same machine; 2: neither, or it does not care."""
    misses: int
    """Preferred labels that the worker lacks."""
    spread_count: int
    """Jobs of its kind that run where its spread says to keep apart."""


class AffinityTimeout:
    """Since when a class has been offered nothing that it likes."""

    __slots__ = ("job_class", "job_id", "seen", "since", "touched")

    def __init__(self, job_class: JobClass, now: Instant) -> None:
        self.job_class = job_class
        self.since = self.touched = now
        self.job_id = JobId("")
        """Whose turn it was when workers were last looked at."""
        self.seen = 0
        """How many had opened by then."""

    def is_of(self, job_class: JobClass, job: JobEntry, now: Instant) -> bool:
        """Whether it is the patience of this class and job, and not over."""
        return self.job_class is job_class and self.job_id == job.id and now < self.until()

    def until(self) -> Instant:
        """When it takes what there is."""
        return self.since + _affinity_of(self.job_class).wait_ms

    def is_stale(self, job_class: JobClass, now: Instant) -> bool:
        """Whether it is of a class that has been quiet since, or of another of that number."""
        return (
            self.job_class is not job_class or now - self.touched > _affinity_of(job_class).wait_ms
        )


class AffinityPlacement:
    """Where jobs run that care, and who waits for a better place."""

    def __init__(
        self, jobs: Mapping[JobId, JobEntry], class_queues: ReadyQueue, fleet: Fleet, timers: Timers
    ) -> None:
        self._jobs = jobs
        self._ready_queue = class_queues
        self._fleet = fleet
        self._timers = timers
        self._timeouts: dict[int, AffinityTimeout] = {}
        self._spread_counts: dict[tuple[JobName, str], dict[str, int]] = {}
        """By name and label: how many run at each of its values."""
        self._counted_in: dict[ExecutionId, tuple[tuple[JobName, str], str]] = {}
        """What of that each execution is counted in."""
        self._last: dict[JobName, WorkerId] = {}
        """Where the newest job of a name started that cares."""
        self._upstream_workers: dict[JobId, WorkerId] = {}
        """Where what a job waited for has run."""

    # What runs where

    def note_start(self, execution_id: ExecutionId, terms: Terms, worker: WorkerEntry) -> None:
        """A job that cares starts there."""
        affinity, name = terms.needs.affinity, (terms.tenant, terms.name)
        assert affinity is not None
        if affinity.spread:
            key, value = (name, affinity.spread), value_of(worker.worker, affinity.spread)
            self._counted_in[execution_id] = (key, value)
            crowd = self._spread_counts.setdefault(key, {})
            crowd[value] = crowd.get(value, 0) + 1
        if affinity.near_previous:
            _remember(self._last, name, worker.worker.id)

    def note_end(self, execution_id: ExecutionId) -> None:
        """It has ended."""
        stood = self._counted_in.pop(execution_id, None)
        if stood is None:
            return
        key, value = stood
        crowd = self._spread_counts[key]
        crowd[value] -= 1
        if not crowd[value]:
            del crowd[value]
        if not crowd:
            del self._spread_counts[key]

    def note_upstream(self, job: JobEntry, upstream: JobEntry) -> None:
        """What the job waited for has ended, and where."""
        affinity, worker_id = job.spec.terms.needs.affinity, upstream.life.worker_id
        if affinity is not None and affinity.near_previous and worker_id is not None:
            _remember(self._upstream_workers, job.id, worker_id)

    def previous_worker(self, job: JobEntry) -> WorkerId | None:
        """Whom it wants to be near: its own last run, what it waited for, the last of its name."""
        if job.life.worker_id is not None:
            return job.life.worker_id
        terms = job.spec.terms
        return self._upstream_workers.get(job.id) or self._last.get((terms.tenant, terms.name))

    # Choosing

    def pick(
        self,
        class_queue: ClassQueue,
        now: Instant,
        may: WorkerFilter | None = None,
        key: OrderKey | None = None,
    ) -> WorkerEntry | None:
        """The worker for the head of a line, or for another job of it; None: it does not start."""
        key = key or self._ready_queue.head(class_queue)
        if is_spill_marker(key):
            return self._fleet.choose(class_queue.job_class, may)
        return self.choose(class_queue.job_class, self._jobs[key[2]], may, now)

    def choose(
        self, job_class: JobClass, job: JobEntry, may: WorkerFilter | None, now: Instant
    ) -> WorkerEntry | None:
        """The open worker that suits the job best; None: none has room, or it waits for better."""
        patience = self._timeouts.get(job_class.index)
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
        self,
        candidates: Iterator[WorkerEntry],
        job_class: JobClass,
        job: JobEntry,
        may: WorkerFilter | None,
    ) -> tuple[SoftAffinity, WorkerEntry] | None:
        best: tuple[SoftAffinity, tuple[int, int], int, WorkerEntry] | None = None
        liked = 0
        for entry in candidates:
            if not self._fleet.fitting(entry) & job_class.bit or (
                may is not None and not may(entry)
            ):
                continue
            fit = score(job_class.needs.resources, entry.machine, entry.free)
            found = (self.soft_affinity(job, entry), fit, entry.rank, entry)
            if best is None or found[:3] < best[:3]:
                best = found
            liked += _is_ideal(_affinity_of(job_class), found[0])
            if liked >= IDEAL_WORKERS_COMPARED:
                break
        return None if best is None else (best[0], best[3])

    def _open_for(self, job_class: JobClass, job: JobEntry) -> Iterator[WorkerEntry]:
        """Open workers, those first that it asks for by name or label, as far as is looked."""
        is_open = self._fleet.open
        likely = chain(self._near(job), self._preferred(_affinity_of(job_class)))
        known = (is_open[one] for one in likely if one in is_open) if len(is_open) > 1 else ()
        return islice(chain(known, is_open.values()), PREFERRED_WORKERS_TRIED)

    def soft_affinity(self, job: JobEntry, entry: WorkerEntry) -> SoftAffinity:
        """How well the worker suits the job."""
        terms = job.spec.terms
        affinity = terms.needs.affinity
        if affinity is None:
            return SoftAffinity(FAR, 0, 0)
        worker, crowd = entry.worker, 0
        misses = sum(value_of(worker, label) not in values for label, values in affinity.prefer)
        if affinity.spread:
            crowds = self._spread_counts.get(((terms.tenant, terms.name), affinity.spread), {})
            crowd = crowds.get(value_of(worker, affinity.spread), 0)
        return SoftAffinity(self._distance(affinity, job, entry), misses, crowd)

    def _distance(self, affinity: Affinity, job: JobEntry, entry: WorkerEntry) -> int:
        home = self.previous_worker(job) if affinity.near_previous else None
        if home is None:
            return FAR
        if home == entry.worker.id:
            return 0
        there = self._fleet.workers.get(home)
        is_near = there is not None and value_of(there.worker, HOST) == value_of(entry.worker, HOST)
        return 1 if is_near else FAR

    def sorted(self, job: JobEntry, workers: Iterator[WorkerId]) -> Iterator[WorkerId]:
        """Those first that suit the job best."""
        looked_at = islice(workers, PREFERRED_WORKERS_TRIED)
        entries = [self._fleet.workers[worker_id] for worker_id in looked_at]
        entries.sort(key=lambda entry: (self.soft_affinity(job, entry), entry.rank))
        return iter([entry.worker.id for entry in entries])

    def _waits(
        self, job_class: JobClass, job: JobEntry, liking: SoftAffinity, now: Instant
    ) -> bool:
        """Whether the class would rather have another worker, and has not waited for it enough."""
        affinity = _affinity_of(job_class)
        if not affinity.wait_ms or _is_ideal(affinity, liking):
            self._timeouts.pop(job_class.index, None)
            return False
        patience = self._timeouts.get(job_class.index)
        is_stale = patience is None or patience.is_stale(job_class, now)
        if patience is not None and not is_stale and patience.until() <= now:
            patience.touched = now
            return False
        if self.better_worker(job_class, job, liking) is None:
            self._timeouts.pop(job_class.index, None)
            return False
        if patience is None or is_stale:
            patience = self._timeouts[job_class.index] = AffinityTimeout(job_class, now)
            self._timers.set(patience.until(), TimerKind.PLACE, str(job_class.index))
        patience.touched, patience.job_id, patience.seen = now, job.id, self._fleet.opened()
        return now < patience.until()

    # Who would be better

    def better_worker(
        self, job_class: JobClass, job: JobEntry, than: SoftAffinity
    ) -> WorkerEntry | None:
        """A worker that takes work, though perhaps not now, where the job would rather be."""
        affinity = _affinity_of(job_class)
        if affinity.near_previous and than.distance == FAR:
            for worker_id in self._near(job):
                if (found := self._could(job_class, worker_id)) is not None:
                    return found
        if than.misses:
            for worker_id in islice(self._preferred(affinity), PREFERRED_WORKERS_TRIED):
                found = self._could(job_class, worker_id)
                if found is not None and not self.soft_affinity(job, found).misses:
                    return found
        return self._less_crowded(job_class, job, than.spread_count) if than.spread_count else None

    def _less_crowded(self, job_class: JobClass, job: JobEntry, crowd: int) -> WorkerEntry | None:
        """A worker with room where fewer of its kind run."""
        values = self._fleet.labels.values(_affinity_of(job_class).spread)
        needs = job_class.needs.resources
        for worker_id in islice(chain.from_iterable(values.values()), PREFERRED_WORKERS_TRIED):
            found = self._could(job_class, worker_id)
            has_room = found is not None and fits(needs, found.free)
            if (
                found is not None
                and has_room
                and self.soft_affinity(job, found).spread_count < crowd
            ):
                return found
        return None

    def _could(self, job_class: JobClass, worker_id: WorkerId) -> WorkerEntry | None:
        entry = self._fleet.workers.get(worker_id)
        if entry is None or entry.worker.state is not WorkerState.ONLINE:
            return None
        return entry if self._fleet.able(entry.machine) & job_class.bit else None

    def _near(self, job: JobEntry) -> Iterator[WorkerId]:
        """The worker it wants to be near, and the others of that machine."""
        affinity = job.spec.terms.needs.affinity
        home = (
            self.previous_worker(job) if affinity is not None and affinity.near_previous else None
        )
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
        patience = self._timeouts.get(job_class.index)
        if patience is None or patience.job_class is not job_class or patience.until() <= now:
            return None
        return patience.until()

    def times_out_at(self, index: int) -> Instant | None:
        """When the patience of the class of this number ends."""
        patience = self._timeouts.get(index)
        return None if patience is None else patience.until()

    def follow_clock(self, by: Millis) -> None:
        """The clock was set by so much."""
        for index, patience in self._timeouts.items():
            patience.since += by
            patience.touched += by
            self._timers.set(patience.until(), TimerKind.PLACE, str(index))


def _is_ideal(affinity: Affinity, liking: SoftAffinity) -> bool:
    is_near = liking.distance < FAR or not affinity.near_previous
    return is_near and not liking.misses and not liking.spread_count


def _affinity_of(job_class: JobClass) -> Affinity:
    affinity = job_class.needs.affinity
    assert affinity is not None
    return affinity


def _remember(places: dict[K, WorkerId], key: K, worker_id: WorkerId) -> None:
    places.pop(key, None)
    if len(places) >= PREVIOUS_WORKERS_KEPT:
        del places[next(iter(places))]
    places[key] = worker_id
