"""Cancels work for a request whose client has disconnected, or whose server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


async def client_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(work: Coroutine[Any, Any, T], *ends: Awaitable[Any]) -> T | None:
    """Returns the result of `work`; cancels it and returns None if one of `ends` completes first.

    `work` runs in the caller's own task: an answer that many wait for, such as a worker's next
    order, is not passed from task to task.
    """
    here = asyncio.current_task()
    assert here is not None
    canceller = _Canceller(here)
    others = [asyncio.ensure_future(end) for end in ends]
    for other in others:
        other.add_done_callback(canceller.ended)
    try:
        return await work
    except asyncio.CancelledError:
        # If the task was cancelled from outside as well, one more cancel is pending.
        if canceller.fired and here.uncancel() == 0:
            return None
        raise
    finally:
        canceller.is_over = True
        for other in others:
            other.cancel()


class _Canceller:
    """Cancels a task, once, when another future completes first."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.fired = False
        self.is_over = False

    def ended(self, end: asyncio.Future[Any]) -> None:
        if not end.cancelled():
            end.exception()  # its result does not matter; reading it avoids a warning
        if not (self.is_over or self.fired):
            self.fired = True
            self._task.cancel()
