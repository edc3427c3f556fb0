"""Submissions that wait for a leader, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.model import JobId
from rota.store.limits import INBOX_PUT_TRIES
from rota.store.postgres.connect import Connection, DedicatedConnection
from rota.store.postgres.glance import HAS_INBOX, Glance
from rota.store.postgres.pool import ReaderPool
from rota.store.protocol import StoreError
from rota.store.protocols.inbox import InboxEntry, InboxKind

_PUT = """
INSERT INTO rota.inbox (kind, body, key, job_ids) VALUES ($1, $2, $3, $4)
ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING RETURNING id, kind, body
"""
_BY_KEY = "SELECT id, kind, body FROM rota.inbox WHERE key = $1"
_BY_JOB = "SELECT id, kind, body FROM rota.inbox WHERE $1 = ANY (job_ids) LIMIT 1"


class InboxConnections(NamedTuple):
    """The connections that the inbox shares with the ledger."""

    writes: DedicatedConnection
    takes: DedicatedConnection
    glance: Glance
    """Tells whether there is anything to take."""


class PostgresInbox:
    """A part of the ledger, which shares its connection for what must be durable."""

    def __init__(self, lines: InboxConnections, readers: ReaderPool) -> None:
        self._writes, self._takes, self._glance = lines
        self._readers = readers

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        """Keeps a submission for the next leader, durably; the first with a key stays."""
        return await self._writes.write(lambda c: _put(c, body, key, job_ids))

    async def take_inbox(self, limit: int) -> list[InboxEntry]:
        """The oldest entries; they stay until an append consumes them.

        No mark of how far was read: an entry may become visible after a later one.
        """
        if (await self._glance.see(HAS_INBOX)) == (False,):
            return []
        found = await self._takes.read(
            lambda c: c.fetch("SELECT id, kind, body FROM rota.inbox ORDER BY id LIMIT $1", limit)
        )
        return [InboxEntry(row[0], InboxKind(row[1]), row[2]) for row in found]

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        """Removes entries that no append will consume."""
        await self._writes.write(
            lambda c: c.execute("DELETE FROM rota.inbox WHERE id = ANY ($1)", entry_ids)
        )

    async def inbox_key(self, key: str) -> InboxEntry | None:
        """The entry that has this key."""
        return await self._find(_BY_KEY, key)

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
        """The entry that a job is in."""
        return await self._find(_BY_JOB, job_id)

    async def _find(self, sql: str, wanted: str) -> InboxEntry | None:
        row = await self._readers.run(lambda c: c.fetchrow(sql, wanted))
        return None if row is None else InboxEntry(row[0], InboxKind(row[1]), row[2])


async def _put(
    connection: Connection, body: bytes, key: str | None, job_ids: Sequence[JobId]
) -> InboxEntry:
    for _ in range(INBOX_PUT_TRIES):
        row = await connection.fetchrow(_PUT, InboxKind.INPUT.value, body, key, job_ids)
        if row is None:
            # It may leave between the two: a leader takes it, or whoever put it.
            row = await connection.fetchrow(_BY_KEY, key)
        if row is not None:
            return InboxEntry(row[0], InboxKind(row[1]), row[2])
    raise StoreError(f"the key {key!r} comes and goes: ask again")
