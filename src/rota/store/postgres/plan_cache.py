"""The plan cache of the projection: statements are planned by key, and again as tables grow."""

from __future__ import annotations

from rota.store.limits import PLAN_CACHE_FIRST_WRITES, PLAN_CACHE_GROWTH, PLAN_CACHE_WRITES_MAX
from rota.store.postgres.connect import Connection

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


class PlanCache:
    """The plans of one connection, which the database makes at a statement's first use and keeps.

    In a table thought empty every index is as good as any other, one that has the key in its second
    column, too: that is read as a whole for each fold, and the table is empty no more. Indexes of
    live jobs cannot be used like that (`0011_found_by_key.sql`), those of finished ones can. So
    plans are made again soon after the first writes, and then ever more seldom.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._writes = 0
        self._due = 0

    async def age(self, connection: Connection, writes: int) -> None:
        """So much is about to be written; plans that have seen enough are forgotten first."""
        if connection.get_server_pid() != self._pid:
            self._pid, self._writes = connection.get_server_pid(), 0
            self._due = PLAN_CACHE_FIRST_WRITES
        elif self._writes >= self._due:
            await connection.execute(_FORGET)
            self._due = min(self._due * PLAN_CACHE_GROWTH, PLAN_CACHE_WRITES_MAX)
            self._writes = 0
        self._writes += writes
