"""Counts the first executions of many stretches of ids, however many more there are.

A timeline over ten million executions is drawn from what this looks at: some of each stretch, read
along an index that ends in the id, and never all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from rota.core.model import ExecutionState, WorkerId
from rota.store.protocols.queries import Sampled, SampleQuery

Row = Sequence[Any]

_TENANTS = """
LEFT JOIN LATERAL (
    SELECT tenant FROM rota.jobs_live WHERE id = f.job_id
    UNION ALL SELECT tenant FROM rota.jobs_done WHERE id = f.job_id LIMIT 1
) AS j ON true"""
"""Whose each is. The limit keeps it a look-up by id: the planner would read whole days."""


class Reads(Protocol):
    """What answers questions in SQL: a connection to SQLite."""

    def execute(self, sql: str, args: tuple[Any, ...]) -> Iterable[Row]:
        """The rows of an answer."""
        ...


def sample_sqlite(connection: Reads, query: SampleQuery) -> list[Sampled]:
    """One short walk for each stretch."""
    whose = "" if query.worker_id is None else " AND worker_id = ?"
    mine = () if query.worker_id is None else (query.worker_id,)
    own = "1"
    tenant = () if query.tenant is None else (query.tenant,)
    if tenant:
        own = "EXISTS (SELECT 1 FROM jobs WHERE jobs.id = job_id AND tenant = ?)"
    sql = (
        f"SELECT worker_id, state, count(*), max(id), {own} AS own FROM ("
        f"SELECT id, job_id, worker_id, state FROM executions WHERE id >= ? AND id < ?{whose}"
        " ORDER BY id LIMIT ?) GROUP BY worker_id, state, own"
    )
    return [
        read_sample((stretch, *row))
        for stretch, (low, high) in enumerate(pairwise(query.bounds))
        for row in connection.execute(sql, (*tenant, low, high, *mine, query.limit))
    ]


def postgres_sample(query: SampleQuery) -> tuple[str, tuple[Any, ...]]:
    """All stretches in one statement; live and finished executions are in two tables.

    The bounds of the whole say nothing new, but let the database leave out the days of other
    partitions before it plans.
    """
    lows, highs = list(query.bounds[:-1]), list(query.bounds[1:])
    args: list[Any] = [lows, highs, query.limit, lows[0], highs[-1]]
    whose, own, jobs = "", "true", ""
    if query.worker_id is not None:
        args.append(query.worker_id)
        whose = f"AND worker_id = ${len(args)}"
    if query.tenant is not None:
        args.append(query.tenant)
        own, jobs = f"j.tenant = ${len(args)}", _TENANTS
    walks = " UNION ALL ".join(
        f"""(SELECT id, job_id, worker_id, state FROM rota.{table}
             WHERE id >= s.low COLLATE "C" AND id < s.high COLLATE "C"
               AND id >= $4 AND id < $5 {whose}
             ORDER BY id LIMIT $3)"""
        for table in ("executions_live", "executions_done")
    )
    sql = f"""
        SELECT s.place - 1, f.worker_id, f.state, count(*), max(f.id), {own}
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS s (low, high, place)
        CROSS JOIN LATERAL (SELECT * FROM ({walks}) AS walked ORDER BY id LIMIT $3) AS f
        {jobs}
        GROUP BY 1, 2, 3, 6"""
    return sql, tuple(args)


def read_sample(row: Row) -> Sampled:
    """A row of either."""
    stretch, worker_id, state, count, last, own = row
    return Sampled(stretch, WorkerId(worker_id), ExecutionState(state), count, last, bool(own))
