"""The event loop of processes that stay, and their collector: what goes on beside all they do."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

YOUNG_MAX = 50_000
"""Objects that come and do not go before the collector looks for cycles among them. A batch of a
thousand jobs makes some ten thousand that are gone when it is answered; to look after every 700, as
is usual, finds none."""
SETTLED_S = 5.0
"""By then all that a process keeps for life is there. The collector need not look at it again: that
takes tens of milliseconds, in which nobody is answered."""


def run_on_quick_loop(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, with a collector that seldom interrupts."""
    gc.set_threshold(YOUNG_MAX)
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().call_later(SETTLED_S, gc.freeze)
        return runner.run(work)
