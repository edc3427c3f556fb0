"""Logs, artifacts and the object index in PostgreSQL; objects too, where no storage is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rota.core.model import ExecutionId, Instant
from rota.store.errors import DamagedRowError
from rota.store.files.artifacts import check_artifact_name
from rota.store.files.blobs import BlobMissingError, DownloadLink, check_key
from rota.store.files.uploads import SpooledFile
from rota.store.limits import (
    ARTIFACT_PIECE_BYTES,
    BLOB_PIECE_BYTES,
    DATABASE_FILE_BYTES_MAX,
    LOG_PIECE_BYTES,
)
from rota.store.log_pieces import log_page, log_pieces
from rota.store.object_index import (
    Bundle,
    BundleQuery,
    LargeOutput,
    decode_bundle,
    encode_bundle,
    to_large_output,
)
from rota.store.postgres.connect import Connection, DedicatedConnection, ReaderPool
from rota.store.protocol import Artifact, ArtifactTooLargeError, LogExtent, LogPage, StoreError


class PostgresLogs:
    """Logs of executions in PostgreSQL, in pieces."""

    def __init__(
        self, connection: DedicatedConnection, readers: ReaderPool, bytes_max: int
    ) -> None:
        self._connection = connection
        self._readers = readers
        self._bytes_max = bytes_max

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        return await self._connection.write(lambda c: self._append(c, execution_id, offset, data))

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        if offset < 0 or limit < 0:
            raise StoreError("offset and limit of a log must not be negative")
        return await self._readers.run(lambda c: _read_log(c, execution_id, offset, limit))

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        await self._connection.write(
            lambda c: _forget_rows(c, ("log_pieces", "logs"), execution_ids)
        )

    async def _append(
        self, connection: Connection, execution_id: ExecutionId, offset: int | None, data: bytes
    ) -> int:
        async with connection.transaction():
            size = await _locked_size(connection, execution_id)
            placed = size.place(offset, data, self._bytes_max)
            after = LogExtent(size.stored + len(placed.kept), size.dropped + placed.dropped)
            if after == size:
                return size.end
            await connection.execute(
                "UPDATE rota.logs SET size = $2, dropped = $3 WHERE execution_id = $1",
                execution_id,
                after.stored,
                after.dropped,
            )
            pieces = log_pieces(execution_id, size, placed.kept)
            await connection.execute(
                "INSERT INTO rota.log_pieces SELECT $1, * FROM unnest($2::int8[], $3::bytea[])",
                execution_id,
                [start for start, _ in pieces],
                [data for _, data in pieces],
            )
            return after.end


_ARTIFACTS = """
SELECT DISTINCT v.id, a.name, a.size FROM unnest($1::text[]) AS v (id)
CROSS JOIN LATERAL (SELECT name, size FROM rota.artifacts WHERE execution_id = v.id) a
ORDER BY 1, 2
"""


class PostgresArtifacts:
    """Output files in PostgreSQL, in pieces, which no file has until the last one is there."""

    def __init__(self, connection: DedicatedConnection, readers: ReaderPool) -> None:
        self._connection = connection
        self._readers = readers

    async def write(
        self, execution_id: ExecutionId, name: str, stream: AsyncIterator[bytes], bytes_max: int
    ) -> Artifact:
        check_artifact_name(name)
        upload = await self._connection.write(
            lambda c: c.fetchval("SELECT nextval('rota.uploads')")
        )
        kept = False
        try:
            artifact = Artifact(name, await self._receive(execution_id, upload, stream, bytes_max))
            await self._connection.write(
                lambda c: _keep_artifact(c, execution_id, artifact, upload)
            )
            kept = True
        finally:
            if not kept:
                await self._connection.write(lambda c: _discard(c, execution_id, upload))
        return artifact

    async def list(self, execution_id: ExecutionId) -> Sequence[Artifact]:
        (found,) = await self.list_each([execution_id])
        return found

    async def list_each(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Sequence[Artifact]]:
        found = await self._readers.run(lambda c: c.fetch(_ARTIFACTS, execution_ids))
        each: dict[str, list[Artifact]] = {one: [] for one in execution_ids}
        for execution_id, name, size in found:
            each[execution_id].append(Artifact(name, size))
        return [each[one] for one in execution_ids]

    async def read(self, execution_id: ExecutionId, name: str) -> AsyncIterator[bytes] | None:
        check_artifact_name(name)
        upload = await self._readers.run(
            lambda c: c.fetchval(
                "SELECT upload FROM rota.artifacts WHERE execution_id = $1 AND name = $2",
                execution_id,
                name,
            )
        )
        return None if upload is None else self._pieces(execution_id, upload)

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        await self._connection.write(
            lambda c: _forget_rows(c, ("artifact_pieces", "artifacts"), execution_ids)
        )

    async def _receive(
        self, execution_id: ExecutionId, upload: int, stream: AsyncIterator[bytes], bytes_max: int
    ) -> int:
        """Writes each piece in its own transaction: a slow sender must not hold one open."""
        pending = bytearray()
        size = number = 0
        async for data in stream:
            size += len(data)
            if size > bytes_max:
                raise ArtifactTooLargeError(f"the artifact has more than {bytes_max} bytes")
            pending += data
            while len(pending) >= ARTIFACT_PIECE_BYTES:
                await self._put(execution_id, upload, number, bytes(pending[:ARTIFACT_PIECE_BYTES]))
                del pending[:ARTIFACT_PIECE_BYTES]
                number += 1
        if pending:
            await self._put(execution_id, upload, number, bytes(pending))
        return size

    async def _put(self, execution_id: ExecutionId, upload: int, number: int, data: bytes) -> None:
        await self._connection.write(
            lambda c: c.execute(
                "INSERT INTO rota.artifact_pieces VALUES ($1, $2, $3, $4)",
                execution_id,
                upload,
                number,
                data,
            )
        )

    async def _pieces(self, execution_id: ExecutionId, upload: int) -> AsyncIterator[bytes]:
        number = 0
        while (data := await self._piece(execution_id, upload, number)) is not None:
            yield data
            number += 1

    async def _piece(self, execution_id: ExecutionId, upload: int, number: int) -> bytes | None:
        data: bytes | None = await self._readers.run(
            lambda c: c.fetchval(
                "SELECT data FROM rota.artifact_pieces"
                " WHERE execution_id = $1 AND upload = $2 AND number = $3",
                execution_id,
                upload,
                number,
            )
        )
        return data


async def _locked_size(connection: Connection, execution_id: ExecutionId) -> LogExtent:
    sql = "SELECT size, dropped FROM rota.logs WHERE execution_id = $1 FOR UPDATE"
    found = await connection.fetchrow(sql, execution_id)
    if found is None:
        await connection.execute(
            "INSERT INTO rota.logs VALUES ($1, 0, 0) ON CONFLICT DO NOTHING", execution_id
        )
        found = await connection.fetchrow(sql, execution_id)
    return LogExtent(*found) if found else LogExtent()


async def _read_log(
    connection: Connection, execution_id: ExecutionId, offset: int, limit: int
) -> LogPage:
    size = await _size(connection, execution_id)
    # Bounded by the size read first: a piece appended since belongs to the next page.
    end = min(offset + limit, size.stored)
    pieces = await connection.fetch(
        "SELECT start, data FROM rota.log_pieces"
        " WHERE execution_id = $1 AND start > $2 AND start < $3 ORDER BY start",
        execution_id,
        offset - LOG_PIECE_BYTES,
        end,
    )
    try:
        return log_page(execution_id, pieces, offset, end, size)
    except DamagedRowError:
        if (await _size(connection, execution_id)).stored:
            raise
        return LogPage(b"", offset, 0)  # it was removed meanwhile


async def _size(connection: Connection, execution_id: ExecutionId) -> LogExtent:
    found = await connection.fetchrow(
        "SELECT size, dropped FROM rota.logs WHERE execution_id = $1", execution_id
    )
    return LogExtent(*found) if found else LogExtent()


async def _keep_artifact(
    connection: Connection, execution_id: ExecutionId, artifact: Artifact, upload: int
) -> None:
    async with connection.transaction():
        replaced = await connection.fetchval(
            "SELECT upload FROM rota.artifacts WHERE execution_id = $1 AND name = $2 FOR UPDATE",
            execution_id,
            artifact.name,
        )
        await connection.execute(
            "INSERT INTO rota.artifacts VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (execution_id, name) DO UPDATE"
            " SET size = excluded.size, upload = excluded.upload",
            execution_id,
            artifact.name,
            artifact.size,
            upload,
        )
        if replaced is not None:
            await _discard(connection, execution_id, replaced)


async def _discard(connection: Connection, execution_id: ExecutionId, upload: int) -> None:
    await connection.execute(
        "DELETE FROM rota.artifact_pieces WHERE execution_id = $1 AND upload = $2",
        execution_id,
        upload,
    )


async def _forget_rows(
    connection: Connection, tables: Sequence[str], execution_ids: Sequence[ExecutionId]
) -> None:
    async with connection.transaction():
        for table in tables:
            await connection.execute(
                f"DELETE FROM rota.{table} WHERE execution_id = ANY ($1)", execution_ids
            )


_DELETE_LATER = (
    "INSERT INTO rota.doomed SELECT key, 0 FROM gone WHERE key <> ''"
    " ON CONFLICT (key) DO UPDATE SET at = 0"
)


class PostgresObjectIndex:
    """Index of object storage in PostgreSQL, shared by all servers of a cell."""

    def __init__(self, connection: DedicatedConnection, readers: ReaderPool) -> None:
        self._connection = connection
        self._readers = readers

    async def intend(self, key: str, until: Instant) -> None:
        await self._do("INSERT INTO rota.doomed VALUES ($1, $2)", key, until)

    async def keep(self, kept: LargeOutput) -> None:
        await self._connection.write(lambda c: _keep_output(c, kept))

    async def forget(self, execution_id: ExecutionId, name: str) -> None:
        await self._connection.write(lambda c: _forget_output(c, execution_id, name))

    async def large_outputs(self, execution_ids: Sequence[ExecutionId]) -> Sequence[LargeOutput]:
        sql = (
            "SELECT execution_id, name, size, sha256, key FROM rota.objects"
            " WHERE execution_id = ANY ($1::text[]) ORDER BY 1, 2"
        )
        return [to_large_output(*row) for row in await self._ask(sql, list(execution_ids))]

    async def deletions_due(self, now: Instant, limit: int) -> Sequence[str]:
        sql = "SELECT key FROM rota.doomed WHERE at <= $1 ORDER BY at, key LIMIT $2"
        return [row[0] for row in await self._ask(sql, now, limit)]

    async def confirm_deleted(self, keys: Sequence[str]) -> None:
        await self._do("DELETE FROM rota.doomed WHERE key = ANY ($1::text[])", list(keys))

    async def add_bundle(self, bundle: Bundle) -> Bundle:
        return await self._connection.write(lambda c: _add_bundle(c, bundle))

    async def bundles(self, bundle_ids: Sequence[str]) -> Sequence[Bundle]:
        sql = "SELECT id, body, used_at FROM rota.bundles WHERE id = ANY ($1::text[])"
        return [decode_bundle(*row) for row in await self._ask(sql, list(bundle_ids))]

    async def find_bundles(self, query: BundleQuery) -> Sequence[Bundle]:
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
        sql = f"SELECT id, body, used_at FROM rota.bundles WHERE {' AND '.join(where)}"
        found = await self._ask(f"{sql} ORDER BY id DESC LIMIT {query.limit:d}", *args)
        return [decode_bundle(*row) for row in found]

    async def use_bundles(self, bundle_ids: Sequence[str], now: Instant) -> None:
        sql = "UPDATE rota.bundles SET used_at = greatest(used_at, $2) WHERE id = ANY ($1::text[])"
        await self._do(sql, list(bundle_ids), now)

    async def drop_bundle(self, bundle_id: str) -> bool:
        sql = (
            "WITH gone AS (DELETE FROM rota.bundles WHERE id = $1 RETURNING key),"
            f" doom AS ({_DELETE_LATER}) SELECT count(*) FROM gone"
        )
        return bool(await self._connection.write(lambda c: c.fetchval(sql, bundle_id)))

    async def mark_storage(self, mark: str, *, replace: bool = False) -> str:
        action = "(id) DO UPDATE SET mark = excluded.mark" if replace else "DO NOTHING"
        await self._do(f"INSERT INTO rota.storage VALUES (1, $1) ON CONFLICT {action}", mark)
        return str((await self._ask("SELECT mark FROM rota.storage"))[0][0])

    async def _do(self, sql: str, *args: Any) -> None:
        await self._connection.write(lambda c: c.execute(sql, *args))

    async def _ask(self, sql: str, *args: Any) -> list[Any]:
        return await self._readers.run(lambda c: c.fetch(sql, *args))


async def delete_outputs_later(connection: Connection, where: str, *args: Any) -> None:
    """Has these objects deleted; in the caller's transaction."""
    await connection.execute(
        f"WITH gone AS (DELETE FROM rota.objects WHERE {where} RETURNING key) {_DELETE_LATER}",
        *args,
    )


