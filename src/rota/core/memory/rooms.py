"""Rooms: amounts that are free on workers of one kind, and what fits into each.

Workers that are alike come back to the same few amounts over and over. So what fits into an amount
is found out once, and so is which amount is left when a job takes its share, or comes of its end.
"""

from __future__ import annotations

from rota.core.limits import FIT_CACHE_MAX
from rota.core.model import Resources
from rota.core.resources import minus, plus


class FreeCapacity:
    """One amount that is free on one kind of worker."""

    __slots__ = (
        "_all",
        "_less",
        "_more",
        "classes_made",
        "classes_seen",
        "free",
        "generation",
        "machine",
        "mask",
        "scores",
    )

    def __init__(self, rooms: FreeCapacities, machine: int, free: Resources) -> None:
        self._all = rooms
        self.machine = machine
        """The number of the kind of worker."""
        self.free = free
        self.mask = 0
        """Bits of the job classes that fit into it; placement.py sees to this, and to the rest."""
        self.scores: dict[int, int] = {}
        """How well each does, by number of class, the best the smallest."""
        self.classes_seen = 0
        """Classes below this number are in the mask."""
        self.generation = 0
        """Numbers of classes mean what they meant then."""
        self.classes_made = -1
        """How many classes had been made then."""
        self._less: dict[Resources, FreeCapacity] = {}
        self._more: dict[Resources, FreeCapacity] = {}

    def without(self, amount: Resources) -> FreeCapacity:
        """What is left when somebody takes so much of it."""
        room = self._less.get(amount)
        if room is None:
            room = self._all.neighbour(self, minus(self.free, amount))
            self._less[amount] = room
        return room

    def with_back(self, amount: Resources) -> FreeCapacity:
        """What it is when so much comes back."""
        room = self._more.get(amount)
        if room is None:
            room = self._all.neighbour(self, plus(self.free, amount))
            self._more[amount] = room
        return room

    def clear_links(self) -> None:
        """Knows no other rooms any more, so that none is kept that nobody uses."""
        self._less.clear()
        self._more.clear()


class FreeCapacities:
    """All rooms that were seen lately."""

    __slots__ = ("_known", "_links", "_most")

    def __init__(self, most: int = FIT_CACHE_MAX) -> None:
        self._most = most
        self._known: dict[tuple[int, Resources], FreeCapacity] = {}
        self._links = 0
        """How often one room was found from another."""

    def of(self, machine: int, free: Resources) -> FreeCapacity:
        """So much on that kind of worker."""
        key = (machine, free)
        room = self._known.get(key)
        if room is None:
            if len(self._known) >= self._most:
                self._forget()
            room = self._known[key] = FreeCapacity(self, machine, free)
        return room

    def neighbour(self, room: FreeCapacity, free: Resources) -> FreeCapacity:
        """The room that one becomes when something is taken or comes back."""
        self._links += 1
        if self._links >= self._most:
            self._forget()
        return self.of(room.machine, free)

    def _forget(self) -> None:
        for room in self._known.values():
            room.clear_links()
        self._known.clear()
        self._links = 0
