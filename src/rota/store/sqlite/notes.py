"""Notes in SQLite, beside the journal."""

from __future__ import annotations

from rota.store.protocols.notes import NOTE_KIND
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch
from rota.store.sqlite.writer import SqliteJournalStore


class SqliteNotes:
    """Notes, written durably by the one thread that writes."""

    def __init__(self, writer: SqliteJournalStore) -> None:
        self._writer = writer

    async def put(self, name: str, body: bytes) -> None:
        """As given, in place of one of the same name."""
        row: Row = (NOTE_KIND, name, body)
        await self._writer.run_durably(
            lambda c: fetch(c, "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", row)
        )

    async def get(self, name: str) -> bytes | None:
        """One of them."""
        sql = "SELECT body FROM settings WHERE kind = ? AND name = ?"
        found = await self._writer.run_durably(lambda c: fetch(c, sql, (NOTE_KIND, name)))
        return bytes(found[0][0]) if found else None
