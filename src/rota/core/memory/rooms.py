"""Rooms: amounts that are free on workers of one kind, and what fits into each.

Workers that are alike come back to the same few amounts over and over. So what fits into an amount
is found out once, and so is which amount is left when a job takes its share, or comes of its end.
"""

from __future__ import annotations

from rota.core.limits import FIT_CACHE_MAX
from rota.core.model import Resources
from rota.core.resources import minus, plus


class Room:
    """One amount that is free on one kind of worker."""

    __slots__ = (
        "_less",
        "_more",
        "_rooms",
        "era",
        "free",
        "machine",
        "made",
        "mask",
        "scores",
        "seen",
    )

    def __init__(self, rooms: Rooms, machine: int, free: Resources) -> None:
        self._rooms = rooms
        self.machine = machine
        """The number of the kind of worker."""
        self.free = free
        self.mask = 0
        """Bits of the job classes that fit into it; placement.py sees to this, and to the rest."""
        self.scores: dict[int, int] = {}
        """How well each does, by number of class, the best the smallest."""
        self.seen = 0
        """Classes below this number are in the mask."""
        self.era = 0
        """Numbers of classes mean what they meant then."""
        self.made = -1
        """How many classes had been made then."""
        self._less: dict[Resources, Room] = {}
        self._more: dict[Resources, Room] = {}

    def without(self, amount: Resources) -> Room:
        """What is left when somebody takes so much of it."""
        room = self._less.get(amount)
        if room is None:
            room = self._rooms.next_to(self, minus(self.free, amount))
            self._less[amount] = room
        return room

    def with_back(self, amount: Resources) -> Room:
        """What it is when so much comes back."""
        room = self._more.get(amount)
        if room is None:
            room = self._rooms.next_to(self, plus(self.free, amount))
            self._more[amount] = room
        return room

    def cut_off(self) -> None:
        """Knows no other rooms any more, so that none is kept that nobody uses."""
        self._less.clear()
        self._more.clear()


class Rooms:
    """All rooms that were seen lately."""

    __slots__ = ("_known", "_most", "_ways")

    def __init__(self, most: int = FIT_CACHE_MAX) -> None:
        self._most = most
        self._known: dict[tuple[int, Resources], Room] = {}
        self._ways = 0
        """How often one room was found from another."""

    def of(self, machine: int, free: Resources) -> Room:
        """So much on that kind of worker."""
        key = (machine, free)
        room = self._known.get(key)
        if room is None:
            if len(self._known) >= self._most:
                self._forget()
            room = self._known[key] = Room(self, machine, free)
        return room

    def next_to(self, room: Room, free: Resources) -> Room:
        """The room that one becomes when something is taken or comes back."""
        self._ways += 1
        if self._ways >= self._most:
            self._forget()
        return self.of(room.machine, free)

    def _forget(self) -> None:
        for room in self._known.values():
            room.cut_off()
        self._known.clear()
        self._ways = 0
