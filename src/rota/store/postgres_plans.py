"""How PostgreSQL's fold has its statements planned: by key, and again as the tables grow."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.limits import (
    FOLD_PLANS_FIRST_WRITES,
    FOLD_PLANS_TIMES,
    FOLD_PLANS_WRITES_MAX,
    FOLD_SMALL_BYTES,
)
from rota.store.postgres_connect import Connection

PLANNED = """
SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;
SET LOCAL enable_memoize = off; SET LOCAL jit = off;
SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL synchronous_commit = off;
SELECT folded_seq FROM rota.meta WHERE id = 1 FOR UPDATE
"""
"""The fold looks rows up by their keys and does nothing else. Statistics of tables that empty and
fill within minutes would sometimes suggest otherwise. Nor does it wait for the disk, behind a
PgBouncer neither, where a connection has no settings of its own. The turn comes last: whatever is
asked after it sees all that the one before has written."""
BY_KEY = "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off"
"""A table thought empty would still be read as a whole, along its index, and all that came be gone
through for each of its rows. A bitmap scan, which is left, cannot be made without a key."""
_FORGET = "DISCARD PLANS"
_BELIEVED = """
SELECT relname::text FROM pg_class WHERE oid = ANY ($1::text[]::regclass[])
    AND reltuples BETWEEN 0 AND 1 AND pg_relation_size(oid) > $2
"""
"""Tables that are taken for empty though they have some size."""
_LOOK = """
SET LOCAL client_min_messages = error; SET LOCAL default_statistics_target = 1;
ANALYZE (SKIP_LOCKED) rota.{}; SET LOCAL client_min_messages = notice
"""
"""A few hundred rows. If somebody else is at it, that one will tell; the database would warn of it,
and a warning counts as a failure here."""


class Plans:
    """The plans of one connection, which the database makes at a statement's first use and keeps.

    In a table thought empty every index is as good as any other, one that has the key in its second
    column, too: that is read as a whole for each fold, and the table is empty no more. So plans
    are made again soon after the first writes, and then ever more seldom.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._writes = 0
        self._due = 0

    async def age(self, connection: Connection, writes: int) -> None:
        """So much is about to be written; plans that have seen enough are forgotten first."""
        if connection.get_server_pid() != self._pid:
            self._pid, self._writes = connection.get_server_pid(), 0
            self._due = FOLD_PLANS_FIRST_WRITES
        elif self._writes >= self._due:
            await connection.execute(_FORGET)
            self._due = min(self._due * FOLD_PLANS_TIMES, FOLD_PLANS_WRITES_MAX)
            self._writes = 0
        self._writes += writes

    async def look_again(self, connection: Connection, tables: Sequence[str]) -> None:
        """What was cleaned up while nothing lived counts as empty until somebody looks again.

        Plans for such a table are made at any time, and one statement may then take minutes: an
        index that has the key in its second column is read as a whole for each of thousands.
        """
        names = [f"rota.{table}" for table in tables]
        for row in await connection.fetch(_BELIEVED, names, FOLD_SMALL_BYTES):
            await connection.execute(_LOOK.format(row[0]))
