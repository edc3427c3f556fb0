"""Affinity: which free workers a job prefers, and how long it waits for one of those.

Delay scheduling: a class of jobs that finds free capacity only on workers that it does not prefer
waits a while, and other jobs pass. Then its jobs go anywhere, until one of them has got a preferred
worker or the class has been quiet. So a preference costs one wait for many jobs, not one for each.

Why: docs/decisions/0018-soft-affinity-waits-and-demand-is-counted.md.
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
"""Distance of a worker that is neither the preferred one nor on its machine."""


class SoftAffinity(NamedTuple):
    """Soft affinity: how well a worker meets a job's preferences; the smallest is the best."""

    distance: int
    """0: the preferred worker; 1: the same machine; 2: neither, or the job has no such
    preference."""
    misses: int
    """Preferred labels that the worker lacks."""
    spread_count: int
    """Jobs of the same name that run where `spread` says to keep apart."""


class AffinityTimeout:
    """Timeout of a class that waits for a preferred worker."""

    __slots__ = ("job_class", "job_id", "seen", "since", "touched")

    def __init__(self, job_class: JobClass, now: Instant) -> None:
        self.job_class = job_class
        self.since = self.touched = now
        self.job_id = JobId("")
        """Job at the head when workers were compared last."""
        self.seen = 0
        """`Fleet.opened` at that time."""

    def is_of(self, job_class: JobClass, job: JobEntry, now: Instant) -> bool:
        """Whether this class and job are still waiting."""
        return self.job_class is job_class and self.job_id == job.id and now < self.until()

    def until(self) -> Instant:
        """When the class takes any worker."""
        return self.since + _affinity_of(self.job_class).wait_ms

    def is_stale(self, job_class: JobClass, now: Instant) -> bool:
        """Whether the class has been quiet since, or the index belongs to another class."""
        return (
            self.job_class is not job_class or now - self.touched > _affinity_of(job_class).wait_ms
        )


