"""Leadership, the journal for followers and the inbox on SQLite; all run in the writer's thread.

One directory has one server, so here these are the same calls with less to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from rota.core.model import JobId
from rota.store.journal import decode_record
from rota.store.protocol import (
    Epoch,
    FencedError,
    JournalRecord,
    LeaderRow,
    Seq,
)
from rota.store.protocols.inbox import InboxEntry, InboxKind
from rota.store.sqlite.connect import fetch, run_in_bulk


def observe(connection: apsw.Connection) -> LeaderRow | None:
    """The row as it is; None if nobody ever claimed."""
    row = LeaderRow(*fetch(connection, "SELECT holder, epoch, nonce, address FROM leader")[0])
    return row if row.epoch else None


def claim(connection: apsw.Connection, holder: str, seen: LeaderRow | None, address: str) -> Epoch:
    """Opens a new epoch, if the row is still as it was seen."""
    found = fetch(
        connection,
        "UPDATE leader SET epoch = epoch + 1, nonce = nonce + 1, holder = ?1, address = ?2"
        " WHERE ?3 IS NULL OR (epoch = ?3 AND nonce = ?4) RETURNING epoch",
        (holder, address, seen.epoch if seen else None, seen.nonce if seen else None),
    )
    if not found:
        raise FencedError("another server claimed first")
    return Epoch(found[0][0])


def renew(connection: apsw.Connection, epoch: Epoch) -> bool:
    """Writes that the holder is alive."""
    connection.execute(
        "UPDATE leader SET nonce = nonce + 1 WHERE epoch = ? AND holder <> ''", (epoch,)
    )
    return connection.changes() == 1


def resign(connection: apsw.Connection, epoch: Epoch) -> None:
    """Lets the next one lead at once."""
    connection.execute(
        "UPDATE leader SET nonce = nonce + 1, holder = '', address = '' WHERE epoch = ?", (epoch,)
    )


def records_after(connection: apsw.Connection, seq: Seq, limit: int) -> list[JournalRecord]:
    """The next records."""
    found = connection.execute(
        "SELECT seq, epoch, at, body FROM journal WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit)
    )
    return [JournalRecord(row[0], row[1], row[2], decode_record(row[3])) for row in found]


def name_cell(connection: apsw.Connection, name: str) -> str:
    """Names the cell if it has no name yet; answers the one it has."""
    if name:
        connection.execute("UPDATE meta SET cell = ? WHERE cell = ''", (name,))
    return str(fetch(connection, "SELECT cell FROM meta")[0][0])


def put_inbox(
    connection: apsw.Connection, body: bytes, key: str | None, job_ids: Sequence[JobId]
) -> InboxEntry:
    """Keeps a submission for the next leader; the first with a key stays."""
    found = fetch(connection, "SELECT id, body FROM inbox WHERE key = ?", (key,))
    if not found:
        found = fetch(
            connection,
            "INSERT INTO inbox (body, key, job_ids) VALUES (?, ?, ?) RETURNING id, body",
            (body, key, " ".join(job_ids)),
        )
    return InboxEntry(found[0][0], InboxKind.INPUT, found[0][1])


def inbox_key(connection: apsw.Connection, key: str) -> InboxEntry | None:
    """The entry that has this key."""
    found = fetch(connection, "SELECT id, body FROM inbox WHERE key = ?", (key,))
    return InboxEntry(found[0][0], InboxKind.INPUT, found[0][1]) if found else None


def inbox_job(connection: apsw.Connection, job_id: JobId) -> InboxEntry | None:
    """The entry that a job is in; ids are all of one length, so none is a part of another."""
    found = fetch(connection, "SELECT id, body FROM inbox WHERE instr(job_ids, ?)", (job_id,))
    return InboxEntry(found[0][0], InboxKind.INPUT, found[0][1]) if found else None


def take_inbox(connection: apsw.Connection, limit: int) -> list[InboxEntry]:
    """The oldest entries."""
    found = connection.execute("SELECT id, body FROM inbox ORDER BY id LIMIT ?", (limit,))
    return [InboxEntry(row[0], InboxKind.INPUT, row[1]) for row in found]


def drop_inbox(connection: apsw.Connection, entry_ids: Sequence[int]) -> None:
    """Removes entries."""
    gone = [(entry_id,) for entry_id in entry_ids]
    run_in_bulk(connection, "DELETE FROM inbox WHERE id IN (VALUES", gone, ")")
