"""Logs of executions in a SQLite file of their own, and the index of objects in storage.

A power cut may take the last moments of a log; the index is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from rota.core.model import ExecutionId, Instant
from rota.store.limits import LOG_PIECE_BYTES, LOG_READERS, StoreLimits
from rota.store.log_pieces import log_page, log_pieces
from rota.store.object_index import (
    Bundle,
    BundleQuery,
    LargeOutput,
    decode_bundle,
    encode_bundle,
    to_large_output,
)
from rota.store.protocol import LogExtent, LogPage, StoreError
from rota.store.rows import Row
from rota.store.sqlite.connect import (
    SQLITE_ERRORS,
    as_store_error,
    fetch,
    open_writer,
    release_free_pages,
)
from rota.store.sqlite.database_file import DatabaseFile
from rota.store.sqlite.journal_store import SqliteJournalStore
from rota.store.sqlite.query_store import Readers, ReaderThreads
from rota.store.sqlite.retention import DELETE_LATER, placeholders


class SqliteLogs:
    """Logs on SQLite: one thread writes, others read."""

    def __init__(self, path: Path, bytes_max: int, limits: StoreLimits) -> None:
        self._bytes_max, self._limits = bytes_max, limits
        self._file = DatabaseFile(path)
        self._connection = open_writer(path, "sqlite_logs")
        self._file.opened()
        # Workers send again what was not acknowledged, and logs need not be durable: a crash of the
        # process loses nothing, a power cut perhaps the last moments.
        self._connection.pragma("synchronous", "normal")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="rota-write-logs")
        self._readers = ReaderThreads(self._file, LOG_READERS)

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._append, execution_id, offset, data)

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        return await self._readers.run(lambda c: read_log(c, execution_id, offset, limit))

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, self._forget, execution_ids)

    def forget_from_thread(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes the logs of these, and blocks until it is done."""
        self._writer.submit(self._forget, execution_ids).result()

    async def close(self) -> None:
        await self._readers.close()
        await asyncio.to_thread(self._writer.shutdown)
        self._connection.close()

    def _append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            end = self._place(execution_id, offset, data)
            self._connection.execute("COMMIT")
        except SQLITE_ERRORS as error:
            raise as_store_error(error, self._connection) from error
        self._file.check()
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
            [(log_id, *piece) for piece in log_pieces(execution_id, size, placed.kept)],
        )
        return after.end

    def _forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        try:
            # One log per transaction: a large one must not hold up the others for long.
            for execution_id in execution_ids:
                self._connection.execute("DELETE FROM logs WHERE execution_id = ?", (execution_id,))
            release_free_pages(self._connection, self._limits)
        except SQLITE_ERRORS as error:
            raise as_store_error(error, self._connection) from error


def _find(connection: apsw.Connection, execution_id: ExecutionId) -> tuple[int, LogExtent]:
    found = fetch(
        connection, "SELECT id, size, dropped FROM logs WHERE execution_id = ?", (execution_id,)
    )
    return (found[0][0], LogExtent(found[0][1], found[0][2])) if found else (0, LogExtent())


def read_log(
    connection: apsw.Connection, execution_id: ExecutionId, offset: int, limit: int
) -> LogPage:
    if offset < 0 or limit < 0:
        raise StoreError("offset and limit of a log must not be negative")
    # In one transaction: the log may be removed meanwhile, and must not look damaged.
    connection.execute("BEGIN")
    try:
        log_id, size = _find(connection, execution_id)
        end = min(offset + limit, size.stored)
        pieces = connection.execute(
            "SELECT start, data FROM pieces WHERE log_id = ? AND start > ? AND start < ?"
            " ORDER BY start",
            (log_id, offset - LOG_PIECE_BYTES, end),
        )
        return log_page(execution_id, pieces, offset, end, size)
    finally:
        connection.execute("COMMIT")


