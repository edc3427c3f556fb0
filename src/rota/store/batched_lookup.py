"""Batches lookups: callers that come while one lookup is under way share the next.

Idempotency keys are looked up so, without waiting for the projection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from rota.core.model import Instant, KeyRecord
from rota.store.limits import KEYS_PER_LOOKUP

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


class KeyStatus(msgspec.Struct, frozen=True):
    """What the tables say of an idempotency key, and up to when they say everything."""

    record: KeyRecord | None
    behind_since: Instant | None
    """The time of the oldest record that is not in the tables yet; None: all of them are."""
    may_wait: bool = True
    """Whether a submission with this key may be in the inbox. Where it costs nothing the store has
    looked there at the same moment."""


class Keys(Protocol):
    """The keys of the last day, and what was answered to them."""

    async def key(self, key: str) -> KeyRecord | None:
        """What was answered to an idempotency key."""
        ...

    async def key_at_once(self, key: str) -> KeyStatus:
        """The same without waiting for what is on its way into the tables."""
        ...

    async def keys_after(self, key: str, limit: int) -> list[str]:
        """The next keys, in an order of the store's own; the empty one is before all others.

        From there it sees all that was appended before. From any other it does not wait for what
        came since: page after page would hurry the fold, and that takes turns with whoever appends.
        """
        ...


class FoundKeys(NamedTuple):
    """What a look comes to, all of it as of one moment."""

    behind_since: Instant | None
    """The time of the oldest record not folded yet."""
    records: Mapping[str, KeyRecord]
    waiting: Collection[str] | None = None
    """Those that are in the inbox; None: nobody has looked."""


class KeyLookup:
    """Where they are looked up."""

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[FoundKeys]]) -> None:
        self._lookup = BatchedLookup(read, KEYS_PER_LOOKUP)

    async def look(self, key: str) -> KeyStatus:
        """What the tables say of the key, at a moment after this was asked."""
        found = await self._lookup.look([key])
        may_wait = found.waiting is None or key in found.waiting
        return KeyStatus(found.records.get(key), found.behind_since, may_wait)
