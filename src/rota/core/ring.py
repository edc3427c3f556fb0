"""A ring of those who take turns, in order of how much each has had.

They are kept in blocks, each with the bits of all classes that anybody in it waits with. So the
first who has something of a given kind is found without asking those who have not. The bits of a
block may be too many, never too few; they are put right when a search was in vain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

BLOCK_MAX = 64
"""Entries in a block before it is split: about the root of the largest number expected."""


class Seat(Protocol):
    """Whoever sits in a ring."""

    key: tuple[int, float]
    """The smallest goes first."""
    rank: int
    """Tells equals apart, always in the same way."""
    ready: int
    """Bits of the classes that it could go with."""


S = TypeVar("S", bound=Seat)
Entry: TypeAlias = tuple[tuple[int, float], int, S]


class _Block(Generic[S]):
    __slots__ = ("entries", "mask")

    def __init__(self, entries: list[Entry[S]]) -> None:
        self.entries = entries
        self.mask = 0
        self.repair()

    def repair(self) -> None:
        mask = 0
        for _, _, seat in self.entries:
            mask |= seat.ready
        self.mask = mask

    def head(self) -> Entry[S]:
        return self.entries[0]


class Ring(Generic[S]):
    """All who wait, in order."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[_Block[S]] = []

    def first(self, mask: int) -> S | None:
        """The first who has any of these classes ready."""
        for block in self._blocks:
            if block.mask & mask:
                for _, _, seat in block.entries:
                    if seat.ready & mask:
                        return seat
                block.repair()
        return None

    def all_with(self, mask: int) -> Iterator[S]:
        """All who have any of these classes ready, in order; nobody may move meanwhile."""
        for block in self._blocks:
            if block.mask & mask:
                for _, _, seat in block.entries:
                    if seat.ready & mask:
                        yield seat

    def before(self, seat: S) -> list[S]:
        """All who come before this one."""
        found: list[S] = []
        for block in self._blocks:
            for _, rank, other in block.entries:
                if rank == seat.rank:
                    return found
                found.append(other)
        return found

    def least(self) -> tuple[int, float] | None:
        """The key of whoever is first."""
        return self._blocks[0].entries[0][0] if self._blocks else None

    def insert(self, seat: S) -> None:
        """It waits from now on."""
        entry = (seat.key, seat.rank, seat)
        if not self._blocks:
            self._blocks.append(_Block([entry]))
            return
        at = self._find(entry)
        block = self._blocks[at]
        insort(block.entries, entry)
        block.mask |= seat.ready
        if len(block.entries) > 2 * BLOCK_MAX:
            rear = block.entries[BLOCK_MAX:]
            del block.entries[BLOCK_MAX:]
            block.repair()
            self._blocks.insert(at + 1, _Block(rear))

    def remove(self, seat: S) -> None:
        """It waits no longer."""
        entry = (seat.key, seat.rank, seat)
        at = self._find(entry)
        block = self._blocks[at]
        del block.entries[bisect_left(block.entries, entry)]
        if not block.entries:
            del self._blocks[at]

    def move(self, seat: S, key: tuple[int, float]) -> None:
        """Its key is another from now on."""
        blocks = self._blocks
        if len(blocks) == 1 and len(blocks[0].entries) == 1:
            seat.key = key
            blocks[0].entries[0] = (key, seat.rank, seat)
            return
        self.remove(seat)
        seat.key = key
        self.insert(seat)

    def widen(self, seat: S) -> None:
        """It has more classes ready than before."""
        block = self._blocks[self._find((seat.key, seat.rank, seat))]
        block.mask |= seat.ready

    def _find(self, entry: Entry[S]) -> int:
        """The block in which the entry is, or would be."""
        if len(self._blocks) == 1:
            return 0
        return max(0, bisect_right(self._blocks, entry, key=_Block.head) - 1)