class SqliteObjectIndex:
    """Index of object storage on SQLite, written durably by the one thread that writes."""

    def __init__(self, readers: Readers, writer: SqliteJournalStore) -> None:
        self._writer = writer
        self._readers = readers

    async def intend(self, key: str, until: Instant) -> None:
        await self._ask("INSERT OR REPLACE INTO doomed VALUES (?, ?)", (key, until))

    async def keep(self, kept: LargeOutput) -> None:
        await self._writer.run_durably(lambda c: _keep(c, kept))

    async def forget(self, execution_id: ExecutionId, name: str) -> None:
        await self._writer.run_durably(lambda c: _forget(c, execution_id, name))

    async def large_outputs(self, execution_ids: Sequence[ExecutionId]) -> Sequence[LargeOutput]:
        wanted = placeholders(execution_ids)
        sql = f"SELECT * FROM objects WHERE execution_id IN ({wanted}) ORDER BY 1, 2"
        return [to_large_output(*row) for row in await self._read(sql, tuple(execution_ids))]

    async def deletions_due(self, now: Instant, limit: int) -> Sequence[str]:
        sql = "SELECT key FROM doomed WHERE at <= ? ORDER BY at, key LIMIT ?"
        return [row[0] for row in await self._read(sql, (now, limit))]

    async def confirm_deleted(self, keys: Sequence[str]) -> None:
        await self._ask(f"DELETE FROM doomed WHERE key IN ({placeholders(keys)})", tuple(keys))

    async def add_bundle(self, bundle: Bundle) -> Bundle:
        return await self._writer.run_durably(lambda c: _add_bundle(c, bundle))

    async def bundles(self, bundle_ids: Sequence[str]) -> Sequence[Bundle]:
        sql = f"SELECT id, body, used_at FROM bundles WHERE id IN ({placeholders(bundle_ids)})"
        return [decode_bundle(*row) for row in await self._read(sql, tuple(bundle_ids))]

    async def find_bundles(self, query: BundleQuery) -> Sequence[Bundle]:
        where, args = ["true"], []
        for clause, value in (
            ("tenant = ?", query.tenant),
            ("sha256 = ?", query.sha256),
            ("used_at < ?", query.unused_since),
            ("id < ?", query.before),
        ):
            if value is not None:
                where.append(clause)
                args.append(value)
        sql = f"SELECT id, body, used_at FROM bundles WHERE {' AND '.join(where)} ORDER BY id DESC"
        found = await self._read(f"{sql} LIMIT {query.limit:d}", tuple(args))
        return [decode_bundle(*row) for row in found]

    async def use_bundles(self, bundle_ids: Sequence[str], now: Instant) -> None:
        sql = (
            f"UPDATE bundles SET used_at = max(used_at, ?) WHERE id IN ({placeholders(bundle_ids)})"
        )
        await self._ask(sql, (now, *bundle_ids))

    async def drop_bundle(self, bundle_id: str) -> bool:
        return await self._writer.run_durably(lambda c: _drop_bundle(c, bundle_id))

    async def mark_storage(self, mark: str, *, replace: bool = False) -> str:
        verb = "REPLACE" if replace else "IGNORE"
        await self._ask(f"INSERT OR {verb} INTO storage VALUES (1, ?)", (mark,))
        return str((await self._ask("SELECT mark FROM storage"))[0][0])

    async def close(self) -> None:
        await self._readers.close()

    async def _read(self, sql: str, args: Row = ()) -> list[Row]:
        return await self._readers.run(lambda c: fetch(c, sql, args))

    async def _ask(self, sql: str, args: Row = ()) -> list[Row]:
        return await self._writer.run_durably(lambda c: fetch(c, sql, args))


def _keep(connection: apsw.Connection, kept: LargeOutput) -> None:
    with connection:
        _forget(connection, kept.execution_id, kept.name)
        row = (kept.execution_id, kept.name, kept.size, kept.sha256, kept.key)
        fetch(connection, "INSERT INTO objects VALUES (?, ?, ?, ?, ?)", row)
        fetch(connection, "DELETE FROM doomed WHERE key = ?", (kept.key,))


def _forget(connection: apsw.Connection, execution_id: ExecutionId, name: str) -> None:
    sql = "DELETE FROM objects WHERE execution_id = ? AND name = ? RETURNING key"
    with connection:
        for (key,) in fetch(connection, sql, (execution_id, name)):
            if key:
                fetch(connection, DELETE_LATER, (key,))


def _add_bundle(connection: apsw.Connection, bundle: Bundle) -> Bundle:
    row = (bundle.id, bundle.tenant, bundle.sha256, bundle.used_at, encode_bundle(bundle))
    with connection:
        fetch(connection, "INSERT OR IGNORE INTO bundles VALUES (?, ?, ?, ?, ?)", row)
        found = fetch(
            connection,
            "SELECT id, body, used_at FROM bundles WHERE tenant = ? AND sha256 = ?",
            (bundle.tenant, bundle.sha256),
        )
        taken = decode_bundle(*found[0])
        fetch(connection, "DELETE FROM doomed WHERE key = ?", (taken.key,))
    return taken


def _drop_bundle(connection: apsw.Connection, bundle_id: str) -> bool:
    sql = "DELETE FROM bundles WHERE id = ? RETURNING id, body, used_at"
    with connection:
        found = fetch(connection, sql, (bundle_id,))
        for row in found:
            fetch(connection, DELETE_LATER, (decode_bundle(*row).key,))
    return bool(found)
