"""Reads SQLite's tables in threads of their own, which never wait for the writer's locks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import apsw
import msgspec
from msgspec.structs import replace

from rota.core.model import Execution, ExecutionId, JobId, JobRecord, JobState, KeyRecord
from rota.core.schedule_model import Occurrence
from rota.core.trigger_model import AcceptedEvent, TriggerDecision
from rota.store import event_rows, rows
from rota.store.journal import decode_record
from rota.store.limits import COUNT_ROWS_MAX
from rota.store.protocol import (
    Change,
    Direction,
    Edge,
    ExecutionQuery,
    JobQuery,
    KeyStatus,
    OccurrenceQuery,
    Outline,
    Seq,
    StoreError,
)
from rota.store.protocols.key_desk import FoundKeys, KeyLookup
from rota.store.protocols.queries import (
    EventQuery,
    Page,
    Sampled,
    SampleQuery,
    TriggerDecisionQuery,
)
from rota.store.rows import Row
from rota.store.samples import sample_sqlite
from rota.store.sqlite.connect import fetch, open_reader
from rota.store.sqlite.events import read_accepted_events, search_events, search_trigger_decisions
from rota.store.sqlite.queries import (
    SPILLED,
    search_executions,
    search_jobs,
    search_occurrences,
)

T = TypeVar("T")

_KEYS_AT_ONCE = """
SELECT (SELECT at FROM journal WHERE seq > m.folded_seq ORDER BY seq LIMIT 1),
    k.key, k.fingerprint, k.receipt, k.at
