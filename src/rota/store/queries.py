"""Queries for pages of jobs, executions and events, and samples of executions for a timeline.

A query says which of a kind, and where the last page ended. A timeline over ten million executions
is drawn from samples: some of each stretch of ids, read along an index that ends in the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import msgspec

from rota.core.model import (
    ExecutionState,
    Instant,
    JobId,
    JobState,
    ScheduleId,
    TriggerId,
    WorkerId,
)
from rota.core.schedule_model import OccurrenceDecision
from rota.core.trigger_model import EventDecision

T = TypeVar("T")


class Page(list[T]):
    """Those found, newest first; `rest`: before which id the search goes on, if it ended early.

    Only a query that says how far to `look` gets such a page. It may be short, even empty.
    """

    __slots__ = ("rest",)

    def __init__(self, found: Iterable[T] = (), rest: str | None = None) -> None:
        super().__init__(found)
        self.rest = rest


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs, newest first; `before` is the id of the last one already seen.

    `after` is an id that all of them come after, whatever is seen already.
    `states` are alternatives, `labels` must all be there; the bounds of `created_at` are exclusive.
    `look` says how much work a page is worth, in entries of indexes; None: as much as it takes.
    """

    states: tuple[JobState, ...] = ()
    priority: int | None = None
    not_priority: int | None = None
    queue: str | None = None
    tenant: str | None = None
    name: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    created_after: Instant | None = None
    created_before: Instant | None = None
    before: str | None = None
    after: str | None = None
    limit: int = 50
    look: int | None = None


class ExecutionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions, newest first; `before` and `look` are as for jobs."""

    job_id: JobId | None = None
    worker_id: WorkerId | None = None
    states: tuple[ExecutionState, ...] = ()
    before: str | None = None
    limit: int = 50
    look: int | None = None


class SampleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The first executions of each of some stretches of ids that follow each other."""

    bounds: tuple[str, ...]
    """Rising: stretch n begins at bound n and ends before the next one."""
    worker_id: WorkerId | None = None
    tenant: str | None = None
    """Tells this tenant's apart; all of a stretch are looked at all the same."""
    limit: int = 1_000
    """Of each stretch."""


class Sampled(msgspec.Struct, frozen=True):
    """So many of the executions of a stretch that were looked at are alike."""

    stretch: int
    worker_id: WorkerId
    state: ExecutionState
    count: int
    last: str
    """The largest id among them."""
    is_own: bool = True
    """Of the tenant that was asked for."""


class OccurrenceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which instants of a schedule, newest first; the bounds of `nominal` are exclusive."""

    schedule_id: ScheduleId
    decisions: tuple[OccurrenceDecision, ...] = ()
    after: Instant | None = None
    before: Instant | None = None
    limit: int = 50


class TriggerDecisionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger made of events, newest first; `before` is the id of the last already seen."""

    trigger_id: TriggerId
    decisions: tuple[EventDecision, ...] = ()
    before: str | None = None
    limit: int = 50


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events, newest first; `before` is (at, key) of the last already seen."""

    type: str | None = None
    tenant: str | None = None
    before: tuple[Instant, str] | None = None
    limit: int = 50


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
