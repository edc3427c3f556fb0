"""Merge queue of the jobs of one class and account: k FIFO runs and a heap.

A FIFO group is made of jobs of one class, tenant, priority and length, which go by arrival alone;
the rear of a long one is spilled to the store. Each long group has a run, to which its jobs are
appended, and only the first of each run are compared. A job that comes out of order, or is of a
short group, is in the heap. Which group a job is in never depends on the policy or on estimates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace, merge
from itertools import chain
from typing import Any, TypeAlias

from rota.core.entries import OrderKey
from rota.core.limits import LONG_FIFO_GROUP
from rota.core.model import JobId, Life, Millis, Spec, Terms

FifoGroupKey: TypeAlias = tuple[str, int, Millis, int]
"""(tenant, priority, rounded length or -1, 0); a spill queue of an older version has its number
last."""

_LENGTH_BITS = 5


def fifo_group_key(terms: Terms) -> FifoGroupKey:
    """Key of the FIFO group of jobs with these terms."""
    length = terms.expected_runtime_ms
    return (terms.tenant, terms.priority, -1 if length is None else rounded_length(length), 0)


def rounded_length(length: Millis) -> Millis:
    """Rounds down to one of sixteen steps for each doubling, so that similar lengths are equal."""
    shift = length.bit_length() - _LENGTH_BITS
    return length if shift <= 0 else length >> shift << shift


def power_of_four_below(length: Millis) -> Millis:
    """Largest power of four that is not more."""
    return 1 << (length.bit_length() - 1 & ~1) if length > 0 else 0


class FifoGroup:
    """FIFO group: jobs of one class that go by arrival, in memory and in a spill queue."""

    __slots__ = (
        "boundary",
        "boundary_spec",
        "class_index",
        "complete",
        "empty",
        "in_memory",
        "key",
        "left_since_request",
        "request_id",
        "run",
        "run_end",
        "spill_marker",
        "spill_queue",
        "spilled",
        "spilled_life",
        "spilled_since_request",
        "urgent",
    )

    def __init__(self, class_index: int, key: FifoGroupKey) -> None:
        self.class_index = class_index
        self.key = key
        self.in_memory = 0
        """Waiting jobs in memory."""
        self.run: deque[Any] | None = None
        """Keys of those that came in order, in the merge queue; None: there were few."""
        self.run_end: OrderKey = (0, 0, JobId(""))
        """Newest key of the run, if there are any."""
        self.spilled = 0
        """Jobs in the spill queue."""
        self.spill_queue = key[3]
        """Number of the spill queue; 0: none was needed yet."""
        self.boundary = 0
        """No spilled job arrived before this."""
        self.boundary_spec: Spec | None = None
        """The first spilled job, or the last one before it: gives the spill marker its position."""
        self.spill_marker: OrderKey | None = None
        """Key that stands for the first spilled job in the class queue."""
        self.request_id = 0
        """Number of the refill that was requested and not answered; 0: none."""
        self.empty = False
        """Whether a worker had free capacity for a spilled job."""
        self.urgent = False
        """Whether the requested refill is answered as soon as possible."""
        self.complete = False
        """Whether all spilled jobs behind the boundary that the store had when it was last read are
        still spilled: none was loaded by id since, and the answer was not short."""
        self.spilled_since_request = 0
        """Jobs spilled since the refill was requested."""
        self.left_since_request: dict[JobId, None] = {}
        """Spilled jobs behind the boundary that were loaded by id since the refill was
        requested."""
        self.spilled_life: Life | None = None
        """Life of the jobs spilled in this turn: one object for all."""

    def left_by_name(self, job_id: JobId) -> None:
        """Notes that a job was loaded by id; the store may be read before it knows."""
        if self.request_id:
            self.left_since_request[job_id] = None
        else:
            self.complete = False


FifoRun: TypeAlias = deque[Any]
"""sort key, arrival number, job id, sort key, arrival number and so on: a tuple for each would take
three times the memory, and a million may wait."""


def _entries(run: FifoRun) -> Iterator[OrderKey]:
    one_by_one = iter(run)
    return zip(one_by_one, one_by_one, one_by_one, strict=True)


class MergeQueue:
    """Merge queue of keys, some of them stale: they are removed later than their jobs."""

    __slots__ = ("_fronts", "_others", "_runs_made", "long_fifo_group", "size")

    def __init__(self, long_fifo_group: int = LONG_FIFO_GROUP) -> None:
        self.long_fifo_group = long_fifo_group
        """Jobs of a FIFO group before more get a run."""
        self._fronts: list[tuple[OrderKey, int, FifoRun]] = []
        """Heap of the first keys of the runs; a number breaks ties."""
        self._others: list[OrderKey] = []
        """Heap of the keys that are in no run."""
        self._runs_made = 0
        self.size = 0
        """Number of keys; a field, because it is read at every start."""

    def add(self, key: OrderKey, fifo_group: FifoGroup) -> None:
        """Adds a job of the FIFO group."""
        self.size += 1
        run = fifo_group.run
        if run is None:
            if fifo_group.in_memory < self.long_fifo_group:
                heappush(self._others, key)
                return
            run = fifo_group.run = deque()
        if not run:
            self._runs_made += 1
            heappush(self._fronts, (key, self._runs_made, run))
        elif key <= fifo_group.run_end:
            heappush(self._others, key)
            return
        run += key
        fifo_group.run_end = key

    def add_run(self, entries: Sequence[OrderKey], fifo_group: FifoGroup) -> None:
        """Adds many jobs of the FIFO group, in order."""
        run = fifo_group.run
        if run is None:
            run = fifo_group.run = deque()
        if not run:
            self._runs_made += 1
            heappush(self._fronts, (entries[0], self._runs_made, run))
        elif entries[0] <= fifo_group.run_end:
            for key in entries:
                self.add(key, fifo_group)
            return
        self.size += len(entries)
        run.extend(chain.from_iterable(entries))
        fifo_group.run_end = entries[-1]

    def add_spill_marker(self, marker: OrderKey) -> None:
        """Adds the spill marker of a FIFO group."""
        self.size += 1
        heappush(self._others, marker)

    def first(self) -> OrderKey:
        """Smallest key; there must be one."""
        fronts, others = self._fronts, self._others
        if not others or (fronts and fronts[0][0] < others[0]):
            return fronts[0][0]
        return others[0]

    def drop_first(self) -> None:
        """Removes the smallest key."""
        self.size -= 1
        fronts, others = self._fronts, self._others
        if others and not (fronts and fronts[0][0] < others[0]):
            heappop(others)
            return
        _, number, run = fronts[0]
        run.popleft()
        run.popleft()
        run.popleft()
        if run:
            heapreplace(fronts, ((run[0], run[1], run[2]), number, run))
        else:
            heappop(fronts)

    def first_run(self) -> tuple[Iterator[OrderKey], OrderKey | None] | None:
        """Run of the smallest key, and the smallest key outside of it.

        None: the smallest key is in no run.
        """
        fronts, others = self._fronts, self._others
        if not fronts or (others and others[0] < fronts[0][0]):
            return None
        rest = others[:1] + [key for key, _, _ in fronts[1:3]]  # both are heaps
        return _entries(fronts[0][2]), min(rest, default=None)

    def drop_from_first_run(self, count: int) -> None:
        """Removes the first keys of that run, which must come before all others."""
        _, number, run = self._fronts[0]
        self.size -= count
        for _ in range(3 * count):
            run.popleft()
        if run:
            heapreplace(self._fronts, ((run[0], run[1], run[2]), number, run))
        else:
            heappop(self._fronts)

    def compact(self, is_current: Callable[[OrderKey], bool]) -> None:
        """Removes stale keys."""
        self._others = [key for key in self._others if is_current(key)]
        heapify(self._others)
        fronts, self._fronts = self._fronts, []
        for _, number, run in fronts:
            kept = [key for key in _entries(run) if is_current(key)]
            run.clear()
            run.extend(chain.from_iterable(kept))
            if kept:
                self._fronts.append((kept[0], number, run))
        heapify(self._fronts)
        self.size = len(self._others) + sum(len(run) for _, _, run in self._fronts) // 3

    def __iter__(self) -> Iterator[OrderKey]:
        """All keys, in no particular order."""
        yield from self._others
        for _, _, run in self._fronts:
            yield from _entries(run)

    def in_order(self) -> Iterator[OrderKey]:
        """All keys in order, read lazily; the queue must not change meanwhile."""
        runs = [_entries(run) for _, _, run in self._fronts]
        return merge(self._others_in_order(), *runs)

    def _others_in_order(self) -> Iterator[OrderKey]:
        heap = self._others
        frontier = [(heap[0], 0)] if heap else []
        while frontier:
            key, index = heappop(frontier)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heappush(frontier, (heap[child], child))
            yield key
