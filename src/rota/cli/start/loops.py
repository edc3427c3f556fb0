"""The event loop of processes that stay, and their collector: what goes on beside all they do."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rota.cli.start.large_pages import gather

T = TypeVar("T")

YOUNG_MAX = 50_000
"""Objects that come and do not go before the collector looks for cycles among them. A batch of a
thousand jobs makes some ten thousand that are gone when it is answered; to look after every 700, as
is usual, finds none."""
SETTLED_S = 5.0
"""By then all that a process keeps for life is there. The collector need not look at it again: that
takes tens of milliseconds, in which nobody is answered."""
GATHER_S = 600.0
"""Between two looks at what has grown since: to move a hundred pages takes a third of a second, and
who asks the system for memory meanwhile waits some milliseconds."""


def run_on_quick_loop(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, with a collector that seldom interrupts."""
    gc.set_threshold(YOUNG_MAX)
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().call_later(SETTLED_S, gc.freeze)
        runner.get_loop().call_later(SETTLED_S, _gather_now_and_then, runner.get_loop())
        return runner.run(work)


def _gather_now_and_then(loop: asyncio.AbstractEventLoop) -> None:
    # In a thread: to move one page takes up to a millisecond, and nobody has to wait for it.
    threading.Thread(target=gather, name="rota-large-pages", daemon=True).start()
    loop.call_later(GATHER_S, _gather_now_and_then, loop)
