"""Queries of SQLite's tables in reader threads, which never wait for the writer's locks.

A page of a filtered list is found without reading the whole table. Every indexed filter is a
*facet*: it yields its matching ids, newest first, straight from its index. A page walks down the
rarest facet and checks the other filters on the rows found there, no further than its query says.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import apsw
import msgspec
from msgspec.structs import replace

from rota.core.model import Execution, ExecutionId, JobId, JobRecord, JobState, KeyRecord
from rota.core.schedule_model import Occurrence
from rota.core.trigger_model import AcceptedEvent, TriggerDecision
from rota.store import rows
from rota.store.batched_lookup import FoundKeys, KeyLookup, KeyStatus
from rota.store.damage import WholePages
from rota.store.journal import decode_record
from rota.store.limits import COUNT_ROWS_MAX, LOOKUP_COST, PROBE_IDS, SCAN_IDS_MAX
from rota.store.projection.quarantine import overlay_executions, overlay_page
from rota.store.protocol import Change, Direction, Edge, Outline, Seq, StoreError
from rota.store.queries import (
    EventQuery,
    ExecutionQuery,
    JobQuery,
    OccurrenceQuery,
    Page,
    Sampled,
    SampleQuery,
    TriggerDecisionQuery,
    sample_sqlite,
)
from rota.store.rows import Row
from rota.store.sqlite.connect import (
    SQLITE_ERRORS,
    as_read_error,
    fetch,
    fetch_readable,
    open_reader,
)
from rota.store.sqlite.database_file import DatabaseFile
from rota.store.sqlite.events import read_accepted_events, search_events, search_trigger_decisions
from rota.store.sqlite.set_aside import read_set_aside

PAST_ALL_IDS = "\U0010ffff"
"""A text that sorts after every id."""

SPILLED = "shelved"
"""What the column `state` says of a spilled job, which is queued."""

_HAS_LABEL = """
EXISTS (SELECT 1 FROM labels WHERE key = ? AND value = ? AND labels.job_id = jobs.id)
"""


class Facet(msgspec.Struct, frozen=True):
    """Indexed filter: a select for each value, whose merged ids are its matches."""

    select: str
    """Ends in a WHERE clause; its column is `id`."""
    values: tuple[Row, ...]

    def ids(self, connection: apsw.Connection, before: str, limit: int) -> list[str]:
        """Returns the next `limit` matches before `before`, newest first."""
        # SQLite merges the sorted halves of a UNION ALL lazily; an IN would sort all matches.
        each = f"{self.select} AND id < ?"
        sql = " UNION ALL ".join([each] * len(self.values))
        args = [argument for value in self.values for argument in (*value, before)]
        found = connection.execute(f"{sql} ORDER BY id DESC LIMIT ?", (*args, limit))
        return [row[0] for row in found]

    def rarity(self, connection: apsw.Connection) -> int:
        """Counts the matches, up to PROBE_IDS."""
        each = f"SELECT count(*) FROM ({self.select} LIMIT {PROBE_IDS})"
        return sum(connection.execute(each, value).get for value in self.values)


class FacetSearch(msgspec.Struct, frozen=True):
    """Search for one page along the rarest facet."""

    table: str
    columns: str
    facets: tuple[Facet, ...]
    where: tuple[str, ...]
    args: tuple[Any, ...]
    before: str
    limit: int
    look: int | None

    def run(self, connection: apsw.Connection) -> Page[Row]:
        """Returns the page's rows, newest first, all as of one moment."""
        connection.execute("BEGIN")
        try:
            return self._page(connection)
        finally:
            connection.execute("COMMIT")

    def _page(self, connection: apsw.Connection) -> Page[Row]:
        facet = self._rarest(connection)
        found: Page[Row] = Page()
        before, size = self.before, self.limit
        left = None if self.look is None else self.look // LOOKUP_COST
        while True:
            ids = facet.ids(connection, before, size)
            found += self._matching(connection, ids, self.limit - len(found))
            if len(ids) < size or len(found) == self.limit:
                return found
            before, size = ids[-1], min(SCAN_IDS_MAX, 2 * size)
            if left is not None:
                left -= len(ids)
                if left <= 0:
                    found.rest = before
                    return found
                size = min(size, left)

    def _rarest(self, connection: apsw.Connection) -> Facet:
        if not self.facets:
            return Facet(f"SELECT id FROM {self.table} WHERE true", ((),))
        if len(self.facets) == 1:
            return self.facets[0]
        return min(self.facets, key=lambda facet: facet.rarity(connection))

    def _matching(self, connection: apsw.Connection, ids: list[str], limit: int) -> list[Row]:
        where = " AND ".join(("id IN (SELECT value FROM json_each(?))", *self.where))
        return fetch_readable(
            connection,
            self.columns,
            f"FROM {self.table} WHERE {where} ORDER BY id DESC LIMIT ?",
            (_json.encode(ids).decode(), *self.args, limit),
        )


