"""What to say of a failure, and how long to wait before the next try."""

from __future__ import annotations

from zlib import crc32

from rota.engine.limits import RETRY_DELAY_S_MAX, RETRY_DELAY_S_MIN
from rota.store.protocol import FencedError, OtherDatabaseError, StoreError, StoreFullError


def unready_reason(error: Exception) -> str:
    """Why the server is not ready, for whoever asks."""
    if isinstance(error, StoreFullError):
        return "the data disk is full: free some space"
    if isinstance(error, FencedError):
        return "another server leads"
    if isinstance(error, OtherDatabaseError):
        return str(error)
    return "reading the store"


def is_unexpected(error: Exception) -> bool:
    """Whether it is a bug, whose place in the code should be logged."""
    return not isinstance(error, StoreError)


class ReloadBackoff:
    """Pauses that grow while failures follow one another; servers do not all come back at once."""

    def __init__(self, node: str) -> None:
        self._spread = 0.75 + crc32(node.encode()) % 512 / 1024
        self._next_s = 0.0

    def reset(self) -> None:
        """It went well."""
        self._next_s = 0.0

    def next_s(self, error: Exception) -> float:
        """How long to wait now: not at all after the first failure, unless the disk is full."""
        pause_s = self._next_s
        if isinstance(error, StoreFullError):
            pause_s = max(pause_s, RETRY_DELAY_S_MAX / 2)
        self._next_s = min(max(RETRY_DELAY_S_MIN, pause_s * 2), RETRY_DELAY_S_MAX)
        return pause_s * self._spread
