"""A disk that fails to order, between SQLite and the real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import apsw

_numbers = count()


class FaultyDisk(apsw.VFS):
    """A virtual file system of SQLite; only the write-ahead log's file has faults."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_numbers)}"
        self.sync_fails = False
        self.is_full = False
        self.full_after_sync = False
        self.syncs = 0
        """How often SQLite waited for the log to be on the disk."""
        super().__init__(self.name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _FaultyFile(self, name, flags)

    def fail_next_sync(self) -> None:
        self.sync_fails = True

    @contextmanager
    def full(self) -> Iterator[None]:
        self.is_full = True
        yield
        self.is_full = False

    @contextmanager
    def full_after_next_write_transaction(self) -> Iterator[None]:
        """Room for one append, which ends in a sync, and for nothing that comes behind it."""
        self.full_after_sync = True
        yield
        self.is_full = self.full_after_sync = False


class _FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._is_wal = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._is_wal and self._disk.sync_fails:
            self._disk.sync_fails = False
            raise apsw.IOError("the disk did not answer")
        super().xSync(flags)
        self._disk.syncs += self._is_wal
        if self._is_wal and self._disk.full_after_sync:
            self._disk.is_full = True

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        if self._is_wal and self._disk.is_full:
            raise apsw.FullError("no space left")
        super().xWrite(data, offset)
