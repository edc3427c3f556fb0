"""Raw limit: the rows of whole lives written by hand, with no scheduler and no HTTP.

First the product's own store writes some lives, so that the rows, their bytes and the indexes are
exactly those that it keeps. Then the same are written again by the bare driver, in batches of
1,000, one connection, two ways: *journal and projection* appends the same journal records, each
durable, and puts each job and execution into its table once, in its final state; *in place* inserts
a job, updates it when it starts and when it ends, and does the same with its execution, each step
durable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import psutil

from benchmarks.lives import store_lives
from rota.core.outcome import AnyWrite
from rota.store.journal import encode_record

BATCH = 1_000
RECORDS = 2
"""Of the journal, for a batch: submitted; claimed, with the ends of the batch before."""
Cells = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Material:
    bodies: Sequence[bytes]
    jobs: Sequence[Cells]
    executions: Sequence[Cells]
    tables: Sequence[str]
    """SQLite: how to make the tables and indexes. PostgreSQL takes them from the product's."""

    @property
    def journal_bytes(self) -> float:
        return sum(map(len, self.bodies)) / len(self.jobs)

    def ended_by(self, seq: int) -> int | None:
        """The first job of the batch that ended with this record, or None."""
        if seq == len(self.bodies) - 1:
            return len(self.jobs) - BATCH
        batch = seq // RECORDS - 2
        return batch * BATCH if seq % RECORDS == 0 and batch >= 0 else None


@dataclass(frozen=True, slots=True)
class Taken:
    """Elapsed time, and processor time of the database and of the driver."""

    seconds: float
    cpu_s: float


# PostgreSQL


async def postgres_material(dsn: str, turns: Sequence[Sequence[AnyWrite]]) -> Material:
    await store_lives(None, dsn, turns)
    connection = await asyncpg.connect(dsn)
    try:
        jobs = await connection.fetch("SELECT * FROM rota.jobs_done ORDER BY id")
        executions = await connection.fetch("SELECT * FROM rota.executions_done ORDER BY job_id")
        await connection.execute("DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw")
    finally:
        await connection.close()
    bodies = [encode_record(writes) for writes in turns]
    return Material(bodies, [tuple(x) for x in jobs], [tuple(x) for x in executions], ())


@asynccontextmanager
async def _timed(dsn: str) -> AsyncIterator[tuple[asyncpg.Connection, Callable[[], Taken]]]:
    """Opens a connection, and measures the time since, of its backend and of this process."""
    connection = await asyncpg.connect(dsn)
    try:
        backend = psutil.Process(await connection.fetchval("SELECT pg_backend_pid()"))
        began, ours = time.perf_counter(), time.process_time()
        before = backend.cpu_times()

        def taken() -> Taken:
            now = backend.cpu_times()
            theirs = now.user + now.system - before.user - before.system
            cpu_s = theirs + time.process_time() - ours
            return Taken(time.perf_counter() - began, cpu_s)

        yield connection, taken
    finally:
        await connection.close()


async def _fresh_tables(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            """
            DROP TABLE IF EXISTS raw.journal, raw.jobs, raw.executions;
            CREATE TABLE raw.journal (seq bigint PRIMARY KEY, epoch bigint NOT NULL,
                at bigint NOT NULL, body bytea NOT NULL);
            CREATE TABLE raw.jobs (LIKE rota.jobs_done INCLUDING ALL);
            CREATE TABLE raw.executions (LIKE rota.executions_done INCLUDING ALL);
            ALTER TABLE raw.jobs SET (fillfactor = 70);
            ALTER TABLE raw.executions SET (fillfactor = 70);
            """
        )
    finally:
        await connection.close()


async def postgres_projected(dsn: str, material: Material) -> Taken:
    await _fresh_tables(dsn)
    async with _timed(dsn) as (connection, taken):
        insert = await connection.prepare("INSERT INTO raw.journal VALUES ($1, 1, 0, $2)")
        for seq, body in enumerate(material.bodies):
            await insert.fetchval(seq, body)
            if (ended := material.ended_by(seq)) is not None:
                await _copy(connection, material, ended)
        return taken()


