"""References to objects in PostgreSQL; and the objects too, where no storage was named for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rota.core.model import ExecutionId, Instant
from rota.store.files.blobs import BlobMissingError, DownloadLink, check_key
from rota.store.files.spool import SpooledFile
from rota.store.limits import BLOB_PIECE_BYTES, DATABASE_FILE_BYTES_MAX
from rota.store.postgres.connect import Connection, DedicatedConnection
from rota.store.postgres.pool import ReaderPool
from rota.store.protocol import StoreError
from rota.store.protocols.objects import (
    Bundle,
    BundleQuery,
    LargeOutput,
    decode_bundle,
    encode_bundle,
    to_large_output,
)

_DELETE_LATER = (
    "INSERT INTO rota.doomed SELECT key, 0 FROM gone WHERE key <> ''"
    " ON CONFLICT (key) DO UPDATE SET at = 0"
)


class PostgresObjectIndex:
    """The book, shared by all servers of a cell."""

    def __init__(self, line: DedicatedConnection, readers: ReaderPool) -> None:
        self._connection = line
        self._readers = readers

    async def intend(self, key: str, until: Instant) -> None:
        """An object will be put there."""
        await self._do("INSERT INTO rota.doomed VALUES ($1, $2)", key, until)

    async def keep(self, kept: LargeOutput) -> None:
        """Takes up an output file, in place of one of the same name, which is doomed."""
        await self._connection.write(lambda c: _keep_output(c, kept))

    async def forget(self, execution_id: ExecutionId, name: str) -> None:
        """Dooms one; none is no error."""
        await self._connection.write(lambda c: _forget_output(c, execution_id, name))

    async def large_outputs(self, execution_ids: Sequence[ExecutionId]) -> Sequence[LargeOutput]:
        """The large output files of these, by name."""
        sql = (
            "SELECT execution_id, name, size, sha256, key FROM rota.objects"
            " WHERE execution_id = ANY ($1::text[]) ORDER BY 1, 2"
        )
        return [to_large_output(*row) for row in await self._ask(sql, list(execution_ids))]

    async def deletions_due(self, now: Instant, limit: int) -> Sequence[str]:
        """Keys of objects that are to be removed by now."""
        sql = "SELECT key FROM rota.doomed WHERE at <= $1 ORDER BY at, key LIMIT $2"
        return [row[0] for row in await self._ask(sql, now, limit)]

    async def confirm_deleted(self, keys: Sequence[str]) -> None:
        """These were removed."""
        await self._do("DELETE FROM rota.doomed WHERE key = ANY ($1::text[])", list(keys))

    async def add_bundle(self, bundle: Bundle) -> Bundle:
        """Takes it up; answers the one that is there if its tenant has the same content."""
        return await self._connection.write(lambda c: _add_bundle(c, bundle))

    async def bundles(self, bundle_ids: Sequence[str]) -> Sequence[Bundle]:
        """Those that exist."""
        sql = "SELECT body, used_at FROM rota.bundles WHERE id = ANY ($1::text[])"
        return [decode_bundle(*row) for row in await self._ask(sql, list(bundle_ids))]

    async def find_bundles(self, query: BundleQuery) -> Sequence[Bundle]:
        """A page, newest first."""
        where, args = ["true"], []
        for clause, value in (
            ("tenant = ${}", query.tenant),
            ("sha256 = ${}", query.sha256),
            ("used_at < ${}", query.unused_since),
            ("id < ${}", query.before),
        ):
            if value is not None:
                args.append(value)
                where.append(clause.format(len(args)))
        sql = f"SELECT body, used_at FROM rota.bundles WHERE {' AND '.join(where)}"
        found = await self._ask(f"{sql} ORDER BY id DESC LIMIT {query.limit:d}", *args)
        return [decode_bundle(*row) for row in found]

    async def use_bundles(self, bundle_ids: Sequence[str], now: Instant) -> None:
        """Notes that they are of use."""
        sql = "UPDATE rota.bundles SET used_at = greatest(used_at, $2) WHERE id = ANY ($1::text[])"
        await self._do(sql, list(bundle_ids), now)

    async def drop_bundle(self, bundle_id: str) -> bool:
        """Forgets it, and dooms its content; False: there is none."""
        sql = (
            "WITH gone AS (DELETE FROM rota.bundles WHERE id = $1 RETURNING key),"
            f" doom AS ({_DELETE_LATER}) SELECT count(*) FROM gone"
        )
        return bool(await self._connection.write(lambda c: c.fetchval(sql, bundle_id)))

    async def mark_storage(self, mark: str, *, replace: bool = False) -> str:
        """Which storage the references lead to: the first one noted."""
        known = "(id) DO UPDATE SET mark = excluded.mark" if replace else "DO NOTHING"
        await self._do(f"INSERT INTO rota.storage VALUES (1, $1) ON CONFLICT {known}", mark)
        return str((await self._ask("SELECT mark FROM rota.storage"))[0][0])

    async def _do(self, sql: str, *args: Any) -> None:
        await self._connection.write(lambda c: c.execute(sql, *args))

    async def _ask(self, sql: str, *args: Any) -> list[Any]:
        return await self._readers.run(lambda c: c.fetch(sql, *args))


async def delete_outputs_later(connection: Connection, where: str, *args: Any) -> None:
    """Those of deleted jobs; in the caller's transaction."""
    await connection.execute(
        f"WITH gone AS (DELETE FROM rota.objects WHERE {where} RETURNING key) {_DELETE_LATER}",
        *args,
    )


