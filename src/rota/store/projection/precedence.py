"""Whoever decides goes before whoever folds: the two share the interpreter's lock.

A thread that waits for that lock is given it half a millisecond later, whatever the other one does.
So a turn during which something is folded took up to three times as long, and a worker waited for
it meanwhile, while the fold has time: it can do its work when the loop waits for a commit or for a
worker. Nothing depends on this but who is sooner.
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
    """Claimed in the server's loop, which never waits for it; given by the folding thread."""

    def __init__(self, watermark: Watermark, limits: StoreLimits = STORE_LIMITS) -> None:
        self._watermark = watermark
        self._gives_way_s = limits.fold_gives_way_s
        self._claimed = threading.Lock()
        self._is_ours = False
        self._rounds = 0

    def claim(self) -> None:
        """The loop is at what somebody waits for, in this round of it and the next few."""
        self._rounds = PRECEDENCE_ROUNDS
        if not self._is_ours:
            # Where the thread has it, it lets go of it within a microsecond: not worth a wait.
            self._is_ours = self._claimed.acquire(blocking=False)
            if self._is_ours:
                asyncio.get_running_loop().call_soon(self._pass)

    def give_way(self) -> None:
        """Returns when nothing is claimed, or after a while: the fold must get on as well.

        Where a reader waits for the fold it gives way to nobody.
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
    """All of them, so many at a time, and giving way before each time."""
    for part in parts:
        for first in range(0, len(part), size):
            give_way()
            yield part[first : first + size]
