"""Database file of SQLite while it is open: notices that somebody removed or replaced it.

SQLite goes on with a file that has no name any more, and so would acknowledge what is lost when
the process ends.
"""

from __future__ import annotations

import os
from pathlib import Path

from rota.store.errors import DamagedError, FileGoneError

MEMORY = Path(":memory:")
"""A database without a file: it exists in its one connection."""

_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_LOOKS = 3


class DatabaseFile:
    """Database file and its write-ahead log, as they were when they were opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: DamagedError | None = None
        """Set when the tables cannot follow the journal because pages are damaged."""
        self._opened: list[tuple[str, int, int]] = []
        self._wal_bytes_min = 0

    def opened(self) -> None:
        """Notes which files these are; to be called when SQLite has opened and read them."""
        if self.path != MEMORY:
            names = (str(self.path), f"{self.path}-wal")
            self._opened = [(name, *_identity(name)[:2]) for name in names]

    def note_wal(self, pages: int, page_bytes: int) -> None:
        """Notes how many pages the write-ahead log has now."""
        if not self._opened:
            return
        self._wal_bytes_min = _WAL_HEADER_BYTES + pages * (_FRAME_HEADER_BYTES + page_bytes)

    def check(self) -> None:
        """Raises FileGoneError if a file is gone, DamagedError if one cannot be used any more.

        Before a write it notices a truncated log, which the write would fill up with zeros; after
        it, that what was written has gone into the file of that name.
        """
        if self.damage is not None:
            raise self.damage
        # The log grows and begins anew while a reader's thread looks: what it is compared with must
        # be older than the look, and one that has just begun anew is looked at once more.
        for _ in range(_LOOKS):
            wal_bytes_min = self._wal_bytes_min
            if self._wal_bytes() >= wal_bytes_min:
                return
        raise DamagedError(
            f"{self.path}-wal was truncated while the server used it: stop the server and restore"
            " a backup"
        )

    def _wal_bytes(self) -> int:
        """Returns the size of the write-ahead log; raises FileGoneError if a file is another."""
        size = 0
        for name, device, inode in self._opened:
            found_device, found_inode, size = _identity(name)
            if (found_device, found_inode) != (device, inode):
                raise _gone(name, "was replaced")
        return size


def _identity(name: str) -> tuple[int, int, int]:
    """Returns device, inode and size."""
    try:
        found = os.stat(name)
    except OSError as error:
        raise _gone(name, f"is gone ({error.strerror})") from error
    return found.st_dev, found.st_ino, found.st_size


def _gone(name: str, what: str) -> FileGoneError:
    return FileGoneError(
        f"{name} {what} while the server used it: stop the server, put the file back or restore a"
        " backup, and start it again"
    )


def refuse_lost(path: Path, beside: Path) -> None:
    """Refuses a data directory from which `path` was removed: a new one would hide that.

    `beside` is made after it.
    """
    if _size(beside) and not _size(path):
        raise FileGoneError(
            f"{path} is missing or empty, but {beside.name} is there: restore a backup; to begin"
            f" with an empty store, remove {beside.name} too"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
