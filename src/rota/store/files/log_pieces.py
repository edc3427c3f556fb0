"""Where the bytes of a log upload go: which are new, which are kept, which come too late."""

from __future__ import annotations

import msgspec


class LogAddition(msgspec.Struct, frozen=True):
    """What an upload adds to a log."""

    kept: bytes
    """Goes to the end of what is stored."""
    dropped: int
    """Came after the log was full."""


class LogExtent(msgspec.Struct, frozen=True):
    """How much of a log was kept and how much was left out since; the sender has seen both."""

    stored: int = 0
    dropped: int = 0

    @property
    def end(self) -> int:
        """Where the sender goes on."""
        return self.stored + self.dropped

    def place(self, offset: int | None, data: bytes, bytes_max: int) -> LogAddition:
        """A repeat brings nothing new; a gap is refused as a whole, so that the sender fills it."""
        start = self.end if offset is None else offset
        if start > self.end:
            return LogAddition(b"", 0)
        fresh = data[self.end - start :]
        room = max(0, bytes_max - self.stored) if self.dropped == 0 else 0
        return LogAddition(fresh[:room], max(0, len(fresh) - room))
