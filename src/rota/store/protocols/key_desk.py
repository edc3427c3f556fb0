"""Idempotency keys, looked up together without waiting for the fold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rota.core.model import Instant, KeyRecord
from rota.store.limits import KEYS_PER_LOOKUP
from rota.store.protocols.desk import BatchedLookup


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