async def remove_outputs(connection: Connection, execution_ids: list[str]) -> None:
    """Removes all logs and files of executions of deleted jobs."""
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
        # The second of two waits here for the commit of the first, and then finds its bundle.
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
            "SELECT id, body, used_at FROM rota.bundles WHERE tenant = $1 AND sha256 = $2",
            bundle.tenant,
            bundle.sha256,
        )
        if found is None:
            raise StoreError("the bundle was removed while it was uploaded: upload it again")
        taken = decode_bundle(*found)
        await connection.execute("DELETE FROM rota.doomed WHERE key = $1", taken.key)
    return taken


class PostgresBlobs:
    """Object storage in the database, for a cell that names none."""

    bytes_max = DATABASE_FILE_BYTES_MAX

    where = "the database"

    def __init__(self, connection: DedicatedConnection, readers: ReaderPool) -> None:
        self._connection = connection
        self._readers = readers

    async def put(self, key: str, draft: SpooledFile) -> None:
        """Writes each row in its own transaction: nobody reads it before it is taken up."""
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
        sql = "DELETE FROM rota.object_pieces WHERE key = ANY ($1::text[])"
        await self._connection.write(lambda c: c.execute(sql, list(keys)))

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """Returns None: a database has no addresses for downloads."""
        return None

    async def mark(self, wanted: str) -> str:
        """Returns the mark that was given: the database is the storage itself."""
        return wanted

    async def close(self) -> None:
        """Does nothing: the store closes the connections."""
