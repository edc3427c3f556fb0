"""Logs and artifacts in PostgreSQL: any server of a cell has all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rota.core.model import ExecutionId
from rota.store.files.artifacts import check_artifact_name
from rota.store.files.log_pieces import LogExtent
from rota.store.limits import ARTIFACT_PIECE_BYTES, LOG_PIECE_BYTES
from rota.store.postgres.connect import Connection, DedicatedConnection
from rota.store.postgres.pool import ReaderPool
from rota.store.protocol import Artifact, ArtifactTooLargeError, LogPage, StoreError


class PostgresLogs:
    """What jobs print, in pieces."""

    def __init__(self, line: DedicatedConnection, readers: ReaderPool, bytes_max: int) -> None:
        self._connection = line
        self._readers = readers
        self._bytes_max = bytes_max

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        """Adds what is new; answers where the sender goes on."""
        return await self._connection.write(lambda c: self._append(c, execution_id, offset, data))

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        """At most `limit` bytes from `offset`."""
        if offset < 0 or limit < 0:
            raise StoreError("a log is read from an offset and up to a number of bytes, from 0 up")
        return await self._readers.run(lambda c: _read_log(c, execution_id, offset, limit))

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes the logs of these."""
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
            starts = range(0, len(placed.kept), LOG_PIECE_BYTES)
            await connection.execute(
                "INSERT INTO rota.log_pieces SELECT $1, * FROM unnest($2::int8[], $3::bytea[])",
                execution_id,
                [size.stored + start for start in starts],
                [placed.kept[start : start + LOG_PIECE_BYTES] for start in starts],
            )
            return after.end


_ARTIFACTS = """
SELECT DISTINCT v.id, a.name, a.size FROM unnest($1::text[]) AS v (id)
CROSS JOIN LATERAL (SELECT name, size FROM rota.artifacts WHERE execution_id = v.id) a
ORDER BY 1, 2
"""


class PostgresArtifacts:
    """Output files, in pieces. An upload's pieces are nobody's until its last one is there."""

    def __init__(self, line: DedicatedConnection, readers: ReaderPool) -> None:
        self._connection = line
        self._readers = readers

    async def write(
        self, execution_id: ExecutionId, name: str, stream: AsyncIterator[bytes], bytes_max: int
    ) -> Artifact:
        """Keeps a file, in place of one of the same name. All of it is there, or nothing is."""
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
        """What was kept, by name."""
        (found,) = await self.list_each([execution_id])
        return found

    async def list_each(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Sequence[Artifact]]:
        """The same of many, each in its place."""
        found = await self._readers.run(lambda c: c.fetch(_ARTIFACTS, execution_ids))
        each: dict[str, list[Artifact]] = {one: [] for one in execution_ids}
        for execution_id, name, size in found:
            each[execution_id].append(Artifact(name, size))
        return [each[one] for one in execution_ids]

    async def read(self, execution_id: ExecutionId, name: str) -> AsyncIterator[bytes] | None:
        """The content in pieces; None if there is no such file."""
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
        """Removes all files of these."""
        await self._connection.write(
            lambda c: _forget_rows(c, ("artifact_pieces", "artifacts"), execution_ids)
        )

    async def _receive(
        self, execution_id: ExecutionId, upload: int, stream: AsyncIterator[bytes], bytes_max: int
    ) -> int:
        """Piece by piece, each its own transaction: a slow sender must not hold one open."""
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
    found = await connection.fetchrow(
        "SELECT size, dropped FROM rota.logs WHERE execution_id = $1", execution_id
    )
    size = LogExtent(*found) if found else LogExtent()
    # Bounded by the size seen first: a piece appended since belongs to the next page.
    end = min(offset + limit, size.stored)
    pieces = await connection.fetch(
        "SELECT start, data FROM rota.log_pieces"
        " WHERE execution_id = $1 AND start > $2 AND start < $3 ORDER BY start",
        execution_id,
        offset - LOG_PIECE_BYTES,
        end,
    )
    data = b"".join(piece[max(0, offset - start) : max(0, end - start)] for start, piece in pieces)
    return LogPage(data, offset + len(data), size.stored, size.dropped)


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
