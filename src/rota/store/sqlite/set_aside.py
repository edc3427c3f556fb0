"""Reads from SQLite which jobs are in quarantine, and their writes that were set aside."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from rota.core.model import JobId
from rota.store import rows
from rota.store.damage import Damage
from rota.store.projection.quarantine import (
    AllSetAside,
    Quarantine,
    QuarantinedJob,
    QuarantinedWrite,
    apply_each,
)
from rota.store.protocol import Seq
from rota.store.sqlite.connect import fetch

_json = msgspec.json.Encoder()
_WRITES = 'SELECT job_id, seq, "index", body FROM quarantined_writes'
_IN_ORDER = 'ORDER BY seq, "index", job_id'


def read_quarantine(connection: apsw.Connection) -> Quarantine:
    """Returns all jobs that are set aside."""
    found = fetch(connection, "SELECT job_id, shard, seq, at, reason FROM quarantine")
    return {row[0]: QuarantinedJob(row[0], row[1], Seq(row[2]), row[3], row[4]) for row in found}


def read_quarantined_writes(
    connection: apsw.Connection, job_ids: Sequence[JobId] | None = None
) -> list[QuarantinedWrite]:
    """Returns the writes of these jobs, or of all, that were set aside, in their order."""
    if job_ids is None:
        found = fetch(connection, f"{_WRITES} {_IN_ORDER}")
    else:
        of_these = "WHERE job_id IN (SELECT value FROM json_each(?))"
        wanted = _json.encode(job_ids).decode()
        found = fetch(connection, f"{_WRITES} {of_these} {_IN_ORDER}", (wanted,))
    return [QuarantinedWrite(row[0], Seq(row[1]), row[2], row[3]) for row in found]


def read_set_aside(
    connection: apsw.Connection, job_ids: Sequence[JobId] | None = None
) -> AllSetAside:
    """Returns those of these jobs, or all, of which writes were set aside.

    To be read before the rows: a job that is repaired between the two is then right in both.
    """
    if not fetch(connection, "SELECT 1 FROM quarantine LIMIT 1"):
        return {}
    # One statement sees one moment; the rows of the jobs come along.
    found = fetch(
        connection,
        'SELECT w.job_id, w.seq, w."index", w.body, j.id, j.life, j.spec'
        " FROM quarantined_writes w LEFT JOIN jobs j ON j.id = w.job_id"
        " WHERE ?1 IS NULL OR w.job_id IN (SELECT value FROM json_each(?1))"
        ' ORDER BY w.seq, w."index", w.job_id',
        (None if job_ids is None else _json.encode(job_ids).decode(),),
    )
    stored = {row[4]: row[4:] for row in found if row[4] is not None}
    writes = [QuarantinedWrite(row[0], Seq(row[1]), row[2], row[3]) for row in found]
    return apply_each(Damage().whole(rows.job, stored.values()), writes)
