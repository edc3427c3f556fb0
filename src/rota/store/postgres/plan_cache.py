"""Plan cache of the projection: statements are planned by key, and again as tables grow."""

from __future__ import annotations

from rota.store.limits import PLAN_CACHE_FIRST_WRITES, PLAN_CACHE_GROWTH, PLAN_CACHE_WRITES_MAX
from rota.store.postgres.connect import Connection

PLANNED = """
SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;
SET LOCAL enable_memoize = off; SET LOCAL jit = off;
SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL synchronous_commit = off
"""
"""The projection only looks rows up by their keys. Statistics of tables that are emptied and filled
within minutes would sometimes suggest other plans. It does not wait for the disk: what a crash
undoes is projected again. That is set here for PgBouncer too, where a connection has no settings of
its own."""
BY_KEY = "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off"
"""A table that counts as empty would still be read as a whole along its index. A bitmap scan, which
is left, cannot be made without a key."""
_FORGET = "DISCARD PLANS"


class PlanCache:
    """Plan cache of one connection; the database plans a statement at its first use.

    For a table that counts as empty every index looks as good as any other, even one with the key
    in its second column, which is then read as a whole by each projection when the table has grown.
    Indexes of live jobs cannot be used like that (see `0001_baseline.sql`), those of finished jobs
    can. So plans are made again soon after the first writes, and then less and less often.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._writes = 0
        self._due = 0

    async def age(self, connection: Connection, writes: int) -> None:
        """Counts writes that are about to happen; first drops plans that are too old."""
        if connection.get_server_pid() != self._pid:
            self._pid, self._writes = connection.get_server_pid(), 0
            self._due = PLAN_CACHE_FIRST_WRITES
        elif self._writes >= self._due:
            await connection.execute(_FORGET)
            self._due = min(self._due * PLAN_CACHE_GROWTH, PLAN_CACHE_WRITES_MAX)
            self._writes = 0
        self._writes += writes
