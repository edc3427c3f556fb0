"""Prefetch on the worker: holds orders that wait for the slot of another order of this worker.

Pure, as the session is. An order may arrive before the one it waits for, or after that one ended
without having started; so the predecessor is looked up, never assumed.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.wire.workers import OrderView

PREFETCH_S = 0.5
"""A prefetched order that could not start within this goes back: other workers may have a free
slot."""
WIDE_FROM = 256
"""From this many orders in one answer that start at once, nothing is prefetched: so many slots hide
a round trip by themselves, and a prefetched order costs the server many times what a plain start
costs."""
ENDED_UNBEGUN_MAX = 20_000
"""Orders remembered that ended without having started: others that wait for them may still
arrive."""


class PrefetchedOrders:
    """Prefetched orders that wait, oldest first."""

    def __init__(self, wanted: int = 0) -> None:
        self._wanted = wanted
        self._is_wide = False
        self.count_max = 0
        """How many may wait here: as many as wanted, and as the server gives."""
        self._predecessors: dict[str, str] = {}
        """Each waiting order, and the one whose end it waits for."""
        self._followers: dict[str, str] = {}
        """Inverse of `_predecessors`."""
        self._since: dict[str, float] = {}
        self._ended_unbegun: dict[str, str] = {}
        """Each order that ended without having started, and the one it waited for."""

    def __len__(self) -> int:
        return len(self._predecessors)

    def __contains__(self, key: str) -> bool:
        return key in self._predecessors

    @property
    def more_wanted(self) -> int:
        """How many more orders to prefetch."""
        return 0 if self._is_wide else max(0, self.count_max - len(self._predecessors))

    def limit_to(self, given: int) -> None:
        """Sets how many the server gives at most."""
        self.count_max = min(self._wanted, given)

    def note_answer(self, orders: Sequence[OrderView]) -> None:
        """Learns from the orders of an answer how many slots this worker has."""
        if orders:
            self._is_wide = sum(one.behind is None for one in orders) >= WIDE_FROM

    def predecessor(self, key: str) -> str:
        """Finds whose slot is meant, where `key` may have ended without having used it."""
        while key in self._ended_unbegun:
            key = self._ended_unbegun[key]
        return key

    def add(self, key: str, predecessor: str, now: float) -> None:
        """Lets `key` wait for the end of `predecessor`, or of the last order in line for its
        slot."""
        while predecessor in self._followers:
            predecessor = self._followers[predecessor]
        self._predecessors[key], self._followers[predecessor] = predecessor, key
        self._since[key] = now

    def successor(self, key: str) -> str | None:
        """Removes and returns the order that takes the slot of `key`, which has ended."""
        follower = self._followers.pop(key, None)
        if follower is not None:
            del self._predecessors[follower], self._since[follower]
        return follower

    def drop(self, key: str) -> None:
        """Removes an order that will not start here; the one that waits for it moves up."""
        predecessor = self._predecessors.pop(key)
        del self._followers[predecessor], self._since[key]
        follower = self._followers.pop(key, None)
        if follower is not None:
            self._predecessors[follower], self._followers[predecessor] = predecessor, follower
        self._ended_unbegun[key] = predecessor
        if len(self._ended_unbegun) > ENDED_UNBEGUN_MAX:
            del self._ended_unbegun[next(iter(self._ended_unbegun))]

    def waiting(self) -> list[str]:
        return list(self._predecessors)

    def overdue(self, now: float) -> list[str]:
        """Lists the orders that have waited too long."""
        return [key for key, since in self._since.items() if since + PREFETCH_S <= now]

    def overdue_at(self) -> float | None:
        """When the first of them will have waited too long."""
        first = next(iter(self._since.values()), None)
        return None if first is None else first + PREFETCH_S
