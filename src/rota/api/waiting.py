"""Waits for whichever comes first: an answer, or the end of whoever wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


async def gone(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(work: Coroutine[Any, Any, T], *ends: Awaitable[Any]) -> T | None:
    """What `work` comes to; None, with it cancelled, if one of the others ends first."""
    task = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(end) for end in ends]
    try:
        await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        await _cancel(task, *others)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    # Their own failures matter no more: what counts has been returned or raised already.
    await asyncio.gather(*tasks, return_exceptions=True)
