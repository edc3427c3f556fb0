"""Merge queue of the jobs of one class and account: k FIFO runs and a heap.

A FIFO group is made of jobs of one class, tenant, priority and length, which go by arrival alone;
the rear of a long one is spilled to the store. Each long group has a run, to which its jobs are
appended, and only the first of each run are compared. Whoever comes out of order, or is of a short
group, is in the heap. Which group a job is in never depends on the policy or on estimates.
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
"""(tenant, priority, length or -1, 0); a line of the store that fits none has its number last."""

_LENGTH_BITS = 5


def fifo_group_key(terms: Terms) -> FifoGroupKey:
    """The lane of jobs like this."""
    length = terms.expected_runtime_ms
    return (terms.tenant, terms.priority, -1 if length is None else rounded_length(length), 0)


def rounded_length(length: Millis) -> Millis:
    """To sixteen steps for each doubling: jobs of about the same length are alike."""
    spare = length.bit_length() - _LENGTH_BITS
    return length if spare <= 0 else length >> spare << spare


def power_of_four_below(length: Millis) -> Millis:
    """The largest power of four that is no longer."""
    return 1 << (length.bit_length() - 1 & ~1) if length > 0 else 0


class FifoGroup:
    """The jobs of one lane, in memory and on the shelf."""

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
        """Jobs in memory that stand in line."""
        self.run: deque[Any] | None = None
        """Their entries in line, as far as they came in order (row.py); None: there were few."""
        self.run_end: OrderKey = (0, 0, JobId(""))
        """The newest of these, if there are any."""
        self.spilled = 0
        """Jobs on the shelf."""
        self.spill_queue = key[3]
        """The line of the store; 0 as long as none was needed."""
        self.boundary = 0
        """No job on the shelf arrived before this."""
        self.boundary_spec: Spec | None = None
        """The first job on the shelf, or the last before it: tells where the mark stands."""
        self.spill_marker: OrderKey | None = None
        """What stands in line for the first job on the shelf."""
        self.request_id = 0
        """The ticket of the question to the store that is under way; 0: none is."""
        self.empty = False
        """Whether a worker had room for a job that is on the shelf."""
        self.urgent = False
        """Whether the question under way is answered as soon as can be."""
        self.complete = False
        """Whether what the store had on the shelf behind the edge, whenever it is read, is still on
        it: nobody has left it by name since it was last known to be so, and it was not short."""
        self.spilled_since_request = 0
        """Jobs put on the shelf since the store was asked."""
        self.left_since_request: dict[JobId, None] = {}
        """Jobs from behind the edge that left the store's line since it was asked."""
        self.spilled_life: Life | None = None
        """The life of the jobs put on the shelf in this turn: one for all of them."""

    def left_by_name(self, job_id: JobId) -> None:
        """A job has left the shelf from behind the edge; the store may be read before it knows."""
        if self.request_id:
            self.left_since_request[job_id] = None
        else:
            self.complete = False


FifoRun: TypeAlias = deque[Any]
"""Place, arrival, job, place, arrival, job and so on: a tuple for each would take three times the
memory, and a million may wait."""


def _entries(run: FifoRun) -> Iterator[OrderKey]:
    one_by_one = iter(run)
    return zip(one_by_one, one_by_one, one_by_one, strict=True)


class MergeQueue:
    """Entries, some of them stale: whoever leaves a line is passed over later."""

    __slots__ = ("_fronts", "_others", "_runs_made", "long_fifo_group", "size")

    def __init__(self, long_fifo_group: int = LONG_FIFO_GROUP) -> None:
        self.long_fifo_group = long_fifo_group
        """Jobs of a lane before the next ones get a run."""
        self._fronts: list[tuple[OrderKey, int, FifoRun]] = []
        """The first of each run, the smallest first; a number tells equals apart."""
        self._others: list[OrderKey] = []
        """Those of no run, the smallest first."""
        self._runs_made = 0
        self.size = 0
        """How many there are; asked for at every start."""

    def add(self, entry: OrderKey, fifo_group: FifoGroup) -> None:
        """A job of the lane stands in line."""
        self.size += 1
        run = fifo_group.run
        if run is None:
            if fifo_group.in_memory < self.long_fifo_group:
                heappush(self._others, entry)
                return
            run = fifo_group.run = deque()
        if not run:
            self._runs_made += 1
            heappush(self._fronts, (entry, self._runs_made, run))
        elif entry <= fifo_group.run_end:
            heappush(self._others, entry)
            return
        run += entry
        fifo_group.run_end = entry

    def add_run(self, entries: Sequence[OrderKey], fifo_group: FifoGroup) -> None:
        """Many jobs of the lane, each behind the one before, stand in line."""
        run = fifo_group.run
        if run is None:
            run = fifo_group.run = deque()
        if not run:
            self._runs_made += 1
            heappush(self._fronts, (entries[0], self._runs_made, run))
        elif entries[0] <= fifo_group.run_end:
            for entry in entries:
                self.add(entry, fifo_group)
            return
        self.size += len(entries)
        run.extend(chain.from_iterable(entries))
        fifo_group.run_end = entries[-1]

    def add_spill_marker(self, marker: OrderKey) -> None:
        """The mark of a shelf stands in line."""
        self.size += 1
        heappush(self._others, marker)

    def first(self) -> OrderKey:
        """The smallest; there is one."""
        fronts, others = self._fronts, self._others
        if not others or (fronts and fronts[0][0] < others[0]):
            return fronts[0][0]
        return others[0]

    def drop_first(self) -> None:
        """The smallest is not in line any more."""
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
        """The run that the smallest entry is of, and the smallest of no run or another.

        None: the smallest is of no run.
        """
        fronts, others = self._fronts, self._others
        if not fronts or (others and others[0] < fronts[0][0]):
            return None
        rest = others[:1] + [entry for entry, _, _ in fronts[1:3]]  # both are heaps
        return _entries(fronts[0][2]), min(rest, default=None)

    def drop_from_first_run(self, count: int) -> None:
        """The first so many of that run, which come before all others, are in line no more."""
        _, number, run = self._fronts[0]
        self.size -= count
        for _ in range(3 * count):
            run.popleft()
        if run:
            heapreplace(self._fronts, ((run[0], run[1], run[2]), number, run))
        else:
            heappop(self._fronts)

    def compact(self, stands: Callable[[OrderKey], bool]) -> None:
        """Only those stay that still mean something."""
        self._others = [entry for entry in self._others if stands(entry)]
        heapify(self._others)
        fronts, self._fronts = self._fronts, []
        for _, number, run in fronts:
            kept = [entry for entry in _entries(run) if stands(entry)]
            run.clear()
            run.extend(chain.from_iterable(kept))
            if kept:
                self._fronts.append((kept[0], number, run))
        heapify(self._fronts)
        self.size = len(self._others) + sum(len(run) for _, _, run in self._fronts) // 3

    def __iter__(self) -> Iterator[OrderKey]:
        """All of them, in no order that means anything."""
        yield from self._others
        for _, _, run in self._fronts:
            yield from _entries(run)

    def in_order(self) -> Iterator[OrderKey]:
        """The smallest first; nobody may come or go meanwhile. Costs what is looked at."""
        runs = [_entries(run) for _, _, run in self._fronts]
        return merge(self._others_in_order(), *runs)

    def _others_in_order(self) -> Iterator[OrderKey]:
        heap = self._others
        ahead = [(heap[0], 0)] if heap else []
        while ahead:
            entry, index = heappop(ahead)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heappush(ahead, (heap[child], child))
            yield entry
