"""What jobs print, in a SQLite file of its own: bulk that may lose its tail in a power cut."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from rota.core.model import ExecutionId
from rota.store.files.log_pieces import LogExtent
from rota.store.limits import LOG_PIECE_BYTES, LOG_READERS, StoreLimits
from rota.store.protocol import LogPage, StoreError
from rota.store.sqlite.connect import as_store_error, fetch, open_writer, release_free_pages
from rota.store.sqlite.reader import ReaderThreads


class SqliteLogs:
    """Logs on SQLite; one thread writes, others read."""

    def __init__(self, path: Path, bytes_max: int, limits: StoreLimits) -> None:
        self._bytes_max, self._limits = bytes_max, limits
        self._connection = open_writer(path, "sqlite_logs")
        # Workers hold on to what was not acknowledged, and a log is no promise: a crash of the
        # process loses nothing, a power cut perhaps the last moments.
        self._connection.pragma("synchronous", "normal")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="rota-write-logs")
        self._readers = ReaderThreads(path, LOG_READERS)

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        """Adds what is new; answers where the sender goes on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._append, execution_id, offset, data)

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        """At most `limit` bytes from `offset`."""
        return await self._readers.run(lambda c: read_log(c, execution_id, offset, limit))

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes the logs of these."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, self._forget, execution_ids)

    def forget_from_thread(self, execution_ids: Sequence[ExecutionId]) -> None:
        """The same, for a caller that may wait."""
        self._writer.submit(self._forget, execution_ids).result()

    async def close(self) -> None:
        """Finishes what was asked before."""
        await self._readers.close()
        await asyncio.to_thread(self._writer.shutdown)
        self._connection.close()

    def _append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            end = self._place(execution_id, offset, data)
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            raise as_store_error(error, self._connection) from error
        return end

    def _place(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        log_id, size = _find(self._connection, execution_id)
        placed = size.place(offset, data, self._bytes_max)
        after = LogExtent(size.stored + len(placed.kept), size.dropped + placed.dropped)
        if after == size:
            return size.end
        log_id = self._connection.execute(
            "INSERT INTO logs (execution_id, size, dropped) VALUES (?1, ?2, ?3)"
            " ON CONFLICT (execution_id) DO UPDATE SET size = ?2, dropped = ?3 RETURNING id",
            (execution_id, after.stored, after.dropped),
        ).get
        self._connection.executemany(
            "INSERT INTO pieces (log_id, start, data) VALUES (?, ?, ?)",
            [
                (log_id, size.stored + at, placed.kept[at : at + LOG_PIECE_BYTES])
                for at in range(0, len(placed.kept), LOG_PIECE_BYTES)
            ],
        )
        return after.end

    def _forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        try:
            # One log a transaction: a large one must not hold up the others for long.
            for execution_id in execution_ids:
                self._connection.execute("DELETE FROM logs WHERE execution_id = ?", (execution_id,))
            release_free_pages(self._connection, self._limits)
        except apsw.Error as error:
            raise as_store_error(error, self._connection) from error


def _find(connection: apsw.Connection, execution_id: ExecutionId) -> tuple[int, LogExtent]:
    found = fetch(
        connection, "SELECT id, size, dropped FROM logs WHERE execution_id = ?", (execution_id,)
    )
    return (found[0][0], LogExtent(found[0][1], found[0][2])) if found else (0, LogExtent())


def read_log(
    connection: apsw.Connection, execution_id: ExecutionId, offset: int, limit: int
) -> LogPage:
    """At most `limit` bytes of a log from `offset`."""
    if offset < 0 or limit < 0:
        raise StoreError("a log is read from an offset and up to a number of bytes, both from 0 up")
    log_id, size = _find(connection, execution_id)
    # Bounded by the size seen first: a piece appended since belongs to the next page.
    end = min(offset + limit, size.stored)
    pieces = connection.execute(
        "SELECT start, data FROM pieces WHERE log_id = ? AND start > ? AND start < ?"
        " ORDER BY start",
        (log_id, offset - LOG_PIECE_BYTES, end),
    )
    data = b"".join(piece[max(0, offset - start) : max(0, end - start)] for start, piece in pieces)
    return LogPage(data, offset + len(data), size.stored, size.dropped)
