"""The journal, the row of leader election and the inbox on PostgreSQL; an append is one
statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from rota.core.limits import FIFO_GROUP_KEPT
from rota.core.model import Instant, JobId
from rota.core.outcome import AnyWrite, Refill
from rota.store.journal import decode_record, encode_record
from rota.store.limits import INBOX_PUT_TRIES
from rota.store.migrate import known_migrations, left_behind
from rota.store.postgres.connect import Address, Connection, DedicatedConnection, ReaderPool
from rota.store.postgres.durability import DURABILITY, judged, read_durability
from rota.store.postgres.glance import HAS_INBOX, Glance, look_line
from rota.store.postgres.leader_lock import LeaderLock
from rota.store.postgres.load import read_spill_queues
from rota.store.postgres.projector import Projector
from rota.store.projection.bulk_decode import BulkDecoder
from rota.store.protocol import (
    Durability,
    Epoch,
    FencedError,
    InboxEntry,
    InboxKind,
    JournalRecord,
    LeaderRow,
    Seq,
    Snapshot,
    SpilledJobs,
    StoreError,
)

_PUT = """
INSERT INTO rota.inbox (kind, body, key, job_ids) VALUES ($1, $2, $3, $4)
ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING RETURNING id, kind, body
"""
_BY_KEY = "SELECT id, kind, body FROM rota.inbox WHERE key = $1"
_BY_JOB = "SELECT id, kind, body FROM rota.inbox WHERE $1 = ANY (job_ids) LIMIT 1"


class InboxConnections(NamedTuple):
    """Connections that the inbox shares with the journal."""

    writes: DedicatedConnection
    takes: DedicatedConnection
    glance: Glance
    """Tells whether there is anything to take."""


class PostgresInbox:
    """Durable inbox on PostgreSQL; it shares the connections of the journal."""

    def __init__(self, connections: InboxConnections, readers: ReaderPool) -> None:
        self._writes, self._takes, self._glance = connections
        self._readers = readers

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        return await self._writes.write(lambda c: _put(c, body, key, job_ids))

    async def take_inbox(self, limit: int) -> list[InboxEntry]:
        """Reads from the first entry each time: one may become visible after a later one."""
        if (await self._glance.see(HAS_INBOX)) == (False,):
            return []
        found = await self._takes.read(
            lambda c: c.fetch("SELECT id, kind, body FROM rota.inbox ORDER BY id LIMIT $1", limit)
        )
        return [InboxEntry(row[0], InboxKind(row[1]), row[2]) for row in found]

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        await self._writes.write(
            lambda c: c.execute("DELETE FROM rota.inbox WHERE id = ANY ($1)", entry_ids)
        )

    async def inbox_key(self, key: str) -> InboxEntry | None:
        return await self._find(_BY_KEY, key)

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
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
            # The entry may be removed between the two statements, by a leader for example.
            row = await connection.fetchrow(_BY_KEY, key)
        if row is not None:
            return InboxEntry(row[0], InboxKind(row[1]), row[2])
    raise StoreError(f"submissions with the key {key!r} come and go: try again")


_APPEND = """
INSERT INTO rota.journal (seq, epoch, at, body)
SELECT $1::bigint, $2::bigint, $3::bigint, $4::bytea FROM rota.leader
WHERE epoch = $2 AND ($1 = 1 OR EXISTS (SELECT FROM rota.journal WHERE seq = $1 - 1))
RETURNING seq
"""
"""The epoch is read without a lock: a server that claims meanwhile finds this position taken when
it appends, and reads on."""
_APPEND_AND_CONSUME = f"""
WITH taken AS ({_APPEND}), gone AS (
    DELETE FROM rota.inbox WHERE id = ANY ($5::bigint[]) AND EXISTS (SELECT FROM taken)
)
SELECT seq FROM taken
"""
"""Only if there is something to consume: a look into the inbox costs time."""
_WHY_NOT = "SELECT epoch, (SELECT max(seq) FROM rota.journal) FROM rota.leader"
_CLAIM = """
UPDATE rota.leader SET epoch = epoch + 1, nonce = nonce + 1, holder = $1, address = $2
WHERE ($3::bigint IS NULL OR (epoch = $3 AND nonce = $4))
    AND NOT EXISTS (SELECT FROM rota.migrations WHERE number > $5)
RETURNING epoch
"""
"""A program must not lead if the schema was migrated beyond it, while it was frozen for example."""
_SHUT_OUT = "SELECT max(number) FROM rota.migrations HAVING max(number) > $1"
_DURABLY = {"synchronous_commit": "on"}
"""Overrides the database's default: `on` waits for the disk, and for that of a named standby."""
_READ_ONLY = {"default_transaction_read_only": "on"}


