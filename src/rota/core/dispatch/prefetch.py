"""Prefetch: gives a worker orders for short jobs before their place is free.

Each order waits behind an execution of the same worker and takes its place when that has ended. A
worker with free capacity for two short jobs would otherwise wait for a round trip after each:
functions of a millisecond would run at less than half the rate
(docs/decisions/0013-prefetch-of-short-jobs.md). Only a job known to be short is prefetched, only
behind a short one, and only the job that goes next on that worker anyway. A prefetched execution is
charged to its queue, key and tenant like any other.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from rota.core.entries import ExecutionEntry, JobEntry, WorkerEntry
from rota.core.limits import PREFETCH_CHAIN, PREFETCH_MS, SHORT_MS
from rota.core.model import (
    ExecutionId,
    Instant,
    Millis,
    Resources,
    Semantics,
    Terms,
    WorkerId,
)
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.resources import fits
from rota.core.state import SchedulerState


class PrefetchSlot(NamedTuple):
    """Place on a worker, with the work before the next order there; the least goes first."""

    work: Millis
    orders: int
    """How many orders are prefetched there."""
    last: ExecutionId
    """Execution behind which the next order would wait."""
    free: Resources


class PrefetchChoice(NamedTuple):
    """Choice of a job to prefetch, its worker and its place."""

    job: JobEntry
    worker: WorkerEntry
    slot: PrefetchSlot


class Prefetcher:
    """Prefetcher of one turn: finds jobs that wait on a worker for a place that frees up soon."""

    def __init__(self, t: SchedulerState, now: Instant) -> None:
        self._t = t
        self._now = now
        self._slots: dict[WorkerId, list[PrefetchSlot]] = {}

    def next(self) -> PrefetchChoice | None:
        """The next job to prefetch, each worker in turn; None: nothing more can be prefetched now.

        A worker for which nothing is found is not tried again before its next poll.
        """
        t, spare = self._t, self._t.fleet.spare
        while spare and t.ready_queue.ready & ~t.blocked_classes:
            worker_id = next(iter(spare))
            worker = t.fleet.workers[worker_id]
            job = self._job_for(worker)
            slot = None if job is None else self._take_slot(worker, job)
            del spare[worker_id]
            if job is not None and slot is not None:
                return PrefetchChoice(job, worker, slot)
        return None

    def note_prefetched(self, choice: PrefetchChoice, entry: ExecutionEntry) -> None:
        """Adds the prefetched execution as the last at its place."""
        terms, slot = choice.job.spec.terms, choice.slot
        length = self._length(terms)
        grown = PrefetchSlot(
            slot.work + length, slot.orders + 1, entry.execution.id, terms.needs.resources
        )
        heappush(self._slots[choice.worker.worker.id], grown)

    def _job_for(self, worker: WorkerEntry) -> JobEntry | None:
        """The next job for the worker, if it may be prefetched."""
        t = self._t
        if worker.worker.id in t.being_preempted or not t.fleet.is_online(worker.worker.id):
            return None
        class_queue = t.ready_queue.first(t.fleet.able(worker.machine) & ~t.blocked_classes)
        if (
            class_queue is None
            or class_queue.job_class.has_preference
            or class_queue.job_class.needs.affinity is not None
        ):
            return None
        head = t.ready_queue.head(class_queue)
        if is_spill_marker(head):
            t.ready_queue.note_empty(head)  # the head is in the store and must be loaded first
            return None
        job = t.jobs[head[2]]
        if not self._may_wait_there(job) or t.fleet.choose(class_queue.job_class) is not None:
            return None
        return job

    def _may_wait_there(self, job: JobEntry) -> bool:
        terms = job.spec.terms
        return (
            job.spec.group is None
            and not terms.preemptible
            and terms.semantics is Semantics.AT_LEAST_ONCE
            and self._t.runtime_estimates.short_runtime(terms) is not None
        )

    def _take_slot(self, worker: WorkerEntry, job: JobEntry) -> PrefetchSlot | None:
        """Removes and returns the place with the least work that is large enough."""
        slots = self._slots.get(worker.worker.id)
        if slots is None:
            slots = self._slots[worker.worker.id] = self._slots_of(worker)
        small: list[PrefetchSlot] = []
        found: PrefetchSlot | None = None
        while slots and found is None:
            slot = heappop(slots)
            if fits(job.spec.terms.needs.resources, slot.free):
                found = slot
            else:
                small.append(slot)
        for slot in small:
            heappush(slots, slot)
        if found is None or found.work > PREFETCH_MS or found.orders >= PREFETCH_CHAIN:
            return None
        return found

    def _slots_of(self, worker: WorkerEntry) -> list[PrefetchSlot]:
        t = self._t
        slots = []
        for execution_id, free in worker.held.items():
            entry = t.executions[execution_id]
            if not worker.is_prefetched(entry.execution):
                work = self._work_left(entry)
                if work is not None:
                    slots.append(
                        self._with_prefetched(worker, PrefetchSlot(work, 0, execution_id, free))
                    )
        heapify(slots)
        return slots

    def _work_left(self, entry: ExecutionEntry) -> Millis | None:
        """How long the execution takes, if it will end soon."""
        job = self._t.jobs[entry.execution.job_id]
        is_late = self._now - entry.since > SHORT_MS
        if is_late or entry.execution.stop is not None or job.spec.group is not None:
            return None
        return self._t.runtime_estimates.short_runtime(job.spec.terms)

    def _length(self, terms: Terms) -> Millis:
        """Length of a prefetched job, whose estimate may have grown since."""
        length = self._t.runtime_estimates.short_runtime(terms)
        return SHORT_MS if length is None else length

    def _with_prefetched(self, worker: WorkerEntry, slot: PrefetchSlot) -> PrefetchSlot:
        t = self._t
        while slot.last in worker.prefetched:
            prefetched_id, free = worker.prefetched[slot.last]
            terms = t.jobs[t.executions[prefetched_id].execution.job_id].spec.terms
            length = self._length(terms)
            slot = PrefetchSlot(slot.work + length, slot.orders + 1, prefetched_id, free)
        return slot
