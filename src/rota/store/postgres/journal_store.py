"""The journal, the row of leader election and the inbox on PostgreSQL; an append is one
statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import asyncpg

from rota.core.limits import FIFO_GROUP_KEPT
from rota.core.model import Instant, JobId
from rota.core.outcome import AnyWrite, Refill
from rota.store.journal import encode_record, follow_chain, next_head
from rota.store.limits import (
    INBOX_PUT_TRIES,
    INBOX_SET_ASIDE_BODY_BYTES,
    INBOX_SET_ASIDE_MS,
    INBOX_SPEC_BYTES_MAX,
    PROJECTION_DEADLINE_S,
)
from rota.store.migrate import known_migrations, left_behind
from rota.store.postgres.connect import Address, Connection, DedicatedConnection, ReaderPool
from rota.store.postgres.durability import DURABILITY, judged, read_durability, read_losses
from rota.store.postgres.glance import HAS_INBOX, Glance, look_line
from rota.store.postgres.leader_lock import LeaderLock
from rota.store.postgres.load import load_snapshot, read_spill_queues
from rota.store.postgres.partitions import make_partitions
from rota.store.postgres.quarantine import read_quarantined_work, repair_jobs
from rota.store.projection.bulk_decode import BulkDecoder
from rota.store.projection.client import Projection
from rota.store.protocol import (
    DivergedError,
    Durability,
    Epoch,
    FencedError,
    Head,
    InboxEntry,
    InboxKind,
    JournalRecord,
    LeaderRow,
    Loss,
    Losses,
    ProjectionStatus,
    QuarantinedWork,
    Seq,
    Snapshot,
    SpilledJobs,
    StoredRecord,
    StoreError,
)

_PUT = """
INSERT INTO rota.inbox (kind, body, key, job_ids) VALUES ($1, $2, $3, $4)
ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING
RETURNING id, kind, body, job_ids, failures, '' AS reason, false AS is_refused
"""
_FIND = """
SELECT i.id, i.kind, i.body, i.job_ids, i.failures, coalesce(a.reason, ''),
    a.reason IS NOT NULL AND a.epoch IS NULL
FROM rota.inbox i LEFT JOIN rota.inbox_set_aside a ON a.id = i.id
"""
_BY_KEY = f"{_FIND} WHERE i.key = $1"
_BY_JOB = f"{_FIND} WHERE $1 = ANY (i.job_ids) LIMIT 1"
_TAKE = f"""
SELECT id, kind, CASE WHEN is_too_large THEN '' ELSE body END, job_ids, failures, reason,
    is_refused, is_too_large
FROM (
    SELECT *, sum(size) OVER (ORDER BY id) - size AS size_before FROM (
        SELECT i.*, coalesce(a.reason, '') AS reason,
            a.reason IS NOT NULL AND a.epoch IS NULL AS is_refused, octet_length(i.body) AS size,
            i.kind = '{InboxKind.SPEC}' AND octet_length(i.body) > {INBOX_SPEC_BYTES_MAX}
                AS is_too_large
        FROM rota.inbox i LEFT JOIN rota.inbox_set_aside a ON a.id = i.id
        WHERE a.epoch IS DISTINCT FROM $2 ORDER BY i.id LIMIT $1
    ) oldest
) summed
WHERE size_before < $3 ORDER BY id
"""
_SET_ASIDE = f"""
WITH kept AS (
    INSERT INTO rota.inbox_set_aside
        (id, kind, body, key, job_ids, submitted_by, reason, at, epoch)
    SELECT i.id, i.kind,
        CASE WHEN octet_length(i.body) <= {INBOX_SET_ASIDE_BODY_BYTES} THEN i.body END,
        i.key, i.job_ids, i.submitted_by, given.reason, $3, $4
    FROM rota.inbox i JOIN unnest($1::bigint[], $2::text[]) given (id, reason) ON given.id = i.id
    ON CONFLICT (id) DO UPDATE
        SET reason = excluded.reason, at = excluded.at, epoch = excluded.epoch
)
DELETE FROM rota.inbox_set_aside old
WHERE (at < $3::bigint - {INBOX_SET_ASIDE_MS} OR id <= (
    SELECT id FROM rota.inbox_set_aside ORDER BY id DESC
    OFFSET greatest($5 - cardinality($1), 0) LIMIT 1
)) AND NOT EXISTS (SELECT FROM rota.inbox i WHERE i.id = old.id)
"""
_COUNT_FAILURES = "UPDATE rota.inbox SET failures = failures + 1 WHERE id = ANY ($1::bigint[])"


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

    async def take_inbox(self, limit: int, epoch: Epoch | None = None) -> list[InboxEntry]:
        """Reads from the first entry each time: one may become visible after a later one."""
        if (await self._glance.see(HAS_INBOX)) == (False,):
            return []
        at_once = self._takes.address.limits.inbox_take_bytes
        found = await self._takes.read(lambda c: c.fetch(_TAKE, limit, epoch or 0, at_once))
        return [_entry(row) for row in found]

    async def set_aside_inbox(
        self, reasons: Mapping[int, str], at: Instant, epoch: Epoch | None = None
    ) -> None:
        given = (list(reasons), list(reasons.values()), at, epoch)
        most = self._writes.address.limits.inbox_set_aside_max
        await self._writes.write(lambda c: c.execute(_SET_ASIDE, *given, most))

    async def count_inbox_failures(self, entry_ids: Sequence[int]) -> None:
        await self._writes.write(lambda c: c.execute(_COUNT_FAILURES, entry_ids))

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
        return None if row is None else _entry(row)


def _entry(row: asyncpg.Record) -> InboxEntry:
    return InboxEntry(row[0], row[1], row[2], tuple(row[3]), *row[4:])


async def _put(
    connection: Connection, body: bytes, key: str | None, job_ids: Sequence[JobId]
) -> InboxEntry:
    for _ in range(INBOX_PUT_TRIES):
        row = await connection.fetchrow(_PUT, InboxKind.INPUT.value, body, key, job_ids)
        if row is None:
            # The entry may be removed between the two statements, by a leader for example.
            row = await connection.fetchrow(_BY_KEY, key)
        if row is not None:
            return _entry(row)
    raise StoreError(f"submissions with the key {key!r} come and go: try again")


_APPEND = """
INSERT INTO rota.journal (seq, epoch, at, body, hash)
SELECT $1::bigint, $2::bigint, $3::bigint, $4::bytea, $5::bytea FROM rota.leader
WHERE epoch = $2
    AND ($1 = 1 OR EXISTS (SELECT FROM rota.journal WHERE seq = $1 - 1 AND hash = $6))
