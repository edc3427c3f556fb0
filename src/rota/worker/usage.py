"""Usage of this machine, for the dashboard; measured every few seconds only."""

from __future__ import annotations

import os

import psutil

EVERY_S = 5.0
"""Measured and sent at most this often."""


class Usage:
    """CPU, memory and load in use on this machine, by all its processes."""

    def __init__(self) -> None:
        self._due = 0.0
        psutil.cpu_percent()  # the first answer is about the time since then

    def news(self, now: float) -> dict[str, float]:
        """Returns CPUs and bytes in use; empty while the last measurement is fresh."""
        if now < self._due:
            return {}
        self._due = now + EVERY_S
        memory = psutil.virtual_memory()
        return {
            "cpu": round(psutil.cpu_percent() / 100 * (os.cpu_count() or 1), 2),
            "memory": memory.total - memory.available,
            "load": round(os.getloadavg()[0], 2),
        }
