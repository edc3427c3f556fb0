"""The agent as the parent of last resort: orphans fall to it, and it lets the dead ones go."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """From now on orphans below this process become its children; False where that is unknown."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


class Reaper:
    """The agent's own children, and the orphans that fell to it."""

    def __init__(self) -> None:
        self._own: set[int] = set()

    def started(self, pid: int) -> None:
        """A child whose end somebody waits for."""
        self._own.add(pid)

    def collected(self, pid: int) -> None:
        """Its end was seen."""
        self._own.discard(pid)

    def orphans(self) -> list[int]:
        """Children that the agent did not start, dead ones too."""
        return [pid for pid in _children() if pid not in self._own]

    def reap(self) -> None:
        """Lets dead orphans go."""
        for pid in self.orphans():
            # Gone between the look and the wait, or not dead yet: both are fine.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir("/proc/self/task"):
            found += map(int, Path(f"/proc/self/task/{task}/children").read_text().split())
    except OSError:
        return [child.pid for child in psutil.Process().children()]
    return found