def search_jobs(query: JobQuery) -> FacetSearch:
    """Returns the search for rows of id, life, spec."""
    facets = [_label_facet(label) for label in query.labels]
    where = [_HAS_LABEL] * len(query.labels)
    args: list[Any] = [part for label in query.labels for part in label]
    for column in ("name", "queue", "tenant"):
        value = getattr(query, column)
        if value is not None:
            facets.append(_column_facet("jobs", column, (value,)))
            where.append(f"{column} = ?")
            args.append(value)
    if query.states:
        states = tuple(state.value for state in query.states)
        if JobState.QUEUED in query.states:
            states = (*states, SPILLED)
        facets.append(_column_facet("jobs", "state", states))
        where.append(f"state IN ({', '.join('?' * len(states))})")
        args += states
    for clause, bound in _unindexed(query):
        where.append(clause)
        args.append(bound)
    before = PAST_ALL_IDS if query.before is None else query.before
    if query.after is not None:
        facets.append(_range_facet(query.after, before))
        where.append("id > ?")
        args.append(query.after)
    return FacetSearch(
        table="jobs",
        columns="id, life, spec",
        facets=tuple(facets),
        where=tuple(where),
        args=tuple(args),
        before=before,
        limit=query.limit,
        look=query.look,
    )


def _unindexed(query: JobQuery) -> list[tuple[str, int]]:
    """Returns the conditions that have no index."""
    asked = (
        ("priority = ?", query.priority),
        ("priority <> ?", query.not_priority),
        ("created_at > ?", query.created_after),
        ("created_at < ?", query.created_before),
    )
    return [(clause, bound) for clause, bound in asked if bound is not None]


def search_executions(query: ExecutionQuery) -> FacetSearch:
    """Returns the search for rows of id, body."""
    facets, where, args = [], [], []
    for column, value in (("job_id", query.job_id), ("worker_id", query.worker_id)):
        if value is not None:
            facets.append(_column_facet("executions", column, (value,)))
            where.append(f"{column} = ?")
            args.append(str(value))
    if query.states:
        states = tuple(state.value for state in query.states)
        facets.append(_column_facet("executions", "state", states))
        where.append(f"state IN ({', '.join('?' * len(states))})")
        args += states
    before = PAST_ALL_IDS if query.before is None else query.before
    return FacetSearch(
        table="executions",
        columns="id, body",
        facets=tuple(facets),
        where=tuple(where),
        args=tuple(args),
        before=before,
        limit=query.limit,
        look=query.look,
    )


def search_occurrences(query: OccurrenceQuery) -> tuple[str, tuple[Any, ...]]:
    """Returns the statement for rows of schedule id, nominal, body, read along the primary key."""
    where, args = ["schedule_id = ?"], [query.schedule_id, *(d.value for d in query.decisions)]
    if query.decisions:
        where.append(f"decision IN ({', '.join('?' * len(query.decisions))})")
    bounds: list[Any] = []
    for clause, bound in (("nominal > ?", query.after), ("nominal < ?", query.before)):
        if bound is not None:
            where.append(clause)
            bounds.append(bound)
    page = "ORDER BY nominal DESC LIMIT ?"
    sql = f"SELECT schedule_id, nominal, body FROM occurrences WHERE {' AND '.join(where)} {page}"
    return sql, (*args, *bounds, query.limit)


def _column_facet(table: str, column: str, values: tuple[str, ...]) -> Facet:
    index = f"{table}_by_{column}"
    distinct = dict.fromkeys(values)
    return Facet(
        f"SELECT id FROM {table} INDEXED BY {index} WHERE {column} = ?",
        tuple((value,) for value in distinct),
    )


def _range_facet(after: str, before: str) -> Facet:
    # The table is in the order of its ids: a range of them needs no index.
    return Facet("SELECT id FROM jobs WHERE id > ? AND id < ?", ((after, before),))


def _label_facet(label: tuple[str, str]) -> Facet:
    # Named `id`, so that the bound of a page is the same text for every facet.
    labels = "(SELECT job_id AS id, key, value FROM labels)"
    return Facet(f"SELECT id FROM {labels} WHERE key = ? AND value = ?", (label,))


T = TypeVar("T")

