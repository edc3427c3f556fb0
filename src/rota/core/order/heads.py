"""The lines of a party, sorted by their heads, so that the first of some classes is found soon.

They are kept in blocks, each with the bits of all classes in it: where hundreds of lines wait for
workers that are not there, those are not looked at one by one for every decision. The bits of a
block may be too many, never too few; they are put right when a search was in vain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

from rota.core.memory.cells import OrderKey

HEAD_BLOCK_MAX = 16
"""A block is split when it is twice as long: about the root of the most lines expected."""


class HasClassBit(Protocol):
    """Whatever is of one class."""

    bit: int


L = TypeVar("L", bound=HasClassBit)
HeadEntry: TypeAlias = tuple[int, OrderKey, int, L]
"""(rank, or length; the job; the line's number, which tells equals apart; the line)."""


class _HeadBlock(Generic[L]):
    __slots__ = ("entries", "mask")

    def __init__(self, seats: list[HeadEntry[L]]) -> None:
        self.entries = seats
        self.mask = 0
        self.repair()

    def repair(self) -> None:
        mask = 0
        for _, _, _, line in self.entries:
            mask |= line.bit
        self.mask = mask


class ClassHeads(Generic[L]):
    """Seats in order; each line has one."""

    __slots__ = ("_block_max", "_blocks", "firsts")

    def __init__(self, block_max: int = HEAD_BLOCK_MAX) -> None:
        self._block_max = block_max
        self._blocks: list[_HeadBlock[L]] = []
        self.firsts: list[HeadEntry[L]] = []
        """The first seat of each block."""

    def __iter__(self) -> Iterator[HeadEntry[L]]:
        for block in self._blocks:
            yield from block.entries

    def __len__(self) -> int:
        return sum(len(block.entries) for block in self._blocks)

    def least(self) -> int:
        """The rank or length that comes before all; below zero: there is nobody."""
        return self.firsts[0][0] if self.firsts else -1

    def first(self, mask: int) -> HeadEntry[L] | None:
        """The first whose line is of these classes."""
        for block in self._blocks:
            if block.mask & mask:
                for seat in block.entries:
                    if seat[3].bit & mask:
                        return seat
                block.repair()
        return None

    def add(self, seat: HeadEntry[L]) -> None:
        """It has its place from now on."""
        if not self._blocks:
            self._blocks.append(_HeadBlock([seat]))
            self.firsts.append(seat)
            return
        at = self._find(seat)
        block = self._blocks[at]
        seats = block.entries
        insort(seats, seat)
        self.firsts[at] = seats[0]
        block.mask |= seat[3].bit
        if len(seats) > 2 * self._block_max:
            rear = seats[self._block_max :]
            del seats[self._block_max :]
            block.repair()
            self._blocks.insert(at + 1, _HeadBlock(rear))
            self.firsts.insert(at + 1, rear[0])

    def remove(self, seat: HeadEntry[L]) -> None:
        """It has none any more."""
        at = self._find(seat)
        seats = self._blocks[at].entries
        del seats[bisect_left(seats, seat)]
        if seats:
            self.firsts[at] = seats[0]
        else:
            del self._blocks[at], self.firsts[at]

    def move(self, before: HeadEntry[L], after: HeadEntry[L]) -> None:
        """A line has its place there from now on, and not where it was."""
        if len(self._blocks) > 1:
            self.remove(before)
            self.add(after)
            return
        seats = self._blocks[0].entries
        # Whoever goes mostly was the first of all, and the next of its line is the last.
        del seats[0 if seats[0] is before else bisect_left(seats, before)]
        if seats and seats[-1] < after:
            seats.append(after)
        else:
            insort(seats, after)
        self.firsts[0] = seats[0]

    def _find(self, seat: HeadEntry[L]) -> int:
        """The block in which the seat is, or would be."""
        firsts = self.firsts
        return 0 if len(firsts) == 1 else (bisect_right(firsts, seat) or 1) - 1
