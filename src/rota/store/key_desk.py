"""Idempotency keys looked up together: whoever comes while a look is under way shares the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
        self.answer: asyncio.Task[Found] | None = None


class KeyDesk:
    """One look at a time: a single caller waits for nobody, and a crowd costs a few reads."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._turn = asyncio.Lock()
        self._next: _Batch | None = None

    async def look(self, key: str) -> KeyLook:
        """What the tables say of the key, at a moment after this was asked."""
        batch = self._next
        if batch is None or len(batch.keys) >= KEYS_PER_LOOK:
            batch = self._next = _Batch()
            batch.answer = asyncio.create_task(self._serve(batch))
            batch.answer.add_done_callback(_heard)
        batch.keys.append(key)
        assert batch.answer is not None
        # One who goes away must not take the answer from the others.
        behind_since, found = await asyncio.shield(batch.answer)
        return KeyLook(found.get(key), behind_since)

    async def _serve(self, batch: _Batch) -> Found:
        async with self._turn:
            if self._next is batch:
                self._next = None
            return await self._read(batch.keys)


def _heard(answer: asyncio.Task[Found]) -> None:
    """Whatever went wrong is told to those who wait; perhaps nobody does any more."""
    if not answer.cancelled():
        answer.exception()
