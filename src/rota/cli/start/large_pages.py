"""Moves what a process keeps in memory onto large pages, where the system has them.

Python's objects lie all over its heap. What is done after a pause touches hundreds of small pages,
and the processor has forgotten where each of them is.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

SIZE = 2 * 1024 * 1024
"""Where the system's are larger, most of each would be empty."""
FILLED_MIN = 0.75
"""Share of a large page that is in use already: the rest is what it costs."""
_MADV_COLLAPSE = 25
"""Since Linux 6.1; before, it is an error that changes nothing."""
_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_ENTRY = 8
"""Bytes that say of one small page where it is; the last has the bit for whether it is."""
_HEAP = "[heap]"


def gather() -> int:
    """How many large pages there are now; 0 where there are none to be had."""
    if not _are_to_be_had():
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        stretches = list(_stretches())
    except OSError:  # a container may hide what the system tells of a process
        return 0
    return sum(
        length // SIZE for first, length in stretches if madvise(first, length, _MADV_COLLAPSE) == 0
    )


def _stretches() -> Iterator[tuple[int, int]]:
    """Where it is worth while, and for how many bytes on end: each call waits for all cores."""
    first = end = 0
    for at in _worthwhile():
        if at != end:
            if end:
                yield first, end - first
            first = at
        end = at + SIZE
    if end:
        yield first, end - first


def _are_to_be_had() -> bool:
    if sys.platform != "linux":
        return False
    try:
        never = "[never]" in (_SETTINGS / "enabled").read_text()
        return not never and int((_SETTINGS / "hpage_pmd_size").read_text()) == SIZE
    except (OSError, ValueError):
        return False


def _worthwhile() -> Iterator[int]:
    """Addresses of what would be a large page, and is in use nearly everywhere."""
    small = os.sysconf("SC_PAGE_SIZE")
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
        for first, end in _private_ranges():
            for at in range(-(-first // SIZE) * SIZE, end - SIZE + 1, SIZE):
                pages.seek(at // small * _ENTRY)
                entries = pages.read(SIZE // small * _ENTRY)
                filled = sum(last >> 7 for last in entries[_ENTRY - 1 :: _ENTRY])
                if filled >= SIZE // small * FILLED_MIN:
                    yield at


def _private_ranges() -> Iterator[tuple[int, int]]:
    """What belongs to no file, and can be written."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights == "rw-p" and (not name or name[0] == _HEAP):
            first, end = where.split("-")
            yield int(first, 16), int(end, 16)
