"""Spilled jobs as they were read for memory: the projection need not look them up a second time.

A read of spilled jobs asks, in the same snapshot of the database, which projection was the last
one. If that was one of this process, it is known what this process has written since. What any of
those later projections touched is not taken up, nor is anything of a read that saw another server's
projection, or a former primary. Those jobs are looked up, as if they had not been read.
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
"""Bytes that a row takes beside its encoded spec, about."""
FOLDS_MAX = 8
"""Projections that may end during one read: a read takes less time than one of them."""


class ShelfRow(msgspec.Struct, frozen=True, gc=False):
    """Row of a spilled job."""

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
    """Read of spilled jobs, from before it begins until the projection takes up what it found."""

    def __init__(self, stamp: str) -> None:
        self.stamps = [stamp]
        """The projections that it may have seen as the last one."""
        self.folds: list[TableChanges] = []
        """What each of them wrote, except the first, which was there before."""
        self.seen = ""
        """The one that it did see as the last."""
        self.rows: Sequence[ShelfRow] | None = None
        """None: it has not ended."""
        self.size = 0
        """Bytes that the rows take, about."""

    def unmoved(self) -> Iterable[ShelfRow]:
        """Returns what is still in the tables as it was read."""
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
    """Cache of rows that were read, until they move.

    Reads happen in the server's loop, all else in the projector's thread. If there are too many,
    the first ones stay: they are the next to move.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self.known: dict[JobId, ShelfRow] = {}
        self._stamp = ""
        """Of the last projection; empty: unknown."""
        self._readings: list[Reading] = []
        self._changing = threading.Lock()

    def begin(self) -> Reading:
        """Begins a read; to be called before the database is asked."""
        with self._changing:
            reading = Reading(self._stamp)
            self._readings.append(reading)
        return reading

    def end(self, reading: Reading, seen: str, rows: Sequence[ShelfRow]) -> None:
        """Ends a read, with the stamp of the last projection in the same snapshot."""
        with self._changing:
            # Where nothing is written no projection takes them up, and there may be many reads.
            room = self._most_bytes - sum(one.size for one in self._readings)
            sizes = list(accumulate(ROW_BYTES + row.form.size for row in rows))
            kept = bisect_right(sizes, room)
            reading.seen, reading.rows = seen, rows[:kept]
            reading.size = sizes[kept - 1] if kept else 0

    def give_up(self, reading: Reading) -> None:
        """Drops a read that failed."""
        with self._changing:
            if reading in self._readings:
                self._readings.remove(reading)

    # In the server's loop above, in the projector's thread below

    def take_up(self) -> None:
        """Takes up what was read. Not during a projection: what is known must not change then."""
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
        """Notes what was written: these jobs are no longer spilled as they were."""
        with self._changing:
            self._stamp = stamp
            # A longer read would keep in memory what all projections of that time have written.
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
        """Forgets all: the tables may have changed."""
        with self._changing:
            self._stamp, self._readings = "", []
        self.known, self._bytes = {}, 0
