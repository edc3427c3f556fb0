"""Clock of the worker; no other module here reads the real time.

A lease is a length of time on the worker's own clock, so the clock must run on while the machine is
suspended: CLOCK_BOOTTIME does, CLOCK_MONOTONIC does not.
"""

from __future__ import annotations

import time
from typing import Protocol


class MonotonicClock(Protocol):
    """Clock in seconds since some fixed moment; it never goes back."""

    def now(self) -> float: ...


class BootClock:
    """Seconds since boot, including suspended time where the system can tell."""

    def __init__(self) -> None:
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        return time.clock_gettime(self._source)
