"""WHICH job is next: lines of alike jobs, and the choice among the heads of the lines.

Jobs with the same queue and needs form a class. A worker has room for the first of a class or for
none of it, so a decision looks at the heads only, and its cost does not depend on what waits.
Classes are numbered, and a set of classes is the bits of one integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from rota.core.cells import NO_CLASS, JobCell, LineKey, QueueCell
from rota.core.limits import CLASSES_KEPT
from rota.core.model import JobId, Needs


class JobClass:
    """A line of jobs that are alike for scheduling."""

    __slots__ = (
        "bit",
        "cursor",
        "first",
        "heap",
        "index",
        "needs",
        "offers",
        "queue",
        "waiting",
    )

    def __init__(self, index: int, queue: QueueCell, needs: Needs) -> None:
        self.index = index
        self.bit = 1 << index
        self.queue = queue
        self.needs = needs
        self.heap: list[LineKey] = []
        self.first: LineKey | None = None
        """The head of the line; None: to be looked up again."""
        self.waiting = 0
        """Jobs in line; the heap may hold more entries than that, stale ones."""
        self.offers: list[tuple[int, int, int, str, int]] = []
        """Workers that may fit, best first; kept by placement.py."""
        self.cursor = -1
        """How far placement.py has read the log of opened workers for this class."""


class Lines:
    """All classes, and which of them have jobs in line."""

    def __init__(self, jobs: Mapping[JobId, JobCell]) -> None:
        self._jobs = jobs
        self.classes: list[JobClass] = []
        self._by_key: dict[tuple[str, Needs], JobClass] = {}
        self._empty: dict[int, None] = {}
        self.ready = 0
        """Bits of the classes with jobs in line."""
        self.fresh = 0
        """Bits of classes made since placement.py last looked."""
        self.reused = 0
        """Grows when a number is given to another class: whoever remembers bits must forget."""

    def join(self, cell: JobCell, queue: QueueCell) -> JobClass:
        """The job stands in line."""
        assert cell.class_index == NO_CLASS
        job_class = self._class_of(queue, cell.spec.terms.needs)
        key = cell.line_key()
        heappush(job_class.heap, key)
        job_class.waiting += 1
        if job_class.waiting == 1 or (job_class.first is not None and key < job_class.first):
            job_class.first = key
        cell.class_index = job_class.index
        if job_class.waiting == 1:
            self._empty.pop(job_class.index, None)
            self.ready |= job_class.bit
        return job_class

    def leave(self, cell: JobCell) -> None:
        """The job stands in line no longer, if it did; its entry is passed over later."""
        if cell.class_index == NO_CLASS:
            return
        job_class = self.classes[cell.class_index]
        cell.class_index = NO_CLASS
        job_class.waiting -= 1
        if job_class.first is not None and job_class.first[2] == cell.id:
            job_class.first = None
        if not job_class.waiting:
            job_class.heap.clear()
            self.ready &= ~job_class.bit
            self._empty[job_class.index] = None
        elif len(job_class.heap) > 2 * job_class.waiting + 64:
            job_class.heap = [entry for entry in job_class.heap if self._stands(entry, job_class)]
            heapify(job_class.heap)

    def head(self, job_class: JobClass) -> LineKey:
        """The first entry of a class that has jobs in line."""
        if job_class.first is None:
            heap = job_class.heap
            while not self._stands(heap[0], job_class):
                heappop(heap)
            job_class.first = heap[0]
        return job_class.first

    def _stands(self, entry: LineKey, job_class: JobClass) -> bool:
        cell = self._jobs.get(entry[2])
        return (
            cell is not None
            and cell.class_index == job_class.index
            and cell.spec.terms.priority == -entry[0]
        )

    def first(self, mask: int) -> JobClass | None:
        """The class among `mask` whose head goes first: queue's priority, job's, arrival."""
        mask &= self.ready
        if not mask:
            return None
        classes = self.classes
        best = classes[mask.bit_length() - 1]
        best_head, best_priority = best.first or self.head(best), best.queue.queue.priority
        mask ^= best.bit
        while mask:
            bit = mask & -mask
            mask ^= bit
            other = classes[bit.bit_length() - 1]
            head, priority = other.first or self.head(other), other.queue.queue.priority
            if priority > best_priority or (priority == best_priority and head < best_head):
                best, best_head, best_priority = other, head, priority
        return best

    def of_job(self, cell: JobCell) -> JobClass | None:
        """The class a job stands in line with."""
        return None if cell.class_index == NO_CLASS else self.classes[cell.class_index]

    def _class_of(self, queue: QueueCell, needs: Needs) -> JobClass:
        key = (queue.queue.name, needs)
        job_class = self._by_key.get(key)
        if job_class is None:
            job_class = self._make(queue, needs)
            self._by_key[key] = job_class
        return job_class

    def _make(self, queue: QueueCell, needs: Needs) -> JobClass:
        if len(self.classes) < CLASSES_KEPT or not self._empty:
            job_class = JobClass(len(self.classes), queue, needs)
            self.classes.append(job_class)
        else:
            index = next(iter(self._empty))
            del self._empty[index]
            old = self.classes[index]
            old.queue.class_mask &= ~old.bit
            del self._by_key[(old.queue.queue.name, old.needs)]
            job_class = JobClass(index, queue, needs)
            self.classes[index] = job_class
            self.reused += 1
        queue.class_mask |= job_class.bit
        self.fresh |= job_class.bit
        self._empty[job_class.index] = None
        return job_class