async def remove_outputs(connection: Connection, execution_ids: list[str]) -> None:
    """All that executions of deleted jobs have left behind."""
    async with connection.transaction():
        await delete_outputs_later(connection, "execution_id = ANY ($1)", execution_ids)
        for table in ("log_pieces", "logs", "artifact_pieces", "artifacts", "leftovers"):
            await connection.execute(
                f"DELETE FROM rota.{table} WHERE execution_id = ANY ($1)", execution_ids
            )


async def _keep_output(connection: Connection, kept: LargeOutput) -> None:
    async with connection.transaction():
        await _forget_output(connection, kept.execution_id, kept.name)
        await connection.execute(
            "INSERT INTO rota.objects VALUES ($1, $2, $3, $4, $5)",
            kept.execution_id,
            kept.name,
            kept.size,
            kept.sha256,
            kept.key,
        )
        await connection.execute("DELETE FROM rota.doomed WHERE key = $1", kept.key)


async def _forget_output(connection: Connection, execution_id: ExecutionId, name: str) -> None:
    await delete_outputs_later(connection, "execution_id = $1 AND name = $2", execution_id, name)


async def _add_bundle(connection: Connection, bundle: Bundle) -> Bundle:
    async with connection.transaction():
        # Whoever comes second waits here for the first one's commit, and then finds it.
        await connection.execute(
            "INSERT INTO rota.bundles VALUES ($1, $2, $3, $4, $5, $6)"
            " ON CONFLICT (tenant, sha256) DO NOTHING",
            bundle.id,
            bundle.tenant,
            bundle.sha256,
            bundle.key,
            bundle.used_at,
            encode_bundle(bundle),
        )
        found = await connection.fetchrow(
            "SELECT body, used_at FROM rota.bundles WHERE tenant = $1 AND sha256 = $2",
            bundle.tenant,
            bundle.sha256,
        )
        if found is None:
            raise StoreError("the bundle was removed while it was uploaded: upload it again")
        taken = decode_bundle(*found)
        await connection.execute("DELETE FROM rota.doomed WHERE key = $1", taken.key)
    return taken


class PostgresBlobs:
    """Objects as rows: every server has them, though a database is not where they belong."""

    bytes_max = DATABASE_FILE_BYTES_MAX

    where = "the database"

    def __init__(self, line: DedicatedConnection, readers: ReaderPool) -> None:
        self._connection = line
        self._readers = readers

    async def put(self, key: str, draft: SpooledFile) -> None:
        """Row by row, each its own transaction: nobody reads it before it is taken up."""
        check_key(key)
        file = await asyncio.to_thread(draft.path.open, "rb")
        try:
            number = 0
            while piece := await asyncio.to_thread(file.read, BLOB_PIECE_BYTES):
                await self._put(key, number, piece)
                number += 1
        finally:
            file.close()

    async def _put(self, key: str, number: int, piece: bytes) -> None:
        sql = "INSERT INTO rota.object_pieces VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
        await self._connection.write(lambda c: c.execute(sql, key, number, piece))

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`."""
        first = await self._piece(key, start // BLOB_PIECE_BYTES) if start < end else b""
        if first is None:
            raise BlobMissingError(f"the database has no object {key}")
        return self._pieces(key, start, end)

    async def _pieces(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        while start < end:
            number, skipped = divmod(start, BLOB_PIECE_BYTES)
            whole = await self._piece(key, number)
            piece = (whole or b"")[skipped : skipped + end - start]
            if not piece:
                raise StoreError("the database has less of an object than was kept")
            start += len(piece)
            yield piece

    async def _piece(self, key: str, number: int) -> bytes | None:
        sql = "SELECT data FROM rota.object_pieces WHERE key = $1 AND number = $2"
        data: bytes | None = await self._readers.run(lambda c: c.fetchval(sql, key, number))
        return data

    async def drop(self, keys: Sequence[str]) -> None:
        """Removes these."""
        sql = "DELETE FROM rota.object_pieces WHERE key = ANY ($1::text[])"
        await self._connection.write(lambda c: c.execute(sql, list(keys)))

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """A database has no addresses for others."""
        return None

    async def mark(self, wanted: str) -> str:
        """The database is itself; it needs no mark."""
        return wanted

    async def close(self) -> None:
        """The connections are the store's."""
