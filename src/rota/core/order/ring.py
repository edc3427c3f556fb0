"""A ring of those who take turns, in order of how much each has had.

They are kept in blocks, each with the bits of all classes that anybody in it waits with. So the
first who has something of a given kind is found without asking those who have not. The bits of a
block may be too many, never too few; they are put right when a search was in vain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

RANKED_BLOCK_MAX = 64
"""Entries in a block before it is split: about the root of the largest number expected."""


class Ranked(Protocol):
    """Whoever sits in a ring."""

    level: int
    """The lowest goes first."""
    had: float
    """On the same level, whoever has had the least goes first."""
    rank: int
    """Tells equals apart, always in the same way."""
    ready: int
    """Bits of the classes that it could go with."""


S = TypeVar("S", bound=Ranked)
RankedEntry: TypeAlias = tuple[int, float, int, S]


class _RankedBlock(Generic[S]):
    __slots__ = ("entries", "mask")

    def __init__(self, entries: list[RankedEntry[S]]) -> None:
        self.entries = entries
        self.mask = 0
        self.repair()

    def repair(self) -> None:
        mask = 0
        for _, _, _, seat in self.entries:
            mask |= seat.ready
        self.mask = mask


class MaskedSortedList(Generic[S]):
    """All who wait, in order."""

    __slots__ = ("_block_max", "_blocks", "_heads", "lone")

    def __init__(self, block_max: int = RANKED_BLOCK_MAX) -> None:
        self._block_max = block_max
        self.lone: S | None = None
        """Who waits, if it is just one; it need not be told of its other key."""
        self._blocks: list[_RankedBlock[S]] = []
        self._heads: list[RankedEntry[S]] = []
        """The first entry of each block."""

    def first(self, mask: int) -> S | None:
        """The first who has any of these classes ready."""
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, seat in block.entries:
                    if seat.ready & mask:
                        return seat
                block.repair()
        return None

    def only(self, mask: int) -> S | None:
        """The one who has any of these classes ready, if there is just one."""
        only: S | None = None
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, seat in block.entries:
                    if seat.ready & mask:
                        if only is not None:
                            return None
                        only = seat
        return only

    def all_with(self, mask: int) -> Iterator[S]:
        """All who have any of these classes ready, in order; nobody may move meanwhile."""
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, seat in block.entries:
                    if seat.ready & mask:
                        yield seat

    def before(self, seat: S) -> list[S]:
        """All who come before this one."""
        found: list[S] = []
        for block in self._blocks:
            for _, _, rank, other in block.entries:
                if rank == seat.rank:
                    return found
                found.append(other)
        return found

    def insert(self, seat: S) -> None:
        """It waits from now on."""
        entry = (seat.level, seat.had, seat.rank, seat)
        if not self._blocks:
            self.lone = seat
            self._blocks.append(_RankedBlock([entry]))
            self._heads.append(entry)
            return
        self._look_at_lone()
        self.lone = None
        at = self._find(entry)
        block = self._blocks[at]
        insort(block.entries, entry)
        self._heads[at] = block.entries[0]
        block.mask |= seat.ready
        if len(block.entries) > 2 * self._block_max:
            rear = block.entries[self._block_max :]
            del block.entries[self._block_max :]
            block.repair()
            self._blocks.insert(at + 1, _RankedBlock(rear))
            self._heads.insert(at + 1, rear[0])

    def remove(self, seat: S) -> None:
        """It waits no longer."""
        self._look_at_lone()
        entry = (seat.level, seat.had, seat.rank, seat)
        at = self._find(entry)
        entries = self._blocks[at].entries
        del entries[bisect_left(entries, entry)]
        if entries:
            self._heads[at] = entries[0]
        else:
            del self._blocks[at], self._heads[at]
        is_lone = len(self._blocks) == 1 and len(self._blocks[0].entries) == 1
        self.lone = self._heads[0][3] if is_lone else None

    def move(self, seat: S, had: float) -> None:
        """It has had so much by now."""
        if self.lone is not None:
            seat.had = had
            return
        # Most stay in their block: this is done for every start and every end.
        level, rank, heads = seat.level, seat.rank, self._heads
        before, after = (level, seat.had, rank, seat), (level, had, rank, seat)
        at = 0
        if len(heads) > 1:
            at = self._find(before)
            if at != self._find(after):
                self.remove(seat)
                seat.had = had
                self.insert(seat)
                return
        entries = self._blocks[at].entries
        del entries[bisect_left(entries, before)]
        insort(entries, after)
        seat.had = had
        heads[at] = entries[0]

    def _look_at_lone(self) -> None:
        """The entry of one that is alone is put right, for it is to be compared."""
        seat = self.lone
        if seat is not None:
            entry = (seat.level, seat.had, seat.rank, seat)
            self._blocks[0].entries[0] = self._heads[0] = entry

    def widen(self, seat: S) -> None:
        """It has more classes ready than before."""
        block = self._blocks[self._find((seat.level, seat.had, seat.rank, seat))]
        block.mask |= seat.ready

    def _find(self, entry: RankedEntry[S]) -> int:
        """The block in which the entry is, or would be."""
        heads = self._heads
        return 0 if len(heads) == 1 else (bisect_right(heads, entry) or 1) - 1
