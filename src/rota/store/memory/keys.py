"""Idempotency keys in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from rota.core.model import KeyRecord
from rota.store.protocols.key_desk import KeyLook


class MemoryKeys(ABC):
    """A part of the catalog."""

    @abstractmethod
    def _all_keys(self) -> Mapping[str, KeyRecord]:
        """Those of the tables as they are now."""

    async def key(self, key: str) -> KeyRecord | None:
        """What was answered to an idempotency key."""
        return self._all_keys().get(key)

    async def key_at_once(self, key: str) -> KeyLook:
        """The same: there is nothing to wait for."""
        return KeyLook(self._all_keys().get(key), None)

    async def keys_after(self, key: str, limit: int) -> list[str]:
        """The next keys."""
        return sorted(one for one in self._all_keys() if one > key)[:limit]
