"""The part of a store that a scheduler needs: the rear of long lines, and the way back.

In columns, because ten million waiting jobs must fit beside the scheduler: a job that waits for
nothing but a worker is told by its terms, its place and its time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from rota.core.commands import Refilled
from rota.core.model import JobRecord, Life, Terms
from rota.core.outcome import AnyWrite, PutJob, Refill
from rota.simulate.posting import job_id, place_of, spec_of

TRIM_ROWS = 65_536
"""Rows that are behind go in pieces of at least so many: each time the rest is moved."""


class _SpillQueue:
    """The jobs of one line, by arrival."""

    __slots__ = ("created", "lives", "orders", "places", "terms")

    def __init__(self) -> None:
        self.orders = array("q")
        self.places = array("q")
        self.created = array("q")
        self.terms: list[Terms] = []
        self.lives: list[Life] = []

    def append(self, write: PutJob) -> None:
        self.orders.append(write.spec.arrival_number)
        self.places.append(place_of(write.id))
        self.created.append(write.spec.created_at)
        self.terms.append(write.spec.terms)
        self.lives.append(write.life)

    def record(self, row: int) -> JobRecord:
        spec = spec_of(self.terms[row], self.created[row], order=self.orders[row])
        return JobRecord(job_id(self.places[row]), spec, self.lives[row])

    def forget(self, count: int) -> None:
        del self.orders[:count], self.places[:count], self.created[:count]
        del self.terms[:count], self.lives[:count]


class SpillStore:
    """Keeps what the scheduler puts away, and answers what it asks for."""

    def __init__(self) -> None:
        self._queues: dict[int, _SpillQueue] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def keep(self, writes: Iterable[AnyWrite]) -> None:
        """Takes the jobs that were put on the shelf out of a turn's writes."""
        for write in writes:
            if isinstance(write, PutJob) and write.life.line:
                line = self._queues.get(write.life.line)
                if line is None:
                    line = self._queues[write.life.line] = _SpillQueue()
                line.append(write)

    def answer(self, refill: Refill) -> Refilled:
        """The next jobs of a line."""
        line = self._queues[refill.spill_queue]
        begin = bisect_right(line.orders, refill.after)
        if begin >= TRIM_ROWS and 2 * begin >= len(line.orders):
            line.forget(begin)
            begin = 0
        rows = range(begin, min(begin + refill.limit, len(line.orders)))
        return Refilled(refill=refill, jobs=tuple(line.record(row) for row in rows))