FROM meta m LEFT JOIN keys k ON k.key IN (SELECT value FROM json_each(?))
"""
"""One statement, so one moment: a key is in the tables by then, or its record is not folded yet."""
_STATE = f"iif(state = '{SPILLED}', 'queued', state)"
_json = msgspec.json.Encoder()


class CatchesUp(Protocol):
    """Whoever keeps the tables."""

    async def caught_up(self) -> None:
        """Returns when all that is durable now is in the tables."""
        ...


class Readers(Protocol):
    """Whoever runs what reads the tables."""

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        """What `read` answers."""
        ...

    async def close(self) -> None:
        """Waits for the reads under way."""
        ...


class ReaderThreads:
    """A few threads, each with a connection that can only read."""

    def __init__(self, path: Path, threads: int) -> None:
        self._path = path
        self._own = threading.local()
        self._connections: list[apsw.Connection] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"rota-read-{path.stem}")

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        """What `read` answers, run in one of the threads."""
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
        try:
            connection: apsw.Connection | None = getattr(self._own, "connection", None)
            if connection is None:
                connection = self._own.connection = open_reader(self._path)
                self._connections.append(connection)
            return read(connection)
        except apsw.Error as error:
            raise StoreError(f"cannot read {self._path}: {error}") from error


class SqliteQueryStore:
    """The readers' side of the store on SQLite."""

    def __init__(self, readers: Readers, folding: CatchesUp) -> None:
        self._pool = readers
        self._projection = folding
        self._keys = KeyLookup(self._read_keys)

    async def close(self) -> None:
        """Waits for the reads under way."""
        await self._pool.close()

    async def jobs(self, job_ids: Sequence[JobId]) -> list[JobRecord]:
        """Those that exist."""
        sql = "SELECT id, life, spec FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
        wanted = _json.encode(job_ids).decode()
        return await self._read(lambda c: [rows.job(row) for row in c.execute(sql, (wanted,))])

    async def find_jobs(self, query: JobQuery) -> Page[JobRecord]:
        """A page, newest first."""
        search = search_jobs(query)
        return await self._read(lambda c: _read_page(search.run(c), rows.job))

    async def outlines(self, job_ids: Sequence[JobId]) -> list[Outline]:
        """Those that exist, without what may be large."""
        sql = (
            f"SELECT id, {_STATE}, queue, tenant, name FROM jobs"
            " WHERE id IN (SELECT value FROM json_each(?))"
        )
        wanted = _json.encode(job_ids).decode()
        found = await self._read(lambda c: fetch(c, sql, (wanted,)))
        return [rows.outline(row) for row in found]

    async def find_job_ids(self, query: JobQuery) -> Page[JobId]:
        """The ids of a page."""
        search = replace(search_jobs(query), columns="id")
        found = await self._read(search.run)
        return _read_page(found, lambda row: JobId(row[0]))

    async def count_jobs(self, tenant: str) -> dict[JobState, int]:
        """How many of a tenant are in which state."""
        sql = (
            f"SELECT {_STATE} AS told, count(*)"
            " FROM (SELECT state FROM jobs WHERE tenant = ? LIMIT ?) GROUP BY told"
        )
        found = await self._read(lambda c: fetch(c, sql, (tenant, COUNT_ROWS_MAX)))
        return {JobState(state): count for state, count in found}

    async def executions(self, execution_ids: Sequence[ExecutionId]) -> list[Execution]:
        """Those that exist."""
        sql = "SELECT body FROM executions WHERE id IN (SELECT value FROM json_each(?))"
        wanted = _json.encode(execution_ids).decode()
        return await self._read(
            lambda c: [rows.execution(row) for row in c.execute(sql, (wanted,))]
        )

    async def find_executions(self, query: ExecutionQuery) -> Page[Execution]:
        """A page, newest first."""
        search = search_executions(query)
        return await self._read(lambda c: _read_page(search.run(c), rows.execution))

    async def sample_executions(self, query: SampleQuery) -> list[Sampled]:
        """What the first executions of each stretch are."""
        return await self._read(lambda c: sample_sqlite(c, query))

    async def edges(self, job_ids: Sequence[JobId], direction: Direction) -> list[Edge]:
        """All dependencies that lead into or out of these jobs."""
        wanted = _json.encode(job_ids).decode()
        if direction is Direction.UPSTREAM:
            return await self._read(lambda c: _upstream(c, wanted))
        return await self._read(lambda c: _downstream(c, wanted))

    async def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """A page of a schedule's ledger, newest first."""
        sql, args = search_occurrences(query)
        return await self._read(lambda c: [rows.occurrence(row) for row in c.execute(sql, args)])

    async def accepted_events(self, keys: Sequence[str]) -> list[AcceptedEvent]:
        """Those of these events that were accepted."""
        return await self._read(lambda c: read_accepted_events(c, keys))

    async def find_events(self, query: EventQuery) -> list[AcceptedEvent]:
        """A page of accepted events, newest first."""
        sql, args = search_events(query)
        return await self._read(
            lambda c: [event_rows.accepted_event(row) for row in c.execute(sql, args)]
        )

    async def find_trigger_decisions(self, query: TriggerDecisionQuery) -> list[TriggerDecision]:
        """A page of a trigger's ledger, newest first."""
        sql, args = search_trigger_decisions(query)
        return await self._read(
            lambda c: [event_rows.trigger_decision(row) for row in c.execute(sql, args)]
        )

    async def key(self, key: str) -> KeyRecord | None:
        """What was answered to an idempotency key."""
        sql = "SELECT key, fingerprint, receipt, at FROM keys WHERE key = ?"
        found = await self._read(lambda c: fetch(c, sql, (key,)))
        return rows.key(found[0]) if found else None

    async def key_at_once(self, key: str) -> KeyStatus:
        """The same without waiting for the fold."""
        return await self._keys.look(key)

    async def keys_after(self, key: str, limit: int) -> list[str]:
        """The next keys."""
        sql = "SELECT key FROM keys WHERE key > ? ORDER BY key LIMIT ?"
        read = self._pool.run if key else self._read
        return [row[0] for row in await read(lambda c: fetch(c, sql, (key, limit)))]

    async def _read_keys(self, keys: Sequence[str]) -> FoundKeys:
        wanted = _json.encode(keys).decode()
        return rows.keys_found(await self._pool.run(lambda c: fetch(c, _KEYS_AT_ONCE, (wanted,))))

    async def changes_after(self, seq: Seq, limit: int) -> list[Change]:
        """All changes of the next at most `limit` journal records after `seq`."""
        return await self._pool.run(lambda c: _changes(c, seq, limit))

    async def head(self) -> tuple[Seq, Seq]:
        """The oldest and the newest journal position kept."""
        # Two statements' worth in one: min and max asked together would scan.
        sql = "SELECT (SELECT min(seq) FROM journal), (SELECT max(seq) FROM journal)"
        oldest, newest = (await self._pool.run(lambda c: fetch(c, sql)))[0]
        return Seq(oldest or 0), Seq(newest or 0)

    async def _read(self, read: Callable[[apsw.Connection], T]) -> T:
        await self._projection.caught_up()
        return await self._pool.run(read)


def _read_page(found: Page[Row], read: Callable[[Row], T]) -> Page[T]:
    return Page(map(read, found), found.rest)


def _upstream(connection: apsw.Connection, job_ids: str) -> list[Edge]:
    found = connection.execute(
        "SELECT id, spec FROM jobs WHERE id IN (SELECT value FROM json_each(?))", (job_ids,)
    )
    return [edge for id_, data in found for edge in rows.edges_upstream(id_, rows.spec(data))]


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
