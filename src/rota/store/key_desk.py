"""Idempotency keys, looked up together without waiting for the fold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from rota.core.model import Instant, KeyRecord
from rota.store.desk import Desk
from rota.store.limits import KEYS_PER_LOOK


class KeyLook(msgspec.Struct, frozen=True):
    """What the tables say of an idempotency key, and up to when they say everything."""

    record: KeyRecord | None
    behind_since: Instant | None
    """The time of the oldest record that is not in the tables yet; None: all of them are."""


Found: TypeAlias = tuple[Instant | None, dict[str, KeyRecord]]
"""At one moment: the time of the oldest record not folded yet, and those of the keys it finds."""


class KeyDesk:
    """Where they are looked up."""

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[Found]]) -> None:
        self._desk = Desk(read, KEYS_PER_LOOK)

    async def look(self, key: str) -> KeyLook:
        """What the tables say of the key, at a moment after this was asked."""
        behind_since, found = await self._desk.look([key])
        return KeyLook(found.get(key), behind_since)
