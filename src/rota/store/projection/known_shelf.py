"""Jobs on the shelf as they were read for memory: the fold need not look for them a second time.

Whoever reads a shelf asks, in the same view of the tables, which fold was the last one. If that was
one of this process, it is known what this process has written since. Whatever any of those later
folds has touched is not taken up, nor is anything of a read that saw another server's fold, or the
database that was the primary before. Those are looked up, as if nobody had read them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec

from rota.core.model import JobId, Spec
from rota.store.projection.bulk_decode import EncodedSpec
from rota.store.table_changes import JobStanding, TableChanges

ROW_BYTES = 200
"""What a row takes beside its encoded spec, about."""
FOLDS_MAX = 8
"""Folds that may end while a shelf is read: a read takes less time than one of them."""


class ShelfRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the shelf."""

    id: JobId
    spec: Spec
    form: EncodedSpec
    standing: JobStanding
    """Alike jobs share both."""

    @property
    def encoded(self) -> bytes:
        """The spec as it is stored: a newer program may have written more than this one knows."""
        return self.form.encoded(self.spec.arrival_number)


class Reading:
    """One read of shelves, from before it begins until the fold takes up what it has found."""

    def __init__(self, stamp: str) -> None:
        self.stamps = [stamp]
        """Of the folds that it may have seen as the last one."""
        self.folds: list[TableChanges] = []
        """What each of them wrote but the first, which was there before."""
        self.seen = ""
        """The last one that it did see."""
        self.rows: Sequence[ShelfRow] | None = None
        """None: it is under way."""
        self.size = 0
        """Bytes that they take, about."""

    def unmoved(self) -> Iterable[ShelfRow]:
        """What is still in the tables as it was read."""
        if not self.seen or self.seen not in self.stamps:
            return ()
        left = self.rows or ()
        ids = [one.id for one in left]
        for fold in self.folds[self.stamps.index(self.seen) :]:
            # Mostly none of them: what is read is moved later.
            if not (fold.lives.keys().isdisjoint(ids) and fold.dropped.keys().isdisjoint(ids)):
                moved = fold.lives.keys() | fold.dropped.keys()
                left = [one for one in left if one.id not in moved]
        return left


class KnownShelf:
    """Rows that were read, until they move. Reads are of the server's loop, the rest is the fold's.

    Where there are too many, those that came first stay: they are the next to move.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self.known: dict[JobId, ShelfRow] = {}
        self._stamp = ""
        """Of the last fold; empty: it is not known."""
        self._readings: list[Reading] = []
        self._changing = threading.Lock()

    def begin(self) -> Reading:
        """To be called before the database is asked."""
        with self._changing:
            reading = Reading(self._stamp)
            self._readings.append(reading)
        return reading

    def end(self, reading: Reading, seen: str, rows: Sequence[ShelfRow]) -> None:
        """What was found, and the stamp of the last fold in the same view of the tables."""
        with self._changing:
            # Where nothing is written no fold takes them up, and a whole window may be read.
            room = self._most_bytes - sum(one.size for one in self._readings)
            sizes = list(accumulate(ROW_BYTES + row.form.size for row in rows))
            kept = bisect_right(sizes, room)
            reading.seen, reading.rows = seen, rows[:kept]
            reading.size = sizes[kept - 1] if kept else 0

    def give_up(self, reading: Reading) -> None:
        """Nothing was found, or nobody knows what."""
        with self._changing:
            if reading in self._readings:
                self._readings.remove(reading)

    # In the server's loop above, in the fold's thread below

    def take_up(self) -> None:
        """What was read is known from now on. Not while a fold is half done: it must not change."""
        with self._changing:
            ended = [one for one in self._readings if one.rows is not None]
            self._readings = [one for one in self._readings if one.rows is None]
        for reading in ended:
            rows = {row.id: row for row in reading.unmoved()}
            # Mostly all of them are new, and there is room.
            has_room = self._bytes + reading.size <= self._most_bytes
            if not has_room or not self.known.keys().isdisjoint(rows):
                rows = self._first_that_fit(rows)
            self.known.update(rows)
            self._bytes += sum([ROW_BYTES + row.form.size for row in rows.values()])

    def _first_that_fit(self, rows: Mapping[JobId, ShelfRow]) -> dict[JobId, ShelfRow]:
        new = [row for job_id, row in rows.items() if job_id not in self.known]
        sizes = list(accumulate(ROW_BYTES + row.form.size for row in new))
        kept = bisect_right(sizes, self._most_bytes - self._bytes)
        return {row.id: row for row in new[:kept]}

    def learn(self, folded: TableChanges, stamp: str) -> None:
        """This was written, for good: whatever it was, on the shelf it is not as it was."""
        with self._changing:
            self._stamp = stamp
            # One that takes so long would keep what all the folds of that time have written.
            self._readings = [one for one in self._readings if len(one.folds) < FOLDS_MAX]
            for reading in self._readings:
                reading.stamps.append(stamp)
                reading.folds.append(folded)
        if self.known:
            self._forget(folded.dropped)
            self._forget(folded.lives)

    def _forget(self, job_ids: Iterable[JobId]) -> None:
        rows, freed = self.known, 0
        for job_id in job_ids:
            row = rows.pop(job_id, None)
            if row is not None:
                freed += ROW_BYTES + row.form.size
        self._bytes -= freed

    def clear(self) -> None:
        """The tables may say something else by now."""
        with self._changing:
            self._stamp, self._readings = "", []
        self.known, self._bytes = {}, 0
