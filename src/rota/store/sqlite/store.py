"""Store of one data directory: SQLite for journal, tables and logs, files for artifacts.

A lock of the operating system keeps other servers out of the directory; it ends with its process.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from rota.core.model import Instant
from rota.store.documents import MemoryNodes
from rota.store.files.artifacts import DiskArtifacts
from rota.store.limits import LOG_BYTES_PER_EXECUTION, READERS, STORE_LIMITS, StoreLimits
from rota.store.protocol import (
    ONE_DISK,
    Dropped,
    Durability,
    StoreError,
    StoreLockedError,
    agreed_cell_name,
)
from rota.store.sqlite.connect import open_writer, release_free_pages
from rota.store.sqlite.database_file import refuse_lost
from rota.store.sqlite.documents import SqliteHooks, SqliteNotes
from rota.store.sqlite.journal_store import SqliteJournalStore
from rota.store.sqlite.logs_and_files import SqliteLogs, SqliteObjectIndex
from rota.store.sqlite.query_store import ReaderThreads, SqliteQueryStore
from rota.store.sqlite.retention import drop_some
from rota.store.sqlite.tokens import SqliteTokenStore


class DirectoryLock:
    """Lock of a data directory, held from construction to `release`.

    The file stays: if it were deleted, two processes could hold it.
    """

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
        """Lets another server use the directory."""
        os.close(self._file)


DATABASES = {"rota.db": "sqlite", "logs.db": "sqlite_logs"}
"""The files of a data directory, and the schema of each."""


def open_sqlite(
    data_dir: Path,
    *,
    log_bytes_max: int = LOG_BYTES_PER_EXECUTION,
    limits: StoreLimits = STORE_LIMITS,
) -> SqliteStore:
    """Opens or makes the store; refuses a directory that another server uses."""
    lock = _locked(data_dir)
    try:
        refuse_lost(data_dir / "rota.db", data_dir / "logs.db")
        if not (data_dir / "logs.db").exists():
            # First: once there are logs, this file must be there too.
            open_writer(data_dir / "rota.db", "sqlite").close()
        return SqliteStore(data_dir, lock, log_bytes_max, limits)
    except StoreError:
        lock.release()
        raise


def migrate_directory(data_dir: Path) -> None:
    """Brings a data directory up to date, also one of 0.1; refuses one that a server uses."""
    lock = _locked(data_dir)
    try:
        refuse_lost(data_dir / "rota.db", data_dir / "logs.db")
        for file, dialect in DATABASES.items():
            open_writer(data_dir / file, dialect, from_0_1=True).close()
    finally:
        lock.release()


def _locked(data_dir: Path) -> DirectoryLock:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return DirectoryLock(data_dir)
    except OSError as error:
        raise StoreError(f"cannot use {data_dir} as data directory: {error}") from error


class SqliteStore:
    """Store of a cell in one data directory."""

    def __init__(
        self, data_dir: Path, lock: DirectoryLock, log_bytes_max: int, limits: StoreLimits
    ) -> None:
        self._lock = lock
        self._limits = limits
        path = data_dir / "rota.db"
        self.logs = SqliteLogs(data_dir / "logs.db", log_bytes_max, limits)
        self.artifacts = DiskArtifacts(data_dir / "artifacts")
        self._sweeper = ThreadPoolExecutor(1, thread_name_prefix="rota-sweep")
        self.journal = SqliteJournalStore(path, self._sweep_soon, limits=limits)
        file = self.journal.file
        self.queries = SqliteQueryStore(ReaderThreads(file, READERS), self.journal)
        self.tokens = SqliteTokenStore(self.journal, limits)
        # Only this server uses the directory, so no other one needs to read this.
        self.nodes = MemoryNodes()
        self._dropped_to = ""
        self.hooks = SqliteHooks(self.journal)
        self.objects = SqliteObjectIndex(ReaderThreads(file, 1), self.journal)
        self.notes = SqliteNotes(self.journal)
        self._sweep_soon()

    async def durability(self) -> Durability:
        return ONE_DISK

    async def name_cell(self, name: str) -> str:
        return agreed_cell_name(await self.journal.name_cell(name), name)

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops those that ended of the next few old jobs."""
        after, limits = self._dropped_to, self._limits
        step = await self.journal.run_durably(lambda c: drop_some(c, before, after, limits))
        self._dropped_to = step.after
        if step.leaves_behind:
            self._sweep_soon()
        # Not between the steps: the next one frees more pages.
        more = bool(step.after) or await self.journal.run_durably(
            lambda c: release_free_pages(c, limits)
        )
        return Dropped(step.dropped, more)

    async def close(self) -> None:
        # Readers first: SQLite merges the write-ahead log when the last connection closes, and only
        # if that one may write.
        await self.queries.close()
        await self.objects.close()
        await self.journal.close()
        await asyncio.to_thread(self._sweeper.shutdown)
        await self.logs.close()
        await self.artifacts.close()
        self._lock.release()

    def _sweep_soon(self) -> None:
        self._sweeper.submit(self._sweep)

    def _sweep(self) -> None:
        """Removes logs and files of deleted jobs; what fails is found again by the next sweep."""
        with suppress(StoreError):
            while execution_ids := self.journal.leftovers().result():
                self.logs.forget_from_thread(execution_ids)
                self.artifacts.forget_from_thread(execution_ids)
                self.journal.forget_leftovers(execution_ids).result()