async def _copy(connection: asyncpg.Connection, material: Material, first: int) -> None:
    async with connection.transaction():
        await connection.execute("SET LOCAL synchronous_commit = off")
        for table in ("jobs", "executions"):
            rows = getattr(material, table)[first : first + BATCH]
            await connection.copy_records_to_table(table, schema_name="raw", records=rows)


_START = """
UPDATE raw.jobs j SET state = 'running', life = v.life
FROM unnest($1::text[], $2::bytea[]) v (id, life) WHERE j.id = v.id
"""
_END = """
UPDATE raw.jobs j SET state = v.state, life = v.life, finished_at = v.finished_at
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::int8[]) v (id, state, life, finished_at)
WHERE j.id = v.id
"""
_END_EXECUTION = """
UPDATE raw.executions x SET state = v.state, body = v.body
FROM unnest($1::text[], $2::text[], $3::bytea[]) v (id, state, body) WHERE x.id = v.id
"""


async def postgres_in_place(dsn: str, material: Material) -> Taken:
    await _fresh_tables(dsn)
    async with _timed(dsn) as (connection, taken):
        for first in range(0, len(material.jobs), BATCH):
            jobs = material.jobs[first : first + BATCH]
            await _live(connection, jobs, material.executions[first : first + BATCH])
        return taken()


async def _live(
    connection: asyncpg.Connection, jobs: Sequence[Cells], runs: Sequence[Cells]
) -> None:
    ids, states, *_ = zip(*jobs, strict=True)
    ends, lives = [job[8] for job in jobs], [job[9] for job in jobs]
    waiting = [(job[0], "queued", *job[2:8], None, *job[9:]) for job in jobs]
    claimed = [(*run[:3], "claimed", run[4]) for run in runs]
    await connection.copy_records_to_table("jobs", schema_name="raw", records=waiting)
    async with connection.transaction():
        await connection.execute(_START, ids, lives)
        await connection.copy_records_to_table("executions", schema_name="raw", records=claimed)
    async with connection.transaction():
        await connection.execute(_END, ids, states, lives, ends)
        bodies = [run[4] for run in runs]
        ended = [run[3] for run in runs]
        await connection.execute(_END_EXECUTION, [run[0] for run in runs], ended, bodies)


# SQLite


def sqlite_material(place: Path, turns: Sequence[Sequence[AnyWrite]]) -> Material:
    asyncio.run(store_lives(place, None, turns))
    file = place / "rota.db"
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [
        sql
        for (sql,) in connection.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name IN ('jobs', 'executions')"
            " AND sql IS NOT NULL ORDER BY type = 'index'"
        )
    ]
    jobs = list(connection.execute("SELECT * FROM jobs ORDER BY id"))
    executions = list(connection.execute("SELECT * FROM executions ORDER BY job_id"))
    connection.close()
    return Material([encode_record(writes) for writes in turns], jobs, executions, tables)


def sqlite_projected(place: Path, material: Material) -> Taken:
    """Writes journal and projection. Commits of the projection are durable, too, because one
    connection has one setting."""
    connection = apsw.Connection(str(place / "raw.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE journal (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    for sql in material.tables:
        connection.execute(sql)
    inserts = [
        (f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        for table, rows in (("jobs", material.jobs), ("executions", material.executions))
    ]
    began, ours = time.perf_counter(), time.process_time()
    for seq, body in enumerate(material.bodies):
        connection.execute("INSERT INTO journal (body) VALUES (?)", (body,))
        if (ended := material.ended_by(seq)) is not None:
            with connection:
                for sql, rows in inserts:
                    connection.executemany(sql, rows[ended : ended + BATCH])
    taken = Taken(time.perf_counter() - began, time.process_time() - ours)
    connection.close()
    return taken
