"""The SDK's clock: the only module of the package that reads the real one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the SDK gets its time from, and what it waits on."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970."""
        ...

    def elapsed_s(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits."""
        ...


class SystemClock:
    """The machine's own."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)
