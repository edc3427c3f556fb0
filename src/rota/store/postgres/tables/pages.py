"""Finds pages of jobs and executions in PostgreSQL: ids first, span by span, then their bodies.

All statements of a page see one moment, so a job that moves between the tables meanwhile is found
once, where it was. A search that has gone through as much as its query allows ends there: the page
says where the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rota.core.model import Instant
from rota.store.limits import SEARCH_FIRST_UNITS, SEARCH_SAMPLE, SEARCH_STEP_UNITS
from rota.store.postgres.connect import Connection
from rota.store.postgres.tables.queries import (
    astray_jobs,
    execution_bodies,
    execution_search,
    id_ranges,
    is_any_astray,
    job_bodies,
    job_id_range,
    job_search,
)
from rota.store.postgres.tables.search import (
    FilterSearch,
    IdRange,
    Route,
    SearchStep,
    Statement,
    choose,
    cost,
    matches,
    plain,
    reaches,
    time_in,
)
from rota.store.protocol import ExecutionQuery, JobQuery
from rota.store.protocols.queries import Page
from rota.store.rows import Row


async def find_jobs(connection: Connection, query: JobQuery, now: Instant) -> Page[Row]:
    """Rows of id, life, spec, newest first; `now` only says where to look first."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        ids = await _job_ids(connection, query, now)
        bodies = job_bodies(ids, ("life", "spec"))
        return Page(await _in_order(connection, bodies) if ids else (), ids.rest)


async def find_job_ids(connection: Connection, query: JobQuery, now: Instant) -> Page[str]:
    """The ids alone."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        return await _job_ids(connection, query, now)


async def find_executions(connection: Connection, query: ExecutionQuery, now: Instant) -> Page[Row]:
    """Rows of id, body, newest first."""
    whole = IdRange(None, query.before)
    # Those of one job are few: one look everywhere costs less than several.
    parts = iter((whole,)) if query.job_id is not None else id_ranges(whole, now)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        hunt = _PageSearch(connection, execution_search(query), query.limit, query.look, now)
        ids = await hunt.run(parts)
        return Page(await _in_order(connection, execution_bodies(ids)) if ids else (), ids.rest)


async def _job_ids(connection: Connection, query: JobQuery, now: Instant) -> Page[str]:
    search = job_search(query)
    hunt = _PageSearch(connection, search, query.limit, query.look, now)
    if query.created_after is not None or query.created_before is not None:
        probe = is_any_astray(query)
        if await connection.fetchval(probe.sql, *probe.args):
            await hunt.take(astray_jobs(query, search, query.limit))
    return await hunt.run(id_ranges(job_id_range(query), now))


class _PageSearch:
    """One page being found."""

    def __init__(
        self,
        connection: Connection,
        search: FilterSearch,
        limit: int,
        look: int | None,
        now: Instant,
    ) -> None:
        self._connection = connection
        self._search = search
        self._limit = limit
        self._work_max = look
        self._now = now
        self._found: dict[str, None] = {}
        self._spent = 0
        self._step = min(max(SEARCH_FIRST_UNITS, limit), SEARCH_STEP_UNITS)
        self._route: Route | None = None

    async def take(self, statement: Statement) -> None:
        """Adds what it finds."""
        rows = await self._connection.fetch(statement.sql, *statement.args)
        self._found |= {row[0]: None for row in rows}

    async def run(self, parts: Iterator[IdRange]) -> Page[str]:
        """Goes on until no older match can belong to the page, or enough was looked at."""
        for span in parts:
            if self._search.is_plain:
                await self.take(plain(self._search, span, self._limit))
            elif (rest := await self._go_through(span)) is not None:
                return Page(self._newest(rest), rest)
            if self._is_full(span.low):
                break
        return Page(self._newest(""))

    async def _go_through(self, span: IdRange) -> str | None:
        """Step by step; where it ended, if that was before the span's end."""
        if self._route is None or self._route.is_rare:
            self._route = await self._choose(span)
        route, high = self._route, span.high
        while route is not None:
            step = SearchStep(
                route, IdRange(span.low, high), route.entries(self._units()), self._limit
            )
            low = await self._walk(step)
            if low is None or self._is_full(low):
                return None
            if self._work_max is not None and self._spent >= self._work_max:
                return low
            high = low
        return None

    async def _choose(self, span: IdRange) -> Route | None:
        """None: one of the filters has nothing here."""
        walkable = self._search.walkable
        if len(walkable) == 1:
            return Route(walkable, cost(self._search, walkable[0]))
        asked = reaches(self._search, walkable, span, SEARCH_SAMPLE)
        (found,) = await self._connection.fetch(asked.sql, *asked.args)
        oldest, counts = tuple(found)[::2], tuple(found)[1::2]
        self._spent += sum(counts)
        if not all(counts):
            return None
        reached = [
            one if entries == SEARCH_SAMPLE else None
            for one, entries in zip(oldest, counts, strict=True)
        ]
        told = None if span.high is None else time_in(span.high)
        return choose(self._search, reached, self._now if told is None else told)

    async def _walk(self, step: SearchStep) -> str | None:
        """Takes what it finds; down to where that is all there is, or None: to the span's end."""
        asked = matches(self._search, step)
        rows = await self._connection.fetch(asked.sql, *asked.args)
        self._found |= {one: None for one, entries in rows if entries is None}
        ends = [(oldest, entries) for oldest, entries in rows if entries is not None]
        self._spent += step.route.cost * max((entries for _, entries in ends), default=0)
        return max((one for one, entries in ends if entries == step.entries), default=None)

    def _units(self) -> int:
        """Of the next step: small ones first, for most pages are full soon."""
        step = self._step
        self._step = min(4 * step, SEARCH_STEP_UNITS)
        return step if self._work_max is None else max(1, min(step, self._work_max))

    def _is_full(self, low: str | None) -> bool:
        return low is not None and sum(one >= low for one in self._found) >= self._limit

    def _newest(self, low: str) -> list[str]:
        return sorted((one for one in self._found if one >= low), reverse=True)[: self._limit]


async def _in_order(connection: Connection, bodies: Statement) -> list[Row]:
    found: Sequence[Any] = await connection.fetch(bodies.sql, *bodies.args)
    return sorted((tuple(row) for row in found), key=_first, reverse=True)


def _first(row: Row) -> Any:
    return row[0]
