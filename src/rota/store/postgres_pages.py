"""Finds pages of jobs and executions in PostgreSQL: ids first, span by span, then their bodies.

All statements of a page see one moment, so a job that moves between the tables meanwhile is found
once, where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from rota.core.model import Instant
from rota.store.postgres_connect import Connection
from rota.store.postgres_queries import (
    Span,
    Statement,
    astray_jobs,
    done_executions,
    done_jobs,
    execution_bodies,
    is_any_astray,
    job_bodies,
    job_span,
    labelled_jobs,
    live_executions,
    live_jobs,
    spans,
)
from rota.store.protocol import ExecutionQuery, JobQuery
from rota.store.rows import Row

Within: TypeAlias = Callable[[Span], Statement | None]
"""What finds matches in a span; None: there can be none."""


class Sight(msgspec.Struct, frozen=True):
    """What a search goes by."""

    now: Instant
    """Only says where to look first."""
    shelves: bool = True
    reading: bool = True
    """Whether the schema knows the jobs whose ids tell another time."""


async def find_jobs(connection: Connection, query: JobQuery, sight: Sight) -> list[Row]:
    """Rows of id, life, spec, newest first."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        ids = await _job_ids(connection, query, sight)
        bodies = job_bodies(ids, ("life", "spec"), shelves=sight.shelves)
        return await _in_order(connection, bodies) if ids else []


async def find_job_ids(connection: Connection, query: JobQuery, sight: Sight) -> list[str]:
    """The ids alone."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        return await _job_ids(connection, query, sight)


async def find_executions(connection: Connection, query: ExecutionQuery, now: Instant) -> list[Row]:
    """Rows of id, body, newest first."""
    whole = Span(None, query.before)
    # Those of one job are few: one look everywhere costs less than several.
    parts = iter((whole,)) if query.job_id is not None else spans(whole, now)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await _ids(connection, live_executions(query, query.limit))
        await _walk(
            connection, found, query.limit, parts, lambda s: done_executions(query, s, query.limit)
        )
        ids = _newest(found, query.limit)
        return await _in_order(connection, execution_bodies(ids)) if ids else []


async def _job_ids(connection: Connection, query: JobQuery, sight: Sight) -> list[str]:
    limit = query.limit
    whole = job_span(query, astray=sight.reading)
    found: dict[str, None] = {}
    if not query.labels:
        found = await _ids(connection, live_jobs(query, whole, limit, shelves=sight.shelves))
    by_time = query.created_after is not None or query.created_before is not None
    if by_time and sight.reading:
        probe = is_any_astray(query)
        if await connection.fetchval(probe.sql, *probe.args):
            found |= await _ids(connection, astray_jobs(query, limit))
    parts = spans(whole, sight.now)

    def within(span: Span) -> Statement | None:
        if query.labels:
            return labelled_jobs(query, span, limit, shelves=sight.shelves)
        return done_jobs(query, span, limit)

    await _walk(connection, found, limit, parts, within)
    return _newest(found, limit)


async def _walk(
    connection: Connection,
    found: dict[str, None],
    limit: int,
    parts: Iterator[Span],
    within: Within,
) -> None:
    """Adds to what was found, until no older match can belong to the page."""
    for span in parts:
        statement = within(span)
        if statement is None:
            return
        found |= await _ids(connection, statement)
        if span.low is not None and sum(one >= span.low for one in found) >= limit:
            return


async def _ids(connection: Connection, statement: Statement | None) -> dict[str, None]:
    if statement is None:
        return {}
    return {row[0]: None for row in await connection.fetch(statement.sql, *statement.args)}


def _newest(found: dict[str, None], limit: int) -> list[str]:
    return sorted(found, reverse=True)[:limit]


async def _in_order(connection: Connection, bodies: Statement) -> list[Row]:
    found: Sequence[Any] = await connection.fetch(bodies.sql, *bodies.args)
    return sorted((tuple(row) for row in found), key=_first, reverse=True)


def _first(row: Row) -> Any:
    return row[0]
