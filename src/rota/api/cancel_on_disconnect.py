"""Cancels work for a request whose client has disconnected, or whose server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


async def client_disconnected(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(work: Coroutine[Any, Any, T], *ends: Awaitable[Any]) -> T | None:
    """What `work` comes to; None, with it cancelled, if one of the others ends first.

    It runs in the caller's own task: an answer that many wait for, such as a worker's next order,
    is not passed on from task to task.
    """
    here = asyncio.current_task()
    assert here is not None
    watch = _Canceller(here)
    others = [asyncio.ensure_future(end) for end in ends]
    for other in others:
        other.add_done_callback(watch.ended)
    try:
        return await work
    except asyncio.CancelledError:
        # If somebody else wants this task to end, too, there is one cancel more.
        if watch.fired and here.uncancel() == 0:
            return None
        raise
    finally:
        watch.is_over = True
        for other in others:
            other.cancel()


class _Canceller:
    """Breaks a task off, once, when something else ends first."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.fired = False
        self.is_over = False

    def ended(self, end: asyncio.Future[Any]) -> None:
        if not end.cancelled():
            end.exception()  # how it ended does not matter, only that it did
        if not (self.is_over or self.fired):
            self.fired = True
            self._task.cancel()