class AffinityPlacement:
    """Placement of jobs with preferences; knows where jobs run, and which classes wait for it."""

    def __init__(
        self, jobs: Mapping[JobId, JobEntry], ready_queue: ReadyQueue, fleet: Fleet, timers: Timers
    ) -> None:
        self._jobs = jobs
        self._ready_queue = ready_queue
        self._fleet = fleet
        self._timers = timers
        self._timeouts: dict[int, AffinityTimeout] = {}
        self._spread_counts: dict[tuple[JobName, str], dict[str, int]] = {}
        """By name and label: number of running jobs for each value."""
        self._counted_in: dict[ExecutionId, tuple[tuple[JobName, str], str]] = {}
        """Where each execution is counted."""
        self._last: dict[JobName, WorkerId] = {}
        """Worker of the newest job of a name that has `near_previous`."""
        self._upstream_workers: dict[JobId, WorkerId] = {}
        """Worker of a job's newest upstream job."""

    # What runs where

    def note_start(self, execution_id: ExecutionId, terms: Terms, worker: WorkerEntry) -> None:
        """Notes where a job with affinity starts."""
        affinity, name = terms.needs.affinity, (terms.tenant, terms.name)
        assert affinity is not None
        if affinity.spread:
            key, value = (name, affinity.spread), value_of(worker.worker, affinity.spread)
            self._counted_in[execution_id] = (key, value)
            spread_count = self._spread_counts.setdefault(key, {})
            spread_count[value] = spread_count.get(value, 0) + 1
        if affinity.near_previous:
            _remember(self._last, name, worker.worker.id)

    def note_end(self, execution_id: ExecutionId) -> None:
        """Notes that an execution has ended."""
        counted = self._counted_in.pop(execution_id, None)
        if counted is None:
            return
        key, value = counted
        spread_count = self._spread_counts[key]
        spread_count[value] -= 1
        if not spread_count[value]:
            del spread_count[value]
        if not spread_count:
            del self._spread_counts[key]

    def note_upstream(self, job: JobEntry, upstream: JobEntry) -> None:
        """Notes where an upstream job ran."""
        affinity, worker_id = job.spec.terms.needs.affinity, upstream.life.worker_id
        if affinity is not None and affinity.near_previous and worker_id is not None:
            _remember(self._upstream_workers, job.id, worker_id)

    def previous_worker(self, job: JobEntry) -> WorkerId | None:
        """Worker that a job wants to be near: of its last execution, its upstream job, its name."""
        if job.life.worker_id is not None:
            return job.life.worker_id
        terms = job.spec.terms
        return self._upstream_workers.get(job.id) or self._last.get((terms.tenant, terms.name))

    # Choice of a worker

    def pick(
        self,
        class_queue: ClassQueue,
        now: Instant,
        allowed: WorkerFilter | None = None,
        key: OrderKey | None = None,
    ) -> WorkerEntry | None:
        """Worker for the head of a class queue, or another of its jobs; None: it does not start."""
        key = key or self._ready_queue.head(class_queue)
        if is_spill_marker(key):
            return self._fleet.choose(class_queue.job_class, allowed)
        return self.choose(class_queue.job_class, self._jobs[key[2]], allowed, now)

    def choose(
        self, job_class: JobClass, job: JobEntry, allowed: WorkerFilter | None, now: Instant
    ) -> WorkerEntry | None:
        """Open worker that suits the job best; None: none fits, or it waits for a better one."""
        timeout = self._timeouts.get(job_class.index)
        if timeout is not None and timeout.is_of(job_class, job, now):
            # The workers that were open before were compared when it began to wait.
            candidates = self._fleet.opened_since(timeout.seen)
        else:
            candidates = self._open_for(job_class, job)
        best = self._best_of(candidates, job_class, job, allowed)
        if best is None or self._waits(job_class, job, best[0], now):
            return None
        return best[1]

    def _best_of(
        self,
        candidates: Iterator[WorkerEntry],
        job_class: JobClass,
        job: JobEntry,
        allowed: WorkerFilter | None,
    ) -> tuple[SoftAffinity, WorkerEntry] | None:
        best: tuple[SoftAffinity, tuple[int, int], int, WorkerEntry] | None = None
        ideal = 0
        for entry in candidates:
            if not self._fleet.fitting(entry) & job_class.bit or (
                allowed is not None and not allowed(entry)
            ):
                continue
            fit = score(job_class.needs.resources, entry.machine, entry.free)
            found = (self.soft_affinity(job, entry), fit, entry.rank, entry)
            if best is None or found[:3] < best[:3]:
                best = found
            ideal += _is_ideal(_affinity_of(job_class), found[0])
            if ideal >= IDEAL_WORKERS_COMPARED:
                break
        return None if best is None else (best[0], best[3])

    def _open_for(self, job_class: JobClass, job: JobEntry) -> Iterator[WorkerEntry]:
        """Open workers, likely preferred ones first; the number is limited."""
        is_open = self._fleet.open
        likely = chain(self._near(job), self._preferred(_affinity_of(job_class)))
        known = (is_open[one] for one in likely if one in is_open) if len(is_open) > 1 else ()
        return islice(chain(known, is_open.values()), PREFERRED_WORKERS_TRIED)

    def soft_affinity(self, job: JobEntry, entry: WorkerEntry) -> SoftAffinity:
        """Soft affinity of the worker for the job."""
        terms = job.spec.terms
        affinity = terms.needs.affinity
        if affinity is None:
            return SoftAffinity(FAR, 0, 0)
        worker, spread_count = entry.worker, 0
        misses = sum(value_of(worker, label) not in values for label, values in affinity.prefer)
        if affinity.spread:
            counts = self._spread_counts.get(((terms.tenant, terms.name), affinity.spread), {})
            spread_count = counts.get(value_of(worker, affinity.spread), 0)
        return SoftAffinity(self._distance(affinity, job, entry), misses, spread_count)

    def _distance(self, affinity: Affinity, job: JobEntry, entry: WorkerEntry) -> int:
        previous = self.previous_worker(job) if affinity.near_previous else None
        if previous is None:
            return FAR
        if previous == entry.worker.id:
            return 0
        known = self._fleet.workers.get(previous)
        is_near = known is not None and value_of(known.worker, HOST) == value_of(entry.worker, HOST)
        return 1 if is_near else FAR

    def sorted(self, job: JobEntry, workers: Iterator[WorkerId]) -> Iterator[WorkerId]:
        """Sorts workers, the best for the job first; only the first ones are compared."""
        looked_at = islice(workers, PREFERRED_WORKERS_TRIED)
        entries = [self._fleet.workers[worker_id] for worker_id in looked_at]
        entries.sort(key=lambda entry: (self.soft_affinity(job, entry), entry.rank))
        return iter([entry.worker.id for entry in entries])

    def _waits(
        self, job_class: JobClass, job: JobEntry, found_affinity: SoftAffinity, now: Instant
    ) -> bool:
        """Whether the class goes on waiting for a preferred worker."""
        affinity = _affinity_of(job_class)
        if not affinity.wait_ms or _is_ideal(affinity, found_affinity):
            self._timeouts.pop(job_class.index, None)
            return False
        timeout = self._timeouts.get(job_class.index)
        is_stale = timeout is None or timeout.is_stale(job_class, now)
        if timeout is not None and not is_stale and timeout.until() <= now:
            timeout.touched = now
            return False
        if self.better_worker(job_class, job, found_affinity) is None:
            self._timeouts.pop(job_class.index, None)
            return False
        if timeout is None or is_stale:
            timeout = self._timeouts[job_class.index] = AffinityTimeout(job_class, now)
            self._timers.set(timeout.until(), TimerKind.PLACE, str(job_class.index))
        timeout.touched, timeout.job_id, timeout.seen = now, job.id, self._fleet.opened()
        return now < timeout.until()

    # Better workers

    def better_worker(
        self, job_class: JobClass, job: JobEntry, than: SoftAffinity
    ) -> WorkerEntry | None:
        """Online worker, open or not, that the job prefers to one with this affinity."""
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

    def _less_crowded(
        self, job_class: JobClass, job: JobEntry, spread_count: int
    ) -> WorkerEntry | None:
        """Worker with free capacity where fewer jobs of the same name run."""
        values = self._fleet.labels.values(_affinity_of(job_class).spread)
        needs = job_class.needs.resources
        for worker_id in islice(chain.from_iterable(values.values()), PREFERRED_WORKERS_TRIED):
            found = self._could(job_class, worker_id)
            has_capacity = found is not None and fits(needs, found.free)
            if (
                found is not None
                and has_capacity
                and self.soft_affinity(job, found).spread_count < spread_count
            ):
                return found
        return None

    def _could(self, job_class: JobClass, worker_id: WorkerId) -> WorkerEntry | None:
        entry = self._fleet.workers.get(worker_id)
        if entry is None or entry.worker.state is not WorkerState.ONLINE:
            return None
        return entry if self._fleet.able(entry.machine) & job_class.bit else None

    def _near(self, job: JobEntry) -> Iterator[WorkerId]:
        """Worker that the job wants to be near, and the others on its machine."""
        affinity = job.spec.terms.needs.affinity
        previous = (
            self.previous_worker(job) if affinity is not None and affinity.near_previous else None
        )
        if previous is not None:
            yield previous
            known = self._fleet.workers.get(previous)
            if known is not None:
                host = value_of(known.worker, HOST)
                yield from self._fleet.labels.values(HOST).get(host, ())

    def _preferred(self, affinity: Affinity) -> Iterator[WorkerId]:
        """Workers with the first of the preferred labels."""
        for label, values in affinity.prefer[:1]:
            known = self._fleet.labels.values(label)
            for value in values:
                yield from known.get(value, ())

    # Time

    def waits_until(self, job_class: JobClass, now: Instant) -> Instant | None:
        """Until when the class waits for a preferred worker; None: it does not."""
        timeout = self._timeouts.get(job_class.index)
        if timeout is None or timeout.job_class is not job_class or timeout.until() <= now:
            return None
        return timeout.until()

    def times_out_at(self, index: int) -> Instant | None:
        """When the timeout of the class with this index ends."""
        timeout = self._timeouts.get(index)
        return None if timeout is None else timeout.until()

    def follow_clock(self, by: Millis) -> None:
        """Follows a change of the system clock."""
        for index, timeout in self._timeouts.items():
            timeout.since += by
            timeout.touched += by
            self._timers.set(timeout.until(), TimerKind.PLACE, str(index))


def _is_ideal(affinity: Affinity, found_affinity: SoftAffinity) -> bool:
    is_near = found_affinity.distance < FAR or not affinity.near_previous
    return is_near and not found_affinity.misses and not found_affinity.spread_count


def _affinity_of(job_class: JobClass) -> Affinity:
    affinity = job_class.needs.affinity
    assert affinity is not None
    return affinity


def _remember(places: dict[K, WorkerId], key: K, worker_id: WorkerId) -> None:
    places.pop(key, None)
    if len(places) >= PREVIOUS_WORKERS_KEPT:
        del places[next(iter(places))]
    places[key] = worker_id
