"""A folder in memory for what tests write, where the machine has room for it.

Nothing there outlives the machine, which no test asks for: a killed process loses as little of it
as of a disk. What hundreds of stores write is waited for on a real one.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

import psutil

FOLDER = Path("/dev/shm")
ROOM_BYTES = 4 << 30
"""Less than this is left alone: all that a run writes stays there until it ends."""


@cache
def memory_disk() -> Path | None:
    """None: there is none, it is small (as in containers), or programs in it cannot be run."""
    if not os.access(FOLDER, os.W_OK) or os.statvfs(FOLDER).f_flag & os.ST_NOEXEC:
        return None
    free = min(shutil.disk_usage(FOLDER).free, psutil.virtual_memory().available // 2)
    return FOLDER if free >= ROOM_BYTES else None
