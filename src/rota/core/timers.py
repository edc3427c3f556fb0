"""Timers of the scheduler: one heap with lazy deletion; stale timers are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from rota.core.model import Instant


class TimerKind(IntEnum):
    """Subject of a timer; its key is the id of the job, worker, queue, ..."""

    JOB = 0
    WORKER = 1
    POLL = 2
    QUEUE = 3
    PROGRESS = 4
    SCHEDULE = 5
    WINDOW = 6
    DEADLINE = 7
    PLACE = 8


Timer: TypeAlias = tuple[Instant, int, TimerKind, str]


class Timers:
    """Heap of timers. To change one, set another: whoever fires one checks that it is current."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, when: Instant, kind: TimerKind, key: str) -> None:
        self._count += 1
        heappush(self._heap, (when, self._count, kind, key))

    def next_due(self) -> Instant | None:
        """Time of the next timer, stale or not."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: Instant, most: int) -> Iterator[Timer]:
        """Removes and returns timers due by `now`, ordered by time, then by when they were set."""
        for _ in range(most):
            if not self._heap or self._heap[0][0] > now:
                return
            yield heappop(self._heap)

    def sweep(self, is_current: Callable[[Timer], bool]) -> None:
        """Drops stale timers; called when they may be the majority."""
        self._heap = [timer for timer in self._heap if is_current(timer)]
        heapify(self._heap)
