"""Timers of the scheduler: one heap with lazy deletion; stale entries are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from rota.core.model import Instant


class TimerKind(IntEnum):
    """What an entry is about; its key says of which."""

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
    """A heap with lazy deletion. Whoever rings must check that the entry still means something."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, when: Instant, alarm: TimerKind, key: str) -> None:
        """Rings at `when`."""
        self._count += 1
        heappush(self._heap, (when, self._count, alarm, key))

    def next_due(self) -> Instant | None:
        """When the next entry rings, stale or not."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: Instant, most: int) -> Iterator[Timer]:
        """Takes out the first that ring by `now`, in order of time, then of setting."""
        for _ in range(most):
            if not self._heap or self._heap[0][0] > now:
                return
            yield heappop(self._heap)

    def sweep(self, alive: Callable[[Timer], bool]) -> None:
        """Drops stale entries; called when they may be the most."""
        self._heap = [entry for entry in self._heap if alive(entry)]
        heapify(self._heap)
