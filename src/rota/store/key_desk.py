"""Idempotency keys looked up together: whoever comes while a look is under way shares the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from rota.core.model import Instant, KeyRecord
from rota.store.limits import KEYS_PER_LOOK


class KeyLook(msgspec.Struct, frozen=True):
    """What the tables say of an idempotency key, and up to when they say everything."""

    record: KeyRecord | None
    behind_since: Instant | None
    """The time of the oldest record that is not in the tables yet; None: all of them are."""


Found: TypeAlias = tuple[Instant | None, dict[str, KeyRecord]]
"""At one moment: the time of the oldest record not folded yet, and those of the keys it finds."""
Read: TypeAlias = Callable[[Sequence[str]], Awaitable[Found]]


class _Batch:
    def __init__(self) -> None:
        self.keys: list[str] = []
        self.answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(_heard)


class KeyDesk:
    """One look at a time: a single caller waits for nobody, and a crowd costs a few reads."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._looking = False
        self._next: deque[_Batch] = deque()

    async def look(self, key: str) -> KeyLook:
        """What the tables say of the key, at a moment after this was asked."""
        if self._looking:
            behind_since, found = await self._join(key)
        else:
            self._looking = True
            try:
                behind_since, found = await self._read([key])
            finally:
                self._go_on()
        return KeyLook(found.get(key), behind_since)

    async def _join(self, key: str) -> Found:
        if not self._next or len(self._next[-1].keys) >= KEYS_PER_LOOK:
            self._next.append(_Batch())
        batch = self._next[-1]
        batch.keys.append(key)
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(batch.answer)

    def _go_on(self) -> None:
        """With those who came meanwhile."""
        if not self._next:
            self._looking = False
            return
        batch = self._next.popleft()
        looking = asyncio.ensure_future(self._read(batch.keys))
        looking.add_done_callback(partial(self._served, batch))

    def _served(self, batch: _Batch, found: asyncio.Future[Found]) -> None:
        if found.cancelled():
            batch.answer.cancel()
        elif (error := found.exception()) is not None:
            batch.answer.set_exception(error)
        else:
            batch.answer.set_result(found.result())
        self._go_on()


def _heard(answer: asyncio.Future[Found]) -> None:
    """Whatever went wrong is told to those who wait; perhaps nobody does any more."""
    if not answer.cancelled():
        answer.exception()
