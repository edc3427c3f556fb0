"""Open workers that have room for any class at all, by the room that they have.

Workers of one kind that have the same room left are equally good for every job. So whoever seeks
the best place compares rooms, of which there are few, and takes the first worker that has it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rota.core.memory.cells import WorkerEntry
from rota.core.memory.rooms import FreeCapacity
from rota.core.model import WorkerId

FreeEntry: TypeAlias = tuple[int, WorkerEntry, FreeCapacity]
"""(the worker's rank, the worker, the room that it is listed with)."""
WorkerFilter: TypeAlias = Callable[[WorkerEntry], bool]
"""Whether a worker may be used."""


def first_allowed(row: Sequence[FreeEntry], may: WorkerFilter) -> FreeEntry | None:
    """The first of equally good workers that may be used."""
    return next((entry for entry in row if may(entry[1])), None)


class FreeIndex:
    """Open workers with room, each once."""

    __slots__ = ("by_free_capacity", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[WorkerId, FreeEntry] = {}
        self.by_free_capacity: dict[FreeCapacity, list[FreeEntry]] = {}
        """The same by room, those of a room by rank; none of the lists is empty."""

    def put(self, worker_id: WorkerId, cell: WorkerEntry) -> None:
        """The worker has room, or other room than before."""
        room, by_room = cell.free_capacity, self.by_free_capacity
        before = self.by_id.get(worker_id)
        if before is not None:
            self._take_out(before)
        entry = self.by_id[worker_id] = (cell.rank, cell, room)
        row = by_room.get(room)
        if row is None:
            by_room[room] = [entry]
        else:
            insort(row, entry)

    def drop(self, worker_id: WorkerId) -> None:
        """The worker has none, or waits no longer."""
        entry = self.by_id.pop(worker_id, None)
        if entry is not None:
            self._take_out(entry)

    def _take_out(self, entry: FreeEntry) -> None:
        room = entry[2]
        row = self.by_free_capacity[room]
        if len(row) == 1:
            del self.by_free_capacity[room]
        else:
            del row[bisect_left(row, entry)]