class PostgresJournalStore(PostgresInbox):
    """Journal on PostgreSQL. Appends, following and the leader's row have a connection each: a slow
    append must not keep a leader from renewing its leadership."""

    def __init__(
        self,
        address: Address,
        projector: Projector,
        readers: ReaderPool,
        leader_deadline_s: float,
    ) -> None:
        self._address, limits = address, address.limits
        self._schema = known_migrations("postgres")[-1].number
        self._projector = projector
        self._appends = DedicatedConnection(address, "append", limits.append_deadline_s, _DURABLY)
        # Not of the readers' pool: many readers must not keep a server from following.
        self._follows = DedicatedConnection(address, "follow", limits.follow_deadline_s, _READ_ONLY)
        self.glance = Glance(look_line(address))
        # A server that puts entries into the inbox does not append: that connection is free.
        super().__init__(InboxConnections(self._appends, self._follows, self.glance), readers)
        self._leader = DedicatedConnection(address, "leader", leader_deadline_s, _DURABLY)
        self._leader_lock = LeaderLock(self._leader)
        self._bulk = BulkDecoder()

    @property
    def projected(self) -> Seq:
        """The newest record that is in the tables, as far as this server knows."""
        return self._projector.watermark.projected

    def deciding(self) -> None:
        """Makes the projection give way until the append and then its outcome are sent."""
        self._projector.precedence.claim()

    async def durability(self) -> Durability:
        if self._appends.was_used_within(self._address.limits.append_idle_s):
            return judged(await self.glance.see(DURABILITY), self._address.shown)
        return await self._appends.read(lambda c: read_durability(c, self._address.shown))

    async def name_cell(self, name: str) -> str:
        async def work(connection: Connection) -> str:
            # Two statements: a single one would not see a name that another server gave meanwhile.
            if name:
                await connection.execute("UPDATE rota.meta SET cell = $1 WHERE cell = ''", name)
            return str(await connection.fetchval("SELECT cell FROM rota.meta"))

        return await self._leader.write(work)

    async def observe(self) -> LeaderRow | None:
        found = await self._leader.read(lambda c: c.fetchrow(self._leader_lock.query))
        return LeaderRow(*found) if found and found["epoch"] else None

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        was = (seen.epoch, seen.nonce) if seen else (None, None)
        known = self._schema
        epoch = await self._leader.write(lambda c: c.fetchval(_CLAIM, holder, address, *was, known))
        if epoch is None:
            shut_out = await self._leader.read(lambda c: c.fetchval(_SHUT_OUT, known))
            if shut_out is not None:
                raise left_behind(self._address.shown, shut_out, known)
            raise FencedError("another server claimed first")
        self._projector.leads = True
        await self._leader_lock.hold(Epoch(epoch))
        return Epoch(epoch)

    async def renew(self, epoch: Epoch) -> bool:
        renewed = await self._leader.write(
            lambda c: c.fetchval(
                "UPDATE rota.leader SET nonce = nonce + 1 WHERE epoch = $1 AND holder <> ''"
                " RETURNING true",
                epoch,
            )
        )
        self._projector.leads = bool(renewed)
        if renewed:
            await self._leader_lock.hold(epoch)
        else:
            self._leader_lock.drop()
        return bool(renewed)

    async def resign(self, epoch: Epoch) -> None:
        self._leader_lock.drop()
        await self._leader.write(
            lambda c: c.execute(
                "UPDATE rota.leader SET nonce = nonce + 1, holder = '', address = ''"
                " WHERE epoch = $1",
                epoch,
            )
        )
        self._projector.leads = False

    async def load(self, kept: int = FIFO_GROUP_KEPT) -> Snapshot:
        return await self._projector.load(kept)

    async def read_spilled(self, wanted: Sequence[Refill], seen: Seq) -> list[SpilledJobs]:
        await self._projector.reached(seen)
        known = self._projector.known.shelf
        reading, rows_per_fetch = known.begin(), self._address.limits.spilled_rows_per_fetch
        try:
            found = await self._readers.run(
                lambda c: read_spill_queues(c, wanted, self._bulk, rows_per_fetch)
            )
        except BaseException:
            known.give_up(reading)
            raise
        known.end(reading, found.stamp, found.rows)
        return found.jobs

    async def append(
        self,
        epoch: Epoch,
        seq: Seq,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> None:
        await self._projector.wait_for_capacity()
        row = (seq, epoch, at, encode_record(writes))
        # The loop that appends is never cancelled in the middle of a turn.
        await self._appends.write(lambda c: self._append(c, row, consumed), is_left_alone=True)
        self._projector.precedence.claim()
        self._projector.note_appended(JournalRecord(seq, epoch, at, writes))

    async def _append(
        self,
        connection: Connection,
        row: tuple[Seq, Epoch, Instant, bytes],
        consumed: Sequence[int],
    ) -> None:
        seq, epoch = row[0], row[1]
        try:
            if consumed:
                taken = await connection.fetchval(_APPEND_AND_CONSUME, *row, consumed)
            else:
                taken = await connection.fetchval(_APPEND, *row)
        except asyncpg.UniqueViolationError:
            self._projector.leads = False
            raise FencedError(f"place {seq} in the journal is taken") from None
        if taken is None:
            why = await connection.fetchrow(_WHY_NOT)
            if why is not None and why[0] == epoch:
                raise StoreError(
                    f"the journal ends at {why[1] or 0}: a record at {seq} would leave a gap"
                )
            self._projector.leads = False
            raise FencedError(f"epoch {epoch} is over: another server leads")

    async def records_after(self, seq: Seq, limit: int) -> list[JournalRecord]:
        found = await self._follows.read(
            lambda c: c.fetch(
                "SELECT seq, epoch, at, body FROM rota.journal"
                " WHERE seq > $1 ORDER BY seq LIMIT $2",
                seq,
                limit,
            )
        )
        return [JournalRecord(row[0], row[1], row[2], decode_record(row[3])) for row in found]

    async def close(self) -> None:
        self._leader_lock.drop()
        await self.glance.close()
        await self._follows.close()
        await self._appends.close()
        await self._leader.close()
