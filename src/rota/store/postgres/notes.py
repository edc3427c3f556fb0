"""Notes in PostgreSQL, beside the journal."""

from __future__ import annotations

from rota.store.postgres.connect import DedicatedConnection
from rota.store.protocols.notes import NOTE_KIND


class PostgresNotes:
    """Notes, shared by all servers of a cell."""

    def __init__(self, line: DedicatedConnection) -> None:
        self._connection = line

    async def put(self, name: str, body: bytes) -> None:
        """As given, in place of one of the same name."""
        sql = (
            "INSERT INTO rota.settings VALUES ($1, $2, $3)"
            " ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body"
        )
        await self._connection.write(lambda c: c.execute(sql, NOTE_KIND, name, body))

    async def get(self, name: str) -> bytes | None:
        """One of them."""
        sql = "SELECT body FROM rota.settings WHERE kind = $1 AND name = $2"
        found: bytes | None = await self._connection.read(
            lambda c: c.fetchval(sql, NOTE_KIND, name)
        )
        return found
