"""Clock of the SDK: the only module of the package that reads the real time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time and of waiting, which a test replaces."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970."""
        ...

    def elapsed_s(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """Clock of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