_KEYS_AT_ONCE = """
SELECT (SELECT at FROM journal WHERE seq > m.folded_seq ORDER BY seq LIMIT 1),
    k.key, k.fingerprint, k.receipt, k.at
FROM projection_shards m LEFT JOIN keys k ON k.key IN (SELECT value FROM json_each(?))
WHERE m.shard = 0
"""
"""One statement sees one moment: a key is in the tables, or its record is not projected yet."""
_STATE = f"iif(state = '{SPILLED}', 'queued', state)"
_json = msgspec.json.Encoder()


class CatchesUp(Protocol):
    """Projection that readers can wait for."""

    async def caught_up(self) -> None:
        """Returns when all that is durable now is in the tables."""
        ...


class Readers(Protocol):
    """Runner of reads of the tables."""

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        """Returns what `read` returns."""
        ...

    async def close(self) -> None:
        """Waits for the reads under way."""
        ...


class ReaderThreads:
    """Pool of threads, each with a connection that can only read."""

    def __init__(self, file: DatabaseFile, threads: int) -> None:
        self._file = file
        self._own = threading.local()
        self._connections: list[apsw.Connection] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix=f"rota-read-{file.path.stem}"
        )

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        if self._closed:
            raise StoreError("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, read)

    async def close(self) -> None:
        """Waits for the reads under way."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._connections:
            connection.close()

    def _read(self, read: Callable[[apsw.Connection], T]) -> T:
        self._file.check()
        try:
            connection: apsw.Connection | None = getattr(self._own, "connection", None)
            if connection is None:
                connection = self._own.connection = open_reader(self._file.path)
                self._connections.append(connection)
            return read(connection)
        except SQLITE_ERRORS as error:
            raise as_read_error(error, f"cannot read {self._file.path}") from error


class SqliteQueryStore:
    """Queries of the tables on SQLite."""

    def __init__(self, readers: Readers, projection: CatchesUp) -> None:
        self._pool = readers
        self._projection = projection
        self._keys = KeyLookup(self._read_keys)
        self._pages = WholePages()

    async def close(self) -> None:
        await self._pool.close()

    async def jobs(self, job_ids: Sequence[JobId]) -> list[JobRecord]:
        return await self._read(lambda c: _read_jobs(c, job_ids))

    async def find_jobs(self, query: JobQuery) -> Page[JobRecord]:
        return await self._pages.read(query, self._find_jobs, rows.job, itemgetter(0))

    async def _find_jobs(self, query: JobQuery) -> Page[Row]:
        return await self._read(search_jobs(query).run)

    async def outlines(self, job_ids: Sequence[JobId]) -> list[Outline]:
        return await self._read(lambda c: _read_outlines(c, job_ids))

    async def find_job_ids(self, query: JobQuery) -> Page[JobId]:
        search = replace(search_jobs(query), columns="id")
        found = await self._read(search.run)
        return Page((JobId(row[0]) for row in found), found.rest)

    async def count_jobs(self, tenant: str) -> dict[JobState, int]:
        sql = (
            f"SELECT {_STATE} AS shown, count(*)"
            " FROM (SELECT state FROM jobs WHERE tenant = ? LIMIT ?) GROUP BY shown"
        )
        found = await self._read(lambda c: fetch(c, sql, (tenant, COUNT_ROWS_MAX)))
        return {JobState(state): count for state, count in found}

    async def executions(self, execution_ids: Sequence[ExecutionId]) -> list[Execution]:
        return await self._read(lambda c: _read_executions(c, execution_ids))

    async def find_executions(self, query: ExecutionQuery) -> Page[Execution]:
        aside = None
        if query.job_id is not None:
            of_job = [query.job_id]
            aside = (await self._read(lambda c: read_set_aside(c, of_job))).get(query.job_id)
        if aside is None:
            return await self._find_executions(query)
        longer = replace(query, limit=query.limit + len(aside.executions))
        return overlay_page(await self._find_executions(longer), query, aside)

    async def _find_executions(self, query: ExecutionQuery) -> Page[Execution]:
        return await self._pages.read(
            query,
            lambda asked: self._read(search_executions(asked).run),
            rows.execution,
            itemgetter(0),
        )

    async def sample_executions(self, query: SampleQuery) -> list[Sampled]:
        return await self._read(lambda c: sample_sqlite(c, query))

    async def edges(self, job_ids: Sequence[JobId], direction: Direction) -> list[Edge]:
        wanted = _json.encode(job_ids).decode()
        if direction is Direction.UPSTREAM:
            return await self._read(lambda c: _upstream(c, wanted))
        return await self._read(lambda c: _downstream(c, wanted))

    async def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        return await self._pages.read(
            query,
            lambda asked: self._page(*search_occurrences(asked)),
            rows.occurrence,
            itemgetter(1),
        )

    async def accepted_events(self, keys: Sequence[str]) -> list[AcceptedEvent]:
        return await self._read(lambda c: read_accepted_events(c, keys))

    async def find_events(self, query: EventQuery) -> list[AcceptedEvent]:
        return await self._pages.read(
            query,
            lambda asked: self._page(*search_events(asked)),
            rows.accepted_event,
            itemgetter(2, 0),
        )

    async def find_trigger_decisions(self, query: TriggerDecisionQuery) -> list[TriggerDecision]:
        return await self._pages.read(
            query,
            lambda asked: self._page(*search_trigger_decisions(asked)),
            rows.trigger_decision,
            itemgetter(1),
        )

    async def _page(self, sql: str, args: tuple[Any, ...]) -> Page[Row]:
        return await self._read(lambda c: Page(fetch(c, sql, args)))

    async def key(self, key: str) -> KeyRecord | None:
        sql = "SELECT key, fingerprint, receipt, at FROM keys WHERE key = ?"
        found = await self._read(lambda c: fetch(c, sql, (key,)))
        return rows.key(found[0]) if found else None

    async def key_at_once(self, key: str) -> KeyStatus:
        return await self._keys.look(key)

    async def keys_after(self, key: str, limit: int) -> list[str]:
        sql = "SELECT key FROM keys WHERE key > ? ORDER BY key LIMIT ?"
        read = self._pool.run if key else self._read
        return [row[0] for row in await read(lambda c: fetch(c, sql, (key, limit)))]

    async def _read_keys(self, keys: Sequence[str]) -> FoundKeys:
        wanted = _json.encode(keys).decode()
        return rows.keys_found(await self._pool.run(lambda c: fetch(c, _KEYS_AT_ONCE, (wanted,))))

    async def changes_after(self, seq: Seq, limit: int) -> list[Change]:
        return await self._pool.run(lambda c: _changes(c, seq, limit))

    async def head(self) -> tuple[Seq, Seq]:
        # Two subqueries: min and max in one SELECT would scan the table.
        sql = "SELECT (SELECT min(seq) FROM journal), (SELECT max(seq) FROM journal)"
        oldest, newest = (await self._pool.run(lambda c: fetch(c, sql)))[0]
        return Seq(oldest or 0), Seq(newest or 0)

    async def _read(self, read: Callable[[apsw.Connection], T]) -> T:
        await self._projection.caught_up()
        return await self._pool.run(read)


def _read_jobs(connection: apsw.Connection, job_ids: Sequence[JobId]) -> list[JobRecord]:
    aside = read_set_aside(connection, job_ids)
    sql = "SELECT id, life, spec FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
    found = connection.execute(sql, (_json.encode(job_ids).decode(),))
    plain = [rows.job(row) for row in found if row[0] not in aside]
    return plain + [job for one in aside.values() for job in one.shown]


def _read_outlines(connection: apsw.Connection, job_ids: Sequence[JobId]) -> list[Outline]:
    aside = read_set_aside(connection, job_ids)
    found = connection.execute(
        f"SELECT id, {_STATE}, queue, tenant, name FROM jobs"
        " WHERE id IN (SELECT value FROM json_each(?))",
        (_json.encode(job_ids).decode(),),
    )
    plain = [rows.outline(row) for row in found if row[0] not in aside]
    return plain + [rows.outline_of(job) for one in aside.values() for job in one.shown]


def _read_executions(
    connection: apsw.Connection, execution_ids: Sequence[ExecutionId]
) -> list[Execution]:
    aside = read_set_aside(connection)
    sql = "SELECT id, body FROM executions WHERE id IN (SELECT value FROM json_each(?))"
    wanted = _json.encode(execution_ids).decode()
    found = [rows.execution(row) for row in connection.execute(sql, (wanted,))]
    return overlay_executions(execution_ids, found, aside) if aside else found


def _upstream(connection: apsw.Connection, job_ids: str) -> list[Edge]:
    found = connection.execute(
        "SELECT id, spec FROM jobs WHERE id IN (SELECT value FROM json_each(?))", (job_ids,)
    )
    return rows.edges_above(found)


def _downstream(connection: apsw.Connection, job_ids: str) -> list[Edge]:
    found = connection.execute(
        "SELECT parent, child, condition FROM edges"
        " WHERE parent IN (SELECT value FROM json_each(?))",
        (job_ids,),
    )
    return [rows.edge(row) for row in found]


def _changes(connection: apsw.Connection, after: Seq, limit: int) -> list[Change]:
    found = connection.execute(
        "SELECT seq, at, body FROM journal WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
    )
    return [
        Change(seq, index, at, write)
        for seq, at, body in found
        for index, write in enumerate(decode_record(body))
    ]
