"""Retention on SQLite: deletes old finished work a little at a time, with its output files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Instant, JobId
from rota.store import rows
from rota.store.errors import DamagedRowError
from rota.store.limits import StoreLimits
from rota.store.queries import id_at
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch
from rota.store.sqlite.projection import remove_jobs

DELETE_LATER = "INSERT OR REPLACE INTO doomed VALUES (?, 0)"


def delete_outputs_later(connection: apsw.Connection, execution_ids: Sequence[Any]) -> None:
    """Has the objects of executions of deleted jobs deleted; in the caller's transaction."""
    sql = f"DELETE FROM objects WHERE execution_id IN ({placeholders(execution_ids)}) RETURNING key"
    for (key,) in fetch(connection, sql, tuple(execution_ids)):
        if key:
            fetch(connection, DELETE_LATER, (key,))


def placeholders(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


_FINAL = tuple(state.value for state in JOB_FINAL)
_DROP_OCCURRENCES = """
DELETE FROM occurrences WHERE (schedule_id, nominal) IN (
    SELECT schedule_id, nominal FROM occurrences WHERE nominal < ? ORDER BY nominal LIMIT ?
) RETURNING 1
"""


class RetentionStep(msgspec.Struct, frozen=True):
    """Result of one step of retention."""

    dropped: int
    after: str
    """Where the next step begins; empty: this was the last one."""
    leaves_behind: bool


def drop_some(
    connection: apsw.Connection, before: Instant, after: str, limits: StoreLimits
) -> RetentionStep:
    """Drops those that ended of the next few jobs that were submitted before `before`, and some
    older occurrences of schedules. One transaction.

    Ids begin with their time, and the table is in their order: no index by age is needed, and newer
    jobs are never read.
    """
    most = limits.old_rows_per_drop
    found = fetch(
        connection,
        "SELECT id, state, life FROM jobs WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
        (after, id_at(before), most),
    )
    old = [JobId(row[0]) for row in found if _is_old(row, before)]
    leaves_behind = False
    with connection:
        if old:
            leaves_behind = remove_jobs(connection, old)
        decided = fetch(connection, _DROP_OCCURRENCES, (before, most))
    reached = found[-1][0] if found else after
    was_last = len(found) < most and len(decided) < most
    return RetentionStep(len(old), "" if was_last else reached, leaves_behind)


def _is_old(row: Row, before: Instant) -> bool:
    """Returns whether the job of this row of id, state, life ended before that."""
    job_id, state, life = row
    if state not in _FINAL:
        return False
    try:
        return (rows.life(job_id, life).finished_at or 0) < before
    except DamagedRowError:
        return False  # it is kept: nobody knows when it ended
