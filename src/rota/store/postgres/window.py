"""Window of PostgreSQL's journal that is to be projected, and what is read before it is."""

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
    """Window of the journal to be projected."""

    records: list[Sequence[AnyWrite]]
    writes: int
    last_seq: Seq
    last_at: Instant
    epoch: Epoch | None = None
    """The epoch of its last record, if it is from memory: the journal must still have that
    record."""

    @property
    def end(self) -> Window:
        """An empty window up to the same record."""
        return replace(self, records=[], writes=0)


class Before(msgspec.Struct):
    """State of the tables when a projection begins and has the lock."""

    folded: Seq
    epoch: Epoch | None
    """The epoch of the window's last record in the journal."""
    stamp: str
    """The stamp of the transaction that projected last, as a whole or ahead of `folded`."""
    newest: dict[str, str | None]
    """The greatest id in each table: greater ones need not be looked up."""

    def fits(self, window: Window, folded: Seq) -> bool:
        """Returns whether no other server projected after `folded`, and the journal is unchanged.

        A database that was restored, or a standby that took over, may have lost records that were
        read there. A position and an epoch together identify a record for ever.
        """
        return self.folded == folded and window.epoch in (None, self.epoch)


async def take_turn(connection: Connection, window: Window, plans: PlanCache) -> Before:
    """Sets the planner for this transaction, and takes the lock of the projection."""
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
    """Returns the stamp of the last transaction that projected, which may be this one."""
    stamp: str = await connection.fetchval("SELECT xmin::text FROM rota.meta WHERE id = 1")
    return stamp


def window_of(records: Sequence[JournalRecord]) -> Window:
    """Makes a window of records that are in memory."""
    last, each = records[-1], [record.writes for record in records]
    return Window(each, sum(map(len, each)), last.seq, last.at, last.epoch)


async def read_window(connection: Connection, after: Seq) -> Window | None:
    """Reads the next window after `after`; a record is never split. None: there are no more."""
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
