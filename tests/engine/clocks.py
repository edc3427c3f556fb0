"""A clock that moves only when a test says so."""

from __future__ import annotations

from rota.core.model import Instant, Millis


class FakeClock:
    """Wall time and steady time, which somebody may pull apart."""

    def __init__(self, now: Instant = 1_800_000_000_000) -> None:
        self._now = now
        self._steady = 5_000_000

    def now(self) -> Instant:
        """Wall time."""
        return self._now

    def steady(self) -> Millis:
        """Time that runs evenly."""
        return self._steady

    def fine_s(self) -> float:
        """The same in seconds."""
        return self._steady / 1000

    def pass_by(self, ms: Millis) -> None:
        """Time passes."""
        self._now += ms
        self._steady += ms

    def set_by(self, ms: Millis) -> None:
        """Somebody sets the wall clock."""
        self._now += ms
