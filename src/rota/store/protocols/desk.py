"""Things looked up together: whoever comes while a look is under way shares the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K")
F = TypeVar("F")


class _Batch(Generic[K, F]):
    def __init__(self) -> None:
        self.keys: list[K] = []
        self.answer: asyncio.Future[F] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(_ignore_unread_error)


class BatchedLookup(Generic[K, F]):
    """One look at a time: a single caller waits for nobody, and a crowd costs a few reads."""

    def __init__(self, read: Callable[[Sequence[K]], Awaitable[F]], keys_max: int) -> None:
        self._read = read
        self._keys_max = keys_max
        self._is_reading = False
        self._next: deque[_Batch[K, F]] = deque()

    async def look(self, keys: Sequence[K]) -> F:
        """What is found of these, and of those of others, at a moment after this was asked."""
        if self._is_reading:
            return await self._join(keys)
        self._is_reading = True
        try:
            return await self._read(keys)
        finally:
            self._start_next()

    async def _join(self, keys: Sequence[K]) -> F:
        if not self._next or len(self._next[-1].keys) + len(keys) > self._keys_max:
            self._next.append(_Batch())
        batch = self._next[-1]
        batch.keys += keys
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(batch.answer)

    def _start_next(self) -> None:
        """With those who came meanwhile."""
        if not self._next:
            self._is_reading = False
            return
        batch = self._next.popleft()
        looking = asyncio.ensure_future(self._read(batch.keys))
        looking.add_done_callback(partial(self._served, batch))

    def _served(self, batch: _Batch[K, F], found: asyncio.Future[F]) -> None:
        if found.cancelled():
            batch.answer.cancel()
        elif (error := found.exception()) is not None:
            batch.answer.set_exception(error)
        else:
            batch.answer.set_result(found.result())
        self._start_next()


def _ignore_unread_error(answer: asyncio.Future[F]) -> None:
    """Whatever went wrong is told to those who wait; perhaps nobody does any more."""
    if not answer.cancelled():
        answer.exception()
