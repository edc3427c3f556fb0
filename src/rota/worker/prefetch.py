"""Holds prefetched orders, each behind another of this worker, for whose place it waits.

Pure, as the session is. An order may come before the one it is behind, or after that has ended
without ever having begun; so what is behind what is looked up, not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.wire.workers import OrderView

PREFETCH_S = 0.5
"""A prefetched order that could not begin within this goes back: others may have room for it."""
WIDE_FROM = 256
"""Orders of one answer that begin at once from which on none is prefetched: so many places hide a
round trip by themselves, and it costs the server many times what a plain start does."""
ENDED_UNBEGUN_MAX = 20_000
"""Orders that ended unbegun, remembered for those that may still come to be behind them."""


class PrefetchedOrders:
    """The orders that wait, in the order in which they came."""

    def __init__(self, wanted: int = 0) -> None:
        self._wanted = wanted
        self._is_wide = False
        self.most = 0
        """How many may wait here, as far as the server gives any."""
        self._before: dict[str, str] = {}
        """Each that waits, and the one whose end it waits for."""
        self._behind: dict[str, str] = {}
        """The same the other way round."""
        self._since: dict[str, float] = {}
        self._ended_unbegun: dict[str, str] = {}
        """What ended unbegun, and the one it was behind."""

    def __len__(self) -> int:
        return len(self._before)

    def __contains__(self, key: str) -> bool:
        return key in self._before

    @property
    def more_wanted(self) -> int:
        """How many more of them are wanted."""
        return 0 if self._is_wide else max(0, self.most - len(self._before))

    def limit_to(self, given: int) -> None:
        """The server gives so many at most."""
        self.most = min(self._wanted, given)

    def note_answer(self, orders: Sequence[OrderView]) -> None:
        """What an answer has brought says how many places there are."""
        if orders:
            self._is_wide = sum(one.behind is None for one in orders) >= WIDE_FROM

    def before(self, key: str) -> str:
        """The one whose place it is about, where `key` may have ended without having had it."""
        while key in self._ended_unbegun:
            key = self._ended_unbegun[key]
        return key

    def wait(self, key: str, before: str, now: float) -> None:
        """It waits until that one has ended; nobody begins twice in one place."""
        while before in self._behind:
            before = self._behind[before]
        self._before[key], self._behind[before] = before, key
        self._since[key] = now

    def ended(self, key: str) -> str | None:
        """It has ended; who has its place now."""
        follower = self._behind.pop(key, None)
        if follower is not None:
            del self._before[follower], self._since[follower]
        return follower

    def drop(self, key: str) -> None:
        """It will not begin here; who was behind it moves up."""
        before = self._before.pop(key)
        del self._behind[before], self._since[key]
        follower = self._behind.pop(key, None)
        if follower is not None:
            self._before[follower], self._behind[before] = before, follower
        self._ended_unbegun[key] = before
        if len(self._ended_unbegun) > ENDED_UNBEGUN_MAX:
            del self._ended_unbegun[next(iter(self._ended_unbegun))]

    def waiting(self) -> list[str]:
        """All that wait."""
        return list(self._before)

    def overdue(self, now: float) -> list[str]:
        """Those that have waited too long."""
        return [key for key, since in self._since.items() if since + PREFETCH_S <= now]

    def overdue_at(self) -> float | None:
        """When one of them will have."""
        first = next(iter(self._since.values()), None)
        return None if first is None else first + PREFETCH_S
