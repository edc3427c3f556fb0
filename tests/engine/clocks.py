"""A clock that moves only when a test says so."""

from __future__ import annotations

from rota.core.model import Instant, Millis


class FakeClock:
    """Clock with a wall time and a steady time, which a test moves."""

    def __init__(self, now: Instant = 1_800_000_000_000) -> None:
        self._now = now
        self._steady = 5_000_000

    def now(self) -> Instant:
        return self._now

    def steady(self) -> Millis:
        return self._steady

    def fine_s(self) -> float:
        return self._steady / 1000

    def pass_by(self, ms: Millis) -> None:
        self._now += ms
        self._steady += ms

    def set_by(self, ms: Millis) -> None:
        """Sets the wall clock only."""
        self._now += ms