RETURNING seq
"""
"""The epoch is read without a lock: a server that claims meanwhile finds this position taken when
it appends, and reads on. The record before must be the one that this server knows."""
_APPEND_AND_CONSUME = f"""
WITH taken AS ({_APPEND}), gone AS (
    DELETE FROM rota.inbox WHERE id = ANY ($7::bigint[]) AND EXISTS (SELECT FROM taken)
)
SELECT seq FROM taken
"""
"""Only if there is something to consume: a look into the inbox costs time."""
_WHY_NOT = "SELECT epoch, (SELECT max(seq) FROM rota.journal) FROM rota.leader"
_CLAIM = """
UPDATE rota.leader SET epoch = greatest(epoch, $6)
    + CASE WHEN (SELECT timeline FROM rota.meta) IN (0, $7) THEN 1 ELSE 1000 END,
    nonce = nonce + 1, holder = $1, address = $2
WHERE ($3::bigint IS NULL OR (epoch = $3 AND nonce = $4))
    AND NOT EXISTS (SELECT FROM rota.migrations WHERE number > $5)
RETURNING epoch
"""
"""A program must not lead if the schema was migrated beyond it, while it was frozen for example.
After a failover of the database the newest epochs may be lost, and must not be given again."""
_NOTE_TIMELINE = """
UPDATE rota.meta SET timeline = $1,
    failovers = failovers + CASE timeline WHEN 0 THEN 0 ELSE greatest(1, $1 - timeline) END
