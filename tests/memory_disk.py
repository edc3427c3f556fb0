"""A folder in memory for files of tests, if the machine has enough memory.

Tests kill processes, not the machine, so nothing is lost there that a disk would keep. On a disk
hundreds of stores would wait for syncs.
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
    """The folder; None if there is none, it is small (as in containers), or programs there cannot
    run."""
    if not os.access(FOLDER, os.W_OK) or os.statvfs(FOLDER).f_flag & os.ST_NOEXEC:
        return None
    free = min(shutil.disk_usage(FOLDER).free, psutil.virtual_memory().available // 2)
    return FOLDER if free >= ROOM_BYTES else None
