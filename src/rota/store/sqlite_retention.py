"""Drops old work from SQLite a little at a time."""

from __future__ import annotations

import apsw
import msgspec

from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Instant, JobId, JobState
from rota.store import rows
from rota.store.limits import OLD_ROWS_PER_DROP
from rota.store.sqlite_connect import fetch
from rota.store.sqlite_fold import remove_jobs


class Step(msgspec.Struct, frozen=True):
    """What one piece of the way came to."""

    dropped: int
    after: str
    """Where the next piece begins; empty: this was the last."""
    leaves_behind: bool


def drop_some(connection: apsw.Connection, before: Instant, after: str) -> Step:
    """Looks at the next few jobs that were submitted before `before`, and drops those that ended.

    Ids begin with the time of birth, and the table is in their order: no index by age is needed,
    and what is young is never looked at. One transaction.
    """
    born = f"{before:012x}"
    found = fetch(
        connection,
        "SELECT id, state, life FROM jobs WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
        (after, f"{born[:8]}-{born[8:]}", OLD_ROWS_PER_DROP),
    )
    old = [JobId(job_id) for job_id, state, life in found if _is_old(state, life, before)]
    leaves_behind = False
    if old:
        with connection:
            leaves_behind = remove_jobs(connection, old)
    was_last = len(found) < OLD_ROWS_PER_DROP
    return Step(len(old), "" if was_last else found[-1][0], leaves_behind)


def _is_old(state: str, life: bytes, before: Instant) -> bool:
    return JobState(state) in JOB_FINAL and (rows.life(life).finished_at or 0) < before
