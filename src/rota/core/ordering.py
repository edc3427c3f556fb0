"""WHICH job is next: lines of alike jobs, and the choice among the heads of the lines.

Jobs with the same queue and needs form a class. A worker has room for the first of a class or for
none of it, so a decision looks at the heads only, and its cost does not depend on what waits.
Classes are numbered, and a set of classes is the bits of one integer.

The jobs of a class with one priority are a lane, which goes by arrival alone. The rear of a long
lane may be on the shelf (shelving.py); a mark stands in its place in line, so that nobody who
comes after what is on the shelf goes before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from rota.core.cells import NO_CLASS, JobCell, LineKey, QueueCell
from rota.core.ids import line_number
from rota.core.limits import CLASSES_KEPT
from rota.core.model import JobId, Life, Needs

ON_SHELF = JobId("")
"""Stands in a line for the first job of a lane that is on the shelf: it comes before every id."""


class Lane:
    """The jobs of one class and one priority."""

    __slots__ = (
        "arrived",
        "asked",
        "class_index",
        "dry",
        "edge",
        "gone",
        "hurried",
        "kept",
        "life",
        "number",
        "priority",
        "shelved",
    )

    def __init__(self, class_index: int, priority: int) -> None:
        self.class_index = class_index
        self.priority = priority
        self.kept = 0
        """Jobs in memory that stand in line."""
        self.shelved = 0
        """Jobs on the shelf."""
        self.number = 0
        """The line of the store; 0 as long as none was needed."""
        self.edge = 0
        """No job on the shelf arrived before this."""
        self.asked = 0
        """The ticket of the question to the store that is under way; 0: none is."""
        self.dry = False
        """Whether a worker had room for a job that is on the shelf."""
        self.hurried = False
        """Whether the question under way says so."""
        self.arrived = 0
        """Jobs put on the shelf since the store was asked."""
        self.gone: dict[JobId, None] = {}
        """Jobs from behind the edge that left the store's line since it was asked."""
        self.life: Life | None = None
        """The life of the jobs put on the shelf in this turn: one for all of them."""


class JobClass:
    """A line of jobs that are alike for scheduling."""

    __slots__ = (
        "bit",
        "cursor",
        "first",
        "heap",
        "index",
        "lanes",
        "needs",
        "offers",
        "queue",
        "shelved",
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
        self.shelved = 0
        """Jobs that are on the shelf."""
        self.lanes: dict[int, Lane] = {}
        """By priority; those with jobs in line or on the shelf."""
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
        self.numbered: dict[int, Lane] = {}
        """Lanes with a line in the store, by its number."""
        self.shelves = 0
        """How many lanes have jobs on the shelf."""
        self.touched: dict[int, Lane] = {}
        """Lanes with jobs on the shelf that may want some of them back."""
        self.ready = 0
        """Bits of the classes with jobs in line or on the shelf."""
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
        self._lane_of(job_class, -key[0]).kept += 1
        job_class.waiting += 1
        if job_class.first is not None and key < job_class.first:
            job_class.first = key
        cell.class_index = job_class.index
        if not self.ready & job_class.bit:
            job_class.first = key
            self._empty.pop(job_class.index, None)
            self.ready |= job_class.bit
        return job_class

    def _lane_of(self, job_class: JobClass, priority: int) -> Lane:
        lane = job_class.lanes.get(priority)
        if lane is None:
            lane = job_class.lanes[priority] = Lane(job_class.index, priority)
        return lane

    def leave(self, cell: JobCell) -> None:
        """The job stands in line no longer, if it did; its entry is passed over later."""
        if cell.class_index == NO_CLASS:
            return
        job_class = self.classes[cell.class_index]
        cell.class_index = NO_CLASS
        job_class.waiting -= 1
        if job_class.first is not None and job_class.first[2] == cell.id:
            job_class.first = None
        lane = job_class.lanes[cell.spec.terms.priority]
        lane.kept -= 1
        if lane.shelved:
            self.touched[lane.number] = lane
        elif not lane.kept:
            del job_class.lanes[lane.priority]
            self.numbered.pop(lane.number, None)
        if not job_class.waiting and not job_class.shelved:
            job_class.heap.clear()
            self.ready &= ~job_class.bit
            self._empty[job_class.index] = None
        elif len(job_class.heap) > 2 * job_class.waiting + 64:
            job_class.heap = [entry for entry in job_class.heap if self._stands(entry, job_class)]
            heapify(job_class.heap)

    # The shelf

    def lane(self, queue: str, needs: Needs, priority: int) -> Lane | None:
        """The lane of jobs like this, if there are any."""
        job_class = self._by_key.get((queue, needs))
        return None if job_class is None else job_class.lanes.get(priority)

    def shelved_of(self, queue: QueueCell) -> int:
        """How many jobs of the queue are on the shelf."""
        if not self.shelves:
            return 0
        classes = (one for one in self.classes if one.bit & queue.class_mask)
        return sum(job_class.shelved for job_class in classes)

    def shelve(self, lane: Lane, order: int, count: int = 1) -> None:
        """So many jobs of the lane, the first of which arrived as number `order`, are put away."""
        job_class = self.classes[lane.class_index]
        if not lane.number:
            lane.number = line_number(job_class.queue.queue.name, job_class.needs, lane.priority)
        self.numbered[lane.number] = lane
        if not lane.shelved:
            self.shelves += 1
            self.move_edge(lane, order)
        lane.shelved += count
        job_class.shelved += count

    def unshelve(self, lane: Lane) -> None:
        """A job of the lane is back: it stands in line already, so the class is not empty."""
        job_class = self.classes[lane.class_index]
        lane.shelved -= 1
        job_class.shelved -= 1
        if not lane.shelved:
            self.shelves -= 1
            self._forget_mark(job_class)

    def move_edge(self, lane: Lane, edge: int) -> None:
        """No job of the lane that is on the shelf arrived before `edge`: the mark goes there."""
        job_class = self.classes[lane.class_index]
        lane.edge = edge
        heappush(job_class.heap, (-lane.priority, edge, ON_SHELF))
        self._forget_mark(job_class)

    def _forget_mark(self, job_class: JobClass) -> None:
        if job_class.first is not None and job_class.first[2] == ON_SHELF:
            job_class.first = None

    # Choosing

    def head(self, job_class: JobClass) -> LineKey:
        """The first entry of a class that is ready: a job's, or the mark of a shelf."""
        if job_class.first is None:
            heap = job_class.heap
            while not self._stands(heap[0], job_class):
                heappop(heap)
            job_class.first = heap[0]
        return job_class.first

    def _stands(self, entry: LineKey, job_class: JobClass) -> bool:
        cell = self._jobs.get(entry[2])
        if entry[2] == ON_SHELF:
            lane = job_class.lanes.get(-entry[0])
            return lane is not None and lane.shelved > 0 and lane.edge == entry[1]
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
