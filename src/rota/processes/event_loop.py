"""Runs the event loop of servers and workers: uvloop, a garbage collector that seldom interrupts,
and memory on large pages (transparent huge pages) where the system has them.

Python's objects lie all over its heap. Work after a pause touches hundreds of small pages, and
the processor has forgotten where each of them is. Without large pages a decision of the
scheduler costs 7 to 9 % more processor time with a million jobs waiting, 1 to 5 % with 100,000,
and a lone job starts 0.3 ms later (docs/performance.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

SIZE = 2 * 1024 * 1024
"""Bytes. Where the system's are larger, most of each would be empty."""
FILLED_MIN = 0.75
"""Share of a large page that is in use already: the rest is what it costs."""
_MADV_COLLAPSE = 25
"""Since Linux 6.1; before, it is an error that changes nothing."""
SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_ENTRY = 8
"""Bytes that say of one small page where it is; the last has the bit for whether it is."""
_HEAP = "[heap]"

Ranges: TypeAlias = Callable[[], Iterable[tuple[int, int]]]
"""Addresses of memory, from and to."""


def use_large_pages(settings: Path = SETTINGS, ranges: Ranges | None = None) -> int:
    """Returns how many large pages there are now; 0 where the system gives none."""
    if not _are_available(settings):
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        blocks = list(adjoining(filled_pages((ranges or private_ranges)())))
    except OSError:  # a container may hide what the system tells of a process
        return 0
    return sum(
        length // SIZE for first, length in blocks if madvise(first, length, _MADV_COLLAPSE) == 0
    )


def adjoining(pages: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Joins pages that follow each other into (address, bytes): each call waits for all cores."""
    first = end = 0
    for at in pages:
        if at != end:
            if end:
                yield first, end - first
            first = at
        end = at + SIZE
    if end:
        yield first, end - first


def _are_available(settings: Path) -> bool:
    if sys.platform != "linux":
        return False
    try:
        never = "[never]" in (settings / "enabled").read_text()
        return not never and int((settings / "hpage_pmd_size").read_text()) == SIZE
    except (OSError, ValueError):
        return False


def filled_pages(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Finds the addresses of large pages that would be filled nearly everywhere."""
    small = os.sysconf("SC_PAGE_SIZE")
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
        for first, end in ranges:
            for at in range(-(-first // SIZE) * SIZE, end - SIZE + 1, SIZE):
                pages.seek(at // small * _ENTRY)
                entries = pages.read(SIZE // small * _ENTRY)
                filled = sum(last >> 7 for last in entries[_ENTRY - 1 :: _ENTRY])
                if filled >= SIZE // small * FILLED_MIN:
                    yield at


def private_ranges() -> Iterator[tuple[int, int]]:
    """Memory of this process that belongs to no file and can be written."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights == "rw-p" and (not name or name[0] == _HEAP):
            first, end = where.split("-")
            yield int(first, 16), int(end, 16)


T = TypeVar("T")

YOUNG_MAX = 50_000
"""New objects until the collector looks for cycles among them. A batch of a thousand jobs makes
some ten thousand that are gone when it is answered; Python's default of 700 finds none."""


@dataclass(frozen=True, slots=True)
class MemoryUpkeep:
    """Settings of the garbage collector and of large pages in a long-running process."""

    settled_s: float = 5.0
    """By then all objects are there that stay for good. The collector need not look at them again:
    that takes tens of milliseconds, in which no request is answered."""
    again_s: float = 600.0
    """Between two moves to large pages: a hundred pages take a third of a second, in which other
    allocations wait some milliseconds."""
    move: Callable[[], object] = use_large_pages
    """The only place that uses them. Without it decisions with a million jobs waiting cost 7 to 9 %
    more processor time; it was to go if nothing lost 5 % (docs/performance.md)."""


def run_event_loop(work: Coroutine[Any, Any, T], upkeep: MemoryUpkeep | None = None) -> T:
    """Runs like `asyncio.run`, on uvloop where it is installed."""
    upkeep = upkeep or MemoryUpkeep()
    gc.set_threshold(YOUNG_MAX)
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        loop.call_later(upkeep.settled_s, gc.freeze)
        loop.call_later(upkeep.settled_s, _move_memory, loop, upkeep)
        return runner.run(work)


def _move_memory(loop: asyncio.AbstractEventLoop, upkeep: MemoryUpkeep) -> None:
    # In a thread: one page takes up to a millisecond, and no request should wait for it.
    threading.Thread(target=upkeep.move, name="rota-large-pages", daemon=True).start()
    loop.call_later(upkeep.again_s, _move_memory, loop, upkeep)