WHERE timeline <> $1
"""
_NOTE_LOSS = """
INSERT INTO rota.losses AS l (timeline, after, at, records) VALUES ($1, $2, $3, $4)
ON CONFLICT (timeline, after) DO UPDATE SET records = greatest(l.records, excluded.records)
"""
"""Several servers may notice the same loss."""
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
        projection: Projection,
        readers: ReaderPool,
    ) -> None:
        self._address, limits = address, address.limits
        self._schema = known_migrations("postgres")[-1].number
        self._projection = projection
        self._appends = DedicatedConnection(address, "append", limits.append_deadline_s, _DURABLY)
        # Not of the readers' pool: many readers must not keep a server from following.
        self._follows = DedicatedConnection(address, "follow", limits.follow_deadline_s, _READ_ONLY)
        self.glance = Glance(look_line(address))
        # A server that puts entries into the inbox does not append: that connection is free.
        super().__init__(InboxConnections(self._appends, self._follows, self.glance), readers)
        self._leader = DedicatedConnection(address, "leader", limits.leader_deadline_s, _DURABLY)
        self._loads = DedicatedConnection(
            address,
            "load",
            PROJECTION_DEADLINE_S,
            _READ_ONLY,
            statement_s=limits.projection_statement_s,
        )
        self._leader_lock = LeaderLock(self._leader)
        self._bulk = BulkDecoder()
        self._newest_epoch = 0
        """The newest that this server has seen: a failover may have lost it, and it must not be
        given again."""

    @property
    def projection(self) -> ProjectionStatus:
        return self._projection.status

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
        if not found or not found["epoch"]:
            return None
        self._newest_epoch = max(self._newest_epoch, found["epoch"])
        return LeaderRow(*found)

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        was = (seen.epoch, seen.nonce) if seen else (None, None)
        known = self._schema
        newest = self._newest_epoch

        async def work(connection: Connection) -> int | None:
            timeline = self._address.identity.timeline
            claimed: int | None = await connection.fetchval(
                _CLAIM, holder, address, *was, known, newest, timeline
            )
            if claimed is not None:
                await connection.execute(_NOTE_TIMELINE, timeline)
            return claimed

        epoch = await self._leader.write(work)
        if epoch is None:
            shut_out = await self._leader.read(lambda c: c.fetchval(_SHUT_OUT, known))
            if shut_out is not None:
                raise left_behind(self._address.shown, shut_out, known)
            raise FencedError("another server claimed first")
        self._newest_epoch = max(newest, epoch)
        self._projection.lead(leads=True)
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
        self._projection.lead(leads=bool(renewed))
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
        self._projection.lead(leads=False)

    async def load(self, kept: int = FIFO_GROUP_KEPT) -> Snapshot:
        return await self._loads.read(lambda c: load_snapshot(c, kept))

    async def read_spilled(self, wanted: Sequence[Refill]) -> SpilledJobs:
        rows_per_fetch = self._address.limits.spilled_rows_per_fetch
        return await self._readers.run(
            lambda c: read_spill_queues(c, wanted, self._bulk, rows_per_fetch)
        )

    async def append(
        self,
        epoch: Epoch,
        after: Head,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> Head:
        body = encode_record(writes)
        head = next_head(after, epoch, at, body)
        row = (head.seq, epoch, at, body, head.hash, after.hash)

        async def work(connection: Connection) -> None:
            await self._append(connection, row, consumed)

        # The loop that appends is never cancelled in the middle of a turn.
        try:
            await self._appends.write(work, is_left_alone=True)
        except StoreError as error:
            if not isinstance(error.__cause__, asyncpg.CheckViolationError):
                raise
            # The projector makes partitions ahead; where it is away, the leader does it.
            await self.make_partitions()
            await self._appends.write(work, is_left_alone=True)
        self._projection.note_appended(
            StoredRecord(head.seq, epoch, at, head.hash, body), len(writes)
        )
        return head

    async def _append(
        self,
        connection: Connection,
        row: tuple[Seq, Epoch, Instant, bytes, bytes, bytes],
        consumed: Sequence[int],
    ) -> None:
        seq, epoch = row[0], row[1]
        try:
            if consumed:
                taken = await connection.fetchval(_APPEND_AND_CONSUME, *row, consumed)
            else:
                taken = await connection.fetchval(_APPEND, *row)
        except asyncpg.UniqueViolationError:
            self._projection.lead(leads=False)
            raise FencedError(f"place {seq} in the journal is taken") from None
        if taken is None:
            why = await connection.fetchrow(_WHY_NOT)
            if why is not None and why[0] == epoch:
                raise DivergedError(
                    f"the journal ends at {why[1] or 0} or has another record {seq - 1} than this"
                    f" server knows: a record at {seq} would leave a gap"
                )
            self._projection.lead(leads=False)
            raise FencedError(f"epoch {epoch} is over: another server leads")

    async def records_after(self, after: Head, limit: int) -> list[JournalRecord]:
        found = await self._follows.read(
            lambda c: c.fetch(
                "SELECT seq, epoch, at, hash, body FROM rota.journal"
                " WHERE seq >= $1 ORDER BY seq LIMIT $2",
                after.seq,
                limit + 1,
            )
        )
        return follow_chain(after, [tuple(row) for row in found], limit)

    async def make_partitions(self) -> None:
        """Makes the partitions for the next records."""
        sql, limits = "SELECT max(seq) FROM rota.journal", self._address.limits
        newest = await self._appends.read(lambda c: c.fetchval(sql))
        await self._appends.write(lambda c: make_partitions(c, Seq(newest or 0), None, limits))

    async def heads(self, seqs: Sequence[Seq]) -> dict[Seq, bytes]:
        found = await self._follows.read(
            lambda c: c.fetch("SELECT seq, hash FROM rota.journal WHERE seq = ANY ($1)", seqs)
        )
        return {Seq(row[0]): row[1] for row in found}

    async def note_loss(self, loss: Loss) -> None:
        timeline = self._address.identity.timeline
        await self._leader.write(
            lambda c: c.execute(_NOTE_LOSS, timeline, loss.after, loss.at, loss.records)
        )

    async def losses(self) -> Losses:
        return await self._follows.read(read_losses)

    async def quarantine(self) -> list[QuarantinedWork]:
        return await self._readers.run(read_quarantined_work)

    async def repair(self, job_ids: Sequence[JobId] = ()) -> dict[JobId, str]:
        try:
            return await repair_jobs(self._address, job_ids)
        finally:
            self._projection.look_again()

    async def close(self) -> None:
        self._leader_lock.drop()
        await self.glance.close()
        await self._follows.close()
        await self._appends.close()
        await self._loads.close()
        await self._leader.close()
