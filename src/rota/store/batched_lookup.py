"""Batched lookups, of idempotency keys above all: callers that come during one share the next."""

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
    """Lookup that runs once at a time: a single caller does not wait, many callers share a read."""

    def __init__(self, read: Callable[[Sequence[K]], Awaitable[F]], keys_max: int) -> None:
        self._read = read
        self._keys_max = keys_max
        self._is_reading = False
        self._next: deque[_Batch[K, F]] = deque()

    async def look(self, keys: Sequence[K]) -> F:
        """Returns what is found of these, and of other callers' keys, after this was asked."""
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
        # A caller that is cancelled must not take the answer from the others.
        return await asyncio.shield(batch.answer)

    def _start_next(self) -> None:
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
    # An error is raised in those who wait; perhaps nobody does any more.
    if not answer.cancelled():
        answer.exception()


class KeyStatus(msgspec.Struct, frozen=True):
    """Status of an idempotency key in the tables, and how far behind the tables are."""

    record: KeyRecord | None
    behind_since: Instant | None
    """The time of the oldest record that is not projected yet; None: all are."""
    may_wait: bool = True
    """Whether a submission with this key may be in the inbox; a store that looked there knows."""


class Keys(Protocol):
    """Idempotency keys of the last day, and what was answered to them."""

    async def key(self, key: str) -> KeyRecord | None:
        """Returns what was answered to an idempotency key."""
        ...

    async def key_at_once(self, key: str) -> KeyStatus:
        """Returns the same without waiting for the projection."""
        ...

    async def keys_after(self, key: str, limit: int) -> list[str]:
        """Returns the next keys, in an order of the store's own; the empty key is the first.

        From there it sees all that was appended before. From any other it does not wait for the
        projection: page after page would hurry it, and it takes turns with whoever appends.
        """
        ...


class FoundKeys(NamedTuple):
    """Result of a lookup of keys, all of it as of one moment."""

    behind_since: Instant | None
    """The time of the oldest record not projected yet."""
    records: Mapping[str, KeyRecord]
    waiting: Collection[str] | None = None
    """Those that are in the inbox; None: not looked up."""


class KeyLookup:
    """Looks up idempotency keys in batches."""

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[FoundKeys]]) -> None:
        self._lookup = BatchedLookup(read, KEYS_PER_LOOKUP)

    async def look(self, key: str) -> KeyStatus:
        """Returns what the tables say of the key, at a moment after this was asked."""
        found = await self._lookup.look([key])
        may_wait = found.waiting is None or key in found.waiting
        return KeyStatus(found.records.get(key), found.behind_since, may_wait)
