"""The event loop of processes that stay: uvloop's where there is one, else the standard one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

YOUNG_OBJECTS_MAX = 50_000
"""New objects between two looks of the garbage collector. A batch of a thousand jobs is some ten
thousand of them, gone when it is answered: a collector that comes every 700, as usual, looks at
each of them in vain, several times."""


def run_on_quick_loop(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`."""
    gc.set_threshold(YOUNG_OBJECTS_MAX, *gc.get_threshold()[1:])
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)
