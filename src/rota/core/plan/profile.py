"""How much of one worker is free from when to when: what runs there, and what is planned."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TypeAlias

from rota.core.memory.cells import WorkerEntry
from rota.core.model import Instant, Millis, Resources
from rota.core.resources import fits, minus, plus

PlannedUse: TypeAlias = tuple[Instant, Instant, Resources]
"""(from, until, how much)."""


class Availability:
    """Stretches of time, each with what is free in it; the last one never ends."""

    def __init__(
        self, worker: WorkerEntry, now: Instant, planned: Iterable[PlannedUse] = ()
    ) -> None:
        changes = [(at, 1, worker.held[execution_id]) for at, execution_id in worker.ends]
        for start, end, amount in planned:
            changes += ((start, -1, amount), (end, 1, amount))
        changes.sort(key=lambda change: change[0])
        self._times = [now]
        self._free = [worker.free]
        for at, sign, amount in changes:
            if at > self._times[-1]:
                self._times.append(at)
                self._free.append(self._free[-1])
            before = self._free[-1]
            self._free[-1] = plus(before, amount) if sign > 0 else minus(before, amount)

    def earliest(self, needs: Resources, length: Millis) -> Instant:
        """The first time from which on there is room for so long."""
        times, begin = self._times, self._times[0]
        for index, free in enumerate(self._free):
            if not fits(needs, free):
                begin = -1
                continue
            if begin < 0:
                begin = times[index]
            if index + 1 == len(times) or times[index + 1] >= begin + length:
                return begin
        raise AssertionError("a worker that could run it has room in the end")

    def earlier(self, needs: Resources, length: Millis, than: Instant) -> Instant | None:
        """The first time for a job that has its place here already; None: not before that one.

        From its place on there is always room for it, since it is taken by itself.
        """
        times, begin = self._times, -1
        for index, free in enumerate(self._free):
            if times[index] >= than:
                break
            if not fits(needs, free):
                begin = -1
                continue
            if begin < 0:
                begin = times[index]
            if index + 1 == len(times) or times[index + 1] >= min(begin + length, than):
                return begin
        return None

    def take(self, start: Instant, length: Millis, needs: Resources) -> None:
        """So much is taken from then on for so long."""
        self._change(start, start + length, needs, taken=True)

    def give(self, start: Instant, length: Millis, needs: Resources) -> None:
        """What was taken is free again."""
        self._change(start, start + length, needs, taken=False)

    def _change(self, start: Instant, end: Instant, needs: Resources, *, taken: bool) -> None:
        first, last = self._split(start), self._split(end)
        for index in range(first, last):
            free = self._free[index]
            self._free[index] = minus(free, needs) if taken else plus(free, needs)

    def _split(self, at: Instant) -> int:
        """The index of the stretch that begins at this time."""
        index = bisect_right(self._times, at) - 1
        if self._times[index] != at:
            index += 1
            self._times.insert(index, at)
            self._free.insert(index, self._free[index - 1])
        return index
