"""Connections to SQLite: file mode, durability, caches; and translation of SQLite's errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from rota.store.errors import DamagedError
from rota.store.limits import (
    READER_BUSY_MS,
    READER_CACHE_KIB,
    ROWS_PER_STATEMENT,
    WAL_BYTES_KEPT,
    WRITER_CACHE_KIB,
    StoreLimits,
)
from rota.store.migrate import known_migrations, migrate_sqlite
from rota.store.protocol import StoreError, StoreFullError, UnknownFateError
from rota.store.rows import Row
from rota.store.sqlite.database_file import MEMORY

SQLITE_ERRORS = (apsw.Error, UnicodeDecodeError)
"""Raised by statements; the second one for damaged text."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def open_writer(
    path: Path, dialect: str, vfs: str | None = None, *, from_0_1: bool = False
) -> apsw.Connection:
    """Opens the one connection that writes; makes and migrates the file if need be."""
    try:
        # Made before SQLite opens it, so that it is never readable by others, not for a moment;
        # SQLite gives the write-ahead log the same mode.
        if path != MEMORY:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)
        connection = apsw.Connection(str(path), vfs=vfs)
    except (OSError, apsw.Error) as error:
        raise StoreError(f"cannot open {path}: {error}") from error
    try:
        connection.set_busy_timeout(READER_BUSY_MS)
        # First of all: it is fixed with the first page. It lets deleted work free disk space.
        connection.pragma("auto_vacuum", "incremental")
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("foreign_keys", "on")
        connection.pragma("trusted_schema", "off")
        connection.pragma("temp_store", "memory")
        connection.pragma("cache_size", -WRITER_CACHE_KIB)
        connection.pragma("journal_size_limit", WAL_BYTES_KEPT)
        migrate_sqlite(connection, known_migrations(dialect), from_0_1=dialect if from_0_1 else "")
    except SQLITE_ERRORS as error:
        connection.close()
        raise as_read_error(error, f"cannot use {path}") from error
    except StoreError:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """Opens a connection that cannot write and never waits for the one that does."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(READER_BUSY_MS)
    connection.pragma("trusted_schema", "off")
    connection.pragma("temp_store", "memory")
    connection.pragma("cache_size", -READER_CACHE_KIB)
    return connection


def as_read_error(error: Exception, failed: str) -> StoreError:
    """Returns the error for the caller of a read; `failed` says which one."""
    if _says_damaged(error):
        return DamagedError(
            f"{failed}: {error}; the file is damaged: stop the server, check it with"
            " `rota doctor --data DIR` and restore a backup"
        )
    return StoreError(f"{failed}: {error}")


def _says_damaged(error: Exception) -> bool:
    if isinstance(error, apsw.IOError):
        result = getattr(error, "extendedresult", 0)
        return result in (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)
    return isinstance(error, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError)


def as_store_error(error: Exception, connection: apsw.Connection) -> StoreError:
    """Returns the error for the caller; leaves the connection outside any transaction."""
    # If the disk refused bytes of a transaction, its commit mark was not written, so it did not
    # happen. Any other error (a failed sync above all) may have come after the mark.
    no_space = isinstance(error, apsw.FullError) or (
        isinstance(error, apsw.IOError)
        and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
        and connection.system_errno in _NO_SPACE
    )
    if connection.in_transaction:
        # If this fails too, the first error still says more.
        with suppress(apsw.Error):
            connection.execute("ROLLBACK")
    if no_space:
        return StoreFullError(f"no space left for {connection.filename}: free some, it goes on")
    if _says_damaged(error):
        return as_read_error(error, str(connection.filename))
    return UnknownFateError(f"{connection.filename}: {error}")


def fetch(connection: apsw.Connection, sql: str, args: Sequence[Any] = ()) -> list[Row]:
    """Returns all rows of a query."""
    return connection.execute(sql, args).fetchall()


_BODIES = ("life", "spec", "body", "course", "receipt")


def fetch_readable(
    connection: apsw.Connection, columns: str, rest: str, args: Sequence[Any] = ()
) -> list[Row]:
    """Returns rows of the named columns, also of those that are damaged so that a text is none."""
    try:
        return fetch(connection, f"SELECT {columns} {rest}", args)
    except UnicodeDecodeError:
        names = columns.split(", ")
        as_bytes = ", ".join(
            f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name})" for name in names
        )
        return [
            tuple(
                value.decode(errors="replace")
                if isinstance(value, bytes) and name not in _BODIES
                else value
                for name, value in zip(names, row, strict=True)
            )
            for row in connection.execute(f"SELECT {as_bytes} {rest}", args)
        ]


def fetch_one(connection: apsw.Connection, sql: str) -> Row:
    """Returns the row of a table that has exactly one."""
    found = fetch(connection, sql)
    if len(found) != 1:
        raise DamagedError(
            f"{connection.filename} lacks a row that is always there ({sql}): restore a backup"
        )
    return found[0]


def run_in_bulk(
    connection: apsw.Connection, head: str, rows: Iterable[Row], tail: str = ""
) -> None:
    """Runs `head (?, …), (?, …), … tail` over all rows, many rows per statement."""
    pending: list[Row] = rows if isinstance(rows, list) else list(rows)
    if not pending:
        return
    place = "(" + ", ".join("?" * len(pending[0])) + ")"
    for start in range(0, len(pending), ROWS_PER_STATEMENT):
        part = pending[start : start + ROWS_PER_STATEMENT]
        values: Sequence[Any] = [value for row in part for value in row]
        connection.execute(f"{head} {', '.join([place] * len(part))} {tail}", values)


def release_free_pages(connection: apsw.Connection, limits: StoreLimits) -> bool:
    """Truncates some of the free pages; returns whether there are more.

    Only a file that was made with `auto_vacuum` can shrink; others use the pages again.
    """
    free = int(connection.pragma("freelist_count"))
    if free <= limits.free_pages_kept or not connection.pragma("auto_vacuum"):
        return False
    pages = min(free - limits.free_pages_kept, limits.free_pages_per_drop)
    connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
    return free - pages > limits.free_pages_kept
