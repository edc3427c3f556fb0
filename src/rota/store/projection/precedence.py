"""Lets the loop that decides go before the projection: they share the interpreter lock.

A thread that waits for that lock gets it after half a millisecond, whatever the other one does. So
a turn during a projection took up to three times as long, and a worker waited for it, while the
projection has time: it can work when the loop waits for a commit or for a worker. Only the order in
time depends on this.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from rota.store.limits import PRECEDENCE_ROUNDS, STORE_LIMITS, StoreLimits
from rota.store.projection.watermark import Watermark

T = TypeVar("T")
GiveWay: TypeAlias = Callable[[], None]


class Precedence:
    """Precedence of the server's loop, which never waits for it, over the projector's thread."""

    def __init__(self, watermark: Watermark, limits: StoreLimits = STORE_LIMITS) -> None:
        self._watermark = watermark
        self._gives_way_s = limits.fold_gives_way_s
        self._claimed = threading.Lock()
        self._is_ours = False
        self._rounds = 0

    def claim(self) -> None:
        """Claims precedence for this round of the loop and the next few: somebody waits for
        them."""
        self._rounds = PRECEDENCE_ROUNDS
        if not self._is_ours:
            # If the thread has the lock, it releases it within a microsecond: not worth a wait.
            self._is_ours = self._claimed.acquire(blocking=False)
            if self._is_ours:
                asyncio.get_running_loop().call_soon(self._pass)

    def give_way(self) -> None:
        """Returns when nothing is claimed, or after a while: the projection must get on as well.

        It returns at once if a reader waits for the projection.
        """
        if self._watermark.awaited:
            return
        if self._claimed.acquire(timeout=self._gives_way_s):
            self._claimed.release()

    def _pass(self) -> None:
        self._rounds -= 1
        if self._rounds:
            asyncio.get_running_loop().call_soon(self._pass)
        else:
            self._is_ours = False
            self._claimed.release()


def in_slices(parts: Iterable[Sequence[T]], size: int, give_way: GiveWay) -> Iterator[Sequence[T]]:
    """Yields all parts in slices of `size`, and gives way before each."""
    for part in parts:
        for first in range(0, len(part), size):
            give_way()
            yield part[first : first + size]
