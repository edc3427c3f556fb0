"""One server a data directory: an OS lock that ends with its holder, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rota.store.protocol import StoreLockedError


class DirectoryLock:
    """Held from construction to `release`. The file stays: deleting it would let two hold it."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 32).decode("ascii", "replace").strip()
            os.close(self._file)
            process = f"process {holder}" if holder.isdigit() else "another process"
            raise StoreLockedError(
                f"{process} is using {directory}: stop that server, or choose another directory"
                " with --data"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Lets the next one in."""
        os.close(self._file)
