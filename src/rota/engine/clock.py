"""The only door to the real clock."""

from __future__ import annotations

import time

from rota.core.model import Instant, Millis

# The boot-time clock goes on while the machine sleeps, the monotonic one does not on Linux.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clocks: what people mean by a time, and what never jumps."""

    def now(self) -> Instant:
        """Wall time in milliseconds; somebody may set it forward or back."""
        return time.time_ns() // 1_000_000

    def steady(self) -> Millis:
        """Milliseconds since some moment in the past; runs evenly, through suspend too."""
        return time.clock_gettime_ns(_STEADY) // 1_000_000

    def fine_s(self) -> float:
        """Seconds for measuring short times."""
        return time.perf_counter()
