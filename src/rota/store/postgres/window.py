"""A stretch of PostgreSQL's journal that is to be folded, and what must be known before it is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rota.core.model import Instant
from rota.core.outcome import AnyWrite
from rota.store.journal import decode_record
from rota.store.limits import POSTGRES_PROJECTION_WINDOW_WRITES
from rota.store.postgres.connect import Connection
from rota.store.postgres.plan_cache import BY_KEY, PLANNED, PlanCache
from rota.store.protocol import Epoch, JournalRecord, Seq

_LOOKED_UP = ("jobs_live", "jobs_done", "executions_live", "executions_done", "jobs_shelved")


class Window(msgspec.Struct):
    """A stretch of the journal, to be folded."""

    records: list[Sequence[AnyWrite]]
    writes: int
    last_seq: Seq
    last_at: Instant
    epoch: Epoch | None = None
    """Of its last record, if it was not read: the journal must still say so when it is folded."""

    @property
    def end(self) -> Window:
        """Nothing more, up to the same record."""
        return replace(self, records=[], writes=0)


class Before(msgspec.Struct):
    """How things stand when a fold begins; it has its turn then."""

    folded: Seq
    epoch: Epoch | None
    """Of the record that the window ends with, as the journal says."""
    stamp: str
    """Of the transaction that folded last, as a whole or ahead of `folded`."""
    newest: dict[str, str | None]
    """The greatest id of each table that is looked into: no greater one is there."""

    def fits(self, window: Window, folded: Seq) -> bool:
        """False: another server folded after `folded`, or the journal is not what it was.

        A database that was restored, or a standby that took over, may have lost records that were
        seen there. A place and an epoch together are one record for ever.
        """
        return self.folded == folded and window.epoch in (None, self.epoch)


async def take_turn(connection: Connection, window: Window, plans: PlanCache) -> Before:
    """Sets the transaction's planner right, and locks out whoever else folds."""
    await plans.age(connection, window.writes)
    await connection.execute(PLANNED)
    greatest = ", ".join(f"(SELECT max(id) FROM rota.{table})" for table in _LOOKED_UP)
    found = await connection.fetchrow(
        "SELECT folded_seq, xmin::text, (SELECT epoch FROM rota.journal WHERE seq = $1),"
        f" {greatest} FROM rota.meta WHERE id = 1",
        window.last_seq,
    )
    assert found is not None, "the baseline makes the row"
    await connection.execute(BY_KEY)
    folded, stamp, epoch, *newest = found
    return Before(folded, epoch, stamp, dict(zip(_LOOKED_UP, newest, strict=True)))


async def stamp_of(connection: Connection) -> str:
    """Of the last transaction that has folded, this one perhaps: it wrote the row asked for."""
    stamp: str = await connection.fetchval("SELECT xmin::text FROM rota.meta WHERE id = 1")
    return stamp


def window_of(records: Sequence[JournalRecord]) -> Window:
    """Of records that are at hand."""
    last, each = records[-1], [record.writes for record in records]
    return Window(each, sum(map(len, each)), last.seq, last.at, last.epoch)


async def read_window(connection: Connection, after: Seq) -> Window | None:
    """The next stretch after `after`; a record is never split. None: there is nothing more."""
    window = Window([], 0, after, 0)
    while window.writes < POSTGRES_PROJECTION_WINDOW_WRITES:
        # Records hold from one write to thousands: a few at first, then as many as it takes.
        size = 8 if not window.records else 64
        found = await connection.fetch(
            "SELECT seq, at, body FROM rota.journal WHERE seq > $1 ORDER BY seq LIMIT $2",
            window.last_seq,
            size,
        )
        for seq, at, body in found:
            record = decode_record(body)
            window.records.append(record)
            window.writes += len(record)
            window.last_seq, window.last_at = Seq(seq), at
            if window.writes >= POSTGRES_PROJECTION_WINDOW_WRITES:
                break
        if len(found) < size:
            break
    return window if window.records else None
