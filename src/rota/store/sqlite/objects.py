"""References to objects in SQLite, beside the journal."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from rota.core.model import ExecutionId, Instant
from rota.store.protocols.objects import (
    Bundle,
    BundleQuery,
    LargeOutput,
    decode_bundle,
    encode_bundle,
    to_large_output,
)
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch
from rota.store.sqlite.outputs import DELETE_LATER, placeholders
from rota.store.sqlite.reader import Readers
from rota.store.sqlite.writer import SqliteJournalStore


class SqliteObjectIndex:
    """The book, written durably by the one thread that writes."""

    def __init__(self, readers: Readers, writer: SqliteJournalStore) -> None:
        self._writer = writer
        self._readers = readers

    async def intend(self, key: str, until: Instant) -> None:
        """An object will be put there."""
        await self._ask("INSERT OR REPLACE INTO doomed VALUES (?, ?)", (key, until))

    async def keep(self, kept: LargeOutput) -> None:
        """Takes up an output file, in place of one of the same name, which is doomed."""
        await self._writer.run_durably(lambda c: _keep(c, kept))

    async def forget(self, execution_id: ExecutionId, name: str) -> None:
        """Dooms one; none is no error."""
        await self._writer.run_durably(lambda c: _forget(c, execution_id, name))

    async def large_outputs(self, execution_ids: Sequence[ExecutionId]) -> Sequence[LargeOutput]:
        """The large output files of these, by name."""
        wanted = placeholders(execution_ids)
        sql = f"SELECT * FROM objects WHERE execution_id IN ({wanted}) ORDER BY 1, 2"
        return [to_large_output(*row) for row in await self._read(sql, tuple(execution_ids))]

    async def deletions_due(self, now: Instant, limit: int) -> Sequence[str]:
        """Keys of objects that are to be removed by now."""
        sql = "SELECT key FROM doomed WHERE at <= ? ORDER BY at, key LIMIT ?"
        return [row[0] for row in await self._read(sql, (now, limit))]

    async def confirm_deleted(self, keys: Sequence[str]) -> None:
        """These were removed."""
        await self._ask(f"DELETE FROM doomed WHERE key IN ({placeholders(keys)})", tuple(keys))

    async def add_bundle(self, bundle: Bundle) -> Bundle:
        """Takes it up; answers the one that is there if its tenant has the same content."""
        return await self._writer.run_durably(lambda c: _add_bundle(c, bundle))

    async def bundles(self, bundle_ids: Sequence[str]) -> Sequence[Bundle]:
        """Those that exist."""
        sql = f"SELECT body, used_at FROM bundles WHERE id IN ({placeholders(bundle_ids)})"
        return [decode_bundle(*row) for row in await self._read(sql, tuple(bundle_ids))]

    async def find_bundles(self, query: BundleQuery) -> Sequence[Bundle]:
        """A page, newest first."""
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
        sql = f"SELECT body, used_at FROM bundles WHERE {' AND '.join(where)} ORDER BY id DESC"
        found = await self._read(f"{sql} LIMIT {query.limit:d}", tuple(args))
        return [decode_bundle(*row) for row in found]

    async def use_bundles(self, bundle_ids: Sequence[str], now: Instant) -> None:
        """Notes that they are of use."""
        sql = (
            f"UPDATE bundles SET used_at = max(used_at, ?) WHERE id IN ({placeholders(bundle_ids)})"
        )
        await self._ask(sql, (now, *bundle_ids))

    async def drop_bundle(self, bundle_id: str) -> bool:
        """Forgets it, and dooms its content; False: there is none."""
        return await self._writer.run_durably(lambda c: _drop_bundle(c, bundle_id))

    async def mark_storage(self, mark: str, *, replace: bool = False) -> str:
        """Which storage the references lead to: the first one noted."""
        verb = "REPLACE" if replace else "IGNORE"
        await self._ask(f"INSERT OR {verb} INTO storage VALUES (1, ?)", (mark,))
        return str((await self._ask("SELECT mark FROM storage"))[0][0])

    async def close(self) -> None:
        """Lets go of the file."""
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
            "SELECT body, used_at FROM bundles WHERE tenant = ? AND sha256 = ?",
            (bundle.tenant, bundle.sha256),
        )
        taken = decode_bundle(*found[0])
        fetch(connection, "DELETE FROM doomed WHERE key = ?", (taken.key,))
    return taken


def _drop_bundle(connection: apsw.Connection, bundle_id: str) -> bool:
    sql = "DELETE FROM bundles WHERE id = ? RETURNING body, used_at"
    with connection:
        found = fetch(connection, sql, (bundle_id,))
        for row in found:
            fetch(connection, DELETE_LATER, (decode_bundle(*row).key,))
    return bool(found)
