"""Clock of the worker, the only module here that reads the real time.

Leases are lengths of time on the holder's own clock, so that clock must run on while the machine is
suspended: CLOCK_BOOTTIME does, CLOCK_MONOTONIC does not.
"""

from __future__ import annotations

import time
from typing import Protocol


class MonotonicClock(Protocol):
    """Seconds since some fixed moment; never goes back."""

    def now(self) -> float:
        """The seconds passed."""
        ...


class BootClock:
    """Seconds since the machine was started, suspended time included where the system can tell."""

    def __init__(self) -> None:
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        """The seconds passed."""
        return time.clock_gettime(self._source)
