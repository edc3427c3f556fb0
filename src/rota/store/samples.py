"""Counts the first executions of many stretches of ids, however many more there are.

A timeline over ten million executions is drawn from what this looks at: some of each stretch, read
along an index that ends in the id, and never all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from rota.core.model import Execution, ExecutionState, WorkerId
from rota.store.queries import Sampled, SampleQuery

Row = Sequence[Any]


class Reads(Protocol):
    """What answers questions in SQL: a connection to SQLite."""

    def execute(self, sql: str, args: tuple[Any, ...]) -> Iterable[Row]:
        """The rows of an answer."""
        ...


def count_first(executions: Iterable[Execution], query: SampleQuery) -> list[Sampled]:
    """The same without a database."""
    ordered = sorted(
        (one for one in executions if query.worker_id in (None, one.worker_id)),
        key=lambda one: one.id,
    )
    found: Counter[tuple[int, WorkerId, ExecutionState]] = Counter()
    last: dict[tuple[int, WorkerId, ExecutionState], str] = {}
    for stretch, (low, high) in enumerate(pairwise(query.bounds)):
        within = [one for one in ordered if low <= one.id < high][: query.limit]
        for one in within:
            alike = (stretch, one.worker_id, one.state)
            found[alike] += 1
            last[alike] = one.id
    return [Sampled(*alike, count, last[alike]) for alike, count in found.items()]


def sample_sqlite(connection: Reads, query: SampleQuery) -> list[Sampled]:
    """One short walk for each stretch."""
    whose = "" if query.worker_id is None else " AND worker_id = ?"
    mine = () if query.worker_id is None else (query.worker_id,)
    sql = (
        "SELECT worker_id, state, count(*), max(id) FROM ("
        f"SELECT id, worker_id, state FROM executions WHERE id >= ? AND id < ?{whose}"
        " ORDER BY id LIMIT ?) GROUP BY worker_id, state"
    )
    return [
        read_sample((stretch, *row))
        for stretch, (low, high) in enumerate(pairwise(query.bounds))
        for row in connection.execute(sql, (low, high, *mine, query.limit))
    ]


def postgres_sample(query: SampleQuery) -> tuple[str, tuple[Any, ...]]:
    """All stretches in one statement; live and finished executions are in two tables.

    The bounds of the whole say nothing new, but let the database leave out the days of other
    partitions before it plans.
    """
    whose = "" if query.worker_id is None else "AND worker_id = $6"
    mine = () if query.worker_id is None else (query.worker_id,)
    walks = " UNION ALL ".join(
        f"""(SELECT id, worker_id, state FROM rota.{table}
             WHERE id >= s.low COLLATE "C" AND id < s.high COLLATE "C"
               AND id >= $4 AND id < $5 {whose}
             ORDER BY id LIMIT $3)"""
        for table in ("executions_live", "executions_done")
    )
    sql = f"""
        SELECT s.place - 1, f.worker_id, f.state, count(*), max(f.id)
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS s (low, high, place)
        CROSS JOIN LATERAL (SELECT * FROM ({walks}) AS walked ORDER BY id LIMIT $3) AS f
        GROUP BY 1, 2, 3"""
    lows, highs = list(query.bounds[:-1]), list(query.bounds[1:])
    return sql, (lows, highs, query.limit, lows[0], highs[-1], *mine)


def read_sample(row: Row) -> Sampled:
    """A row of either."""
    stretch, worker_id, state, count, last = row
    return Sampled(stretch, WorkerId(worker_id), ExecutionState(state), count, last)
