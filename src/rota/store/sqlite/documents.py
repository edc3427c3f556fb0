"""Webhook endpoints and notes on SQLite, beside the journal."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.damage import Damage
from rota.store.documents import (
    NOTE_KIND,
    Hook,
    decode_hook,
    encode_hook,
    setting_body,
    setting_row,
)
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch
from rota.store.sqlite.journal_store import SqliteJournalStore


class SqliteHooks:
    """Webhook endpoints on SQLite, written durably by the one thread that writes."""

    def __init__(self, writer: SqliteJournalStore) -> None:
        self._writer = writer

    async def put(self, hook: Hook) -> None:
        row: Row = (hook.name, encode_hook(hook))
        await self._writer.run_durably(
            lambda c: fetch(c, "INSERT OR REPLACE INTO hooks VALUES (?, ?)", row)
        )

    async def get(self, name: str) -> Hook | None:
        found = await self._writer.run_durably(
            lambda c: fetch(c, "SELECT body FROM hooks WHERE name = ?", (name,))
        )
        return decode_hook(name, found[0][0]) if found else None

    async def list(self) -> Sequence[Hook]:
        found = await self._writer.run_durably(
            lambda c: fetch(c, "SELECT name, body FROM hooks ORDER BY name")
        )
        return Damage().whole(lambda row: decode_hook(*row), found)

    async def drop(self, name: str) -> bool:
        sql = "DELETE FROM hooks WHERE name = ? RETURNING name"
        return bool(await self._writer.run_durably(lambda c: fetch(c, sql, (name,))))


class SqliteNotes:
    """Notes on SQLite, written durably by the one thread that writes."""

    def __init__(self, writer: SqliteJournalStore) -> None:
        self._writer = writer

    async def put(self, name: str, body: bytes) -> None:
        row: Row = setting_row(NOTE_KIND, name, body)
        await self._writer.run_durably(
            lambda c: fetch(c, "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", row)
        )

    async def get(self, name: str) -> bytes | None:
        sql = "SELECT body FROM settings WHERE kind = ? AND name = ?"
        found = await self._writer.run_durably(lambda c: fetch(c, sql, (NOTE_KIND, name)))
        return setting_body(NOTE_KIND, name, found[0][0]) if found else None
