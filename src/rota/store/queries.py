"""Queries for pages of jobs, executions and events, and samples of executions for a timeline.

A query says which of a kind, and where the last page ended. A timeline over ten million executions
is drawn from samples: some of each range of ids, read along an index that ends in the id.
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
    """Page of results, newest first; `rest`: the id before which the search goes on.

    Only a query that limits its work with `look` gets a `rest`. Such a page may be short, or empty.
    """

    __slots__ = ("rest",)

    def __init__(self, found: Iterable[T] = (), rest: str | None = None) -> None:
        super().__init__(found)
        self.rest = rest


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for jobs, newest first; `before` is the id of the last one already seen.

    `after` is an id that all of them come after.
    `states` are alternatives, all `labels` must match; the bounds of `created_at` are exclusive.
    `look` limits the work for a page, in index entries; None: as much as it takes.
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
    """Query for executions, newest first; `before` and `look` are as for jobs."""

    job_id: JobId | None = None
    worker_id: WorkerId | None = None
    states: tuple[ExecutionState, ...] = ()
    before: str | None = None
    limit: int = 50
    look: int | None = None


class SampleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for a sample: the first executions of each of some consecutive ranges of ids."""

    bounds: tuple[str, ...]
    """Rising: range n begins at bound n and ends before the next one."""
    worker_id: WorkerId | None = None
    tenant: str | None = None
    """Marks this tenant's; the sample is of all tenants."""
    limit: int = 1_000
    """Per range."""


class Sampled(msgspec.Struct, frozen=True):
    """Count of the executions in a sample that have the same worker, state and owner."""

    stretch: int
    worker_id: WorkerId
    state: ExecutionState
    count: int
    last: str
    """The largest id among them."""
    is_own: bool = True
    """Whether they belong to the tenant that was asked for."""


class OccurrenceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for instants of a schedule, newest first; the bounds of `nominal` are exclusive."""

    schedule_id: ScheduleId
    decisions: tuple[OccurrenceDecision, ...] = ()
    after: Instant | None = None
    before: Instant | None = None
    limit: int = 50


class TriggerDecisionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for decisions of a trigger, newest first; `before` is the id of the last one seen."""

    trigger_id: TriggerId
    decisions: tuple[EventDecision, ...] = ()
    before: str | None = None
    limit: int = 50


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for events, newest first; `before` is (at, key) of the last one already seen."""

    type: str | None = None
    tenant: str | None = None
    before: tuple[Instant, str] | None = None
    limit: int = 50


Row = Sequence[Any]


def id_at(at: Instant) -> str:
    """Returns what ids made before this moment are smaller than: UUIDv7 begin with their time."""
    digits = f"{max(0, at):012x}"
    return f"{digits[:8]}-{digits[8:]}"


_TENANTS = """
LEFT JOIN LATERAL (
    SELECT tenant FROM rota.jobs_live WHERE id = f.job_id
    UNION ALL SELECT tenant FROM rota.jobs_done WHERE id = f.job_id LIMIT 1
) AS j ON true"""
"""The tenant of each. The limit keeps it a lookup by id: else the planner would read whole days."""


class Reads(Protocol):
    """Connection to SQLite, as far as it is used here: `queries` imports no driver."""

    def execute(self, sql: str, args: tuple[Any, ...]) -> Iterable[Row]:
        """Returns the rows of a result."""
        ...


def sample_sqlite(connection: Reads, query: SampleQuery) -> list[Sampled]:
    """Reads a short range of the index for each sample."""
    of_worker = "" if query.worker_id is None else " AND worker_id = ?"
    worker = () if query.worker_id is None else (query.worker_id,)
    own = "1"
    tenant = () if query.tenant is None else (query.tenant,)
    if tenant:
        own = "EXISTS (SELECT 1 FROM jobs WHERE jobs.id = job_id AND tenant = ?)"
    sql = (
        f"SELECT worker_id, state, count(*), max(id), {own} AS own FROM ("
        f"SELECT id, job_id, worker_id, state FROM executions WHERE id >= ? AND id < ?{of_worker}"
        " ORDER BY id LIMIT ?) GROUP BY worker_id, state, own"
    )
    return [
        read_sample((stretch, *row))
        for stretch, (low, high) in enumerate(pairwise(query.bounds))
        for row in connection.execute(sql, (*tenant, low, high, *worker, query.limit))
    ]


def postgres_sample(query: SampleQuery) -> tuple[str, tuple[Any, ...]]:
    """Returns one statement for all ranges; live and finished executions are in two tables.

    The bounds of the whole add no condition, but let the database leave out the partitions of other
    days before it plans.
    """
    lows, highs = list(query.bounds[:-1]), list(query.bounds[1:])
    args: list[Any] = [lows, highs, query.limit, lows[0], highs[-1]]
    of_worker, own, jobs = "", "true", ""
    if query.worker_id is not None:
        args.append(query.worker_id)
        of_worker = f"AND worker_id = ${len(args)}"
    if query.tenant is not None:
        args.append(query.tenant)
        own, jobs = f"j.tenant = ${len(args)}", _TENANTS
    walks = " UNION ALL ".join(
        f"""(SELECT id, job_id, worker_id, state FROM rota.{table}
             WHERE id >= s.low COLLATE "C" AND id < s.high COLLATE "C"
               AND id >= $4 AND id < $5 {of_worker}
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
    stretch, worker_id, state, count, last, own = row
    return Sampled(stretch, WorkerId(worker_id), ExecutionState(state), count, last, bool(own))
