"""Runs the event loop of servers and workers, with a garbage collector that seldom interrupts."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from rota.cli.start.large_pages import use_large_pages

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
