"""Finished jobs by the million, written straight into PostgreSQL's tables.

Nobody can wait for ten million jobs to be run. The rows are made by the store's own functions, and
each day's partition is filled apart, then attached, as the store attaches it. Afterwards the tables
are vacuumed and analysed, which autovacuum does while they grow.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import asyncpg
import msgspec

from benchmarks.synthetic_jobs import DAY_MS, DAYS, SyntheticJobs, Tables, Trade
from rota.core.model import RuntimeStats, UsageDay, UsageStats, WorkerState
from rota.store.postgres.partitions import DAILY, Daily
from rota.store.rows import worker_row

CHUNK = 20_000
"""Jobs made and copied at a time."""
WRITERS = 2
_OF_DAY = {daily.table: daily for daily in DAILY}
_FILLED = ("jobs_done", "executions_done", "labels", "edges")
_JOB = ("id", "state", "lives", "queue", "tenant", "name", "priority", "created_at", "finished_at",
        "life", "spec")  # fmt: skip
_COLUMNS = {
    "jobs_done": _JOB,
    "jobs_live": _JOB,
    "executions_done": ("id", "job_id", "worker_id", "state", "body"),
    "labels": ("key", "value", "job_id"),
    "edges": ("parent", "child", "condition"),
}


@dataclass(frozen=True, slots=True)
class Day:
    dsn: str
    number: int
    """Days since 1970."""
    jobs: int
    until: int
    """No job is younger."""


def fill(dsn: str, now: int, done: int, live: int) -> None:
    """Writes finished jobs over thirty days up to `now`, and waiting jobs."""
    # Just after midnight the day has no finished jobs yet.
    today = (now - Trade.LONGEST_MS) // DAY_MS
    each = done // DAYS
    days = [Day(dsn, today - back, each, now) for back in range(DAYS - 1, 0, -1)]
    days.append(Day(dsn, today, done - each * len(days), now))
    ended: Counter[tuple[str, str]] = Counter()
    with ProcessPoolExecutor(WRITERS) as pool:
        for counted in pool.map(_fill_day, days):
            ended.update(counted)
    asyncio.run(_finish(dsn, ended, now, live))


def _fill_day(day: Day) -> Counter[tuple[str, str]]:
    return asyncio.run(_write_day(day))


async def _write_day(day: Day) -> Counter[tuple[str, str]]:
    ended: Counter[tuple[str, str]] = Counter()
    connection = await asyncpg.connect(day.dsn)
    try:
        async with connection.transaction():
            for table in _FILLED:
                await connection.execute(
                    f"CREATE TABLE rota.{_part(table, day)} (LIKE rota.{table})"
                )
            for tables in _chunks(day):
                ended.update((row[3], row[1]) for row in tables.jobs)
                await _copy(connection, tables, day)
            for table in _FILLED:
                await connection.execute(_attach(_OF_DAY[table], day))
    finally:
        await connection.close()
    return ended


def _chunks(day: Day) -> Iterator[Tables]:
    start = day.number * DAY_MS
    end = min(start + DAY_MS - Trade.LONGEST_MS, day.until - Trade.LONGEST_MS)
    invented = SyntheticJobs(day.number)
    for first in range(0, day.jobs, CHUNK):
        size = min(CHUNK, day.jobs - first)
        step = (end - start) / day.jobs
        times = [int(start + step * (first + number)) for number in range(size)]
        yield invented.ended(times)


async def _copy(connection: asyncpg.Connection, tables: Tables, day: Day) -> None:
    for table, rows in (
        ("jobs_done", tables.jobs),
        ("executions_done", tables.executions),
        ("labels", tables.labels),
        ("edges", tables.edges),
    ):
        await connection.copy_records_to_table(
            _part(table, day), schema_name="rota", columns=_COLUMNS[table], records=rows
        )


def _part(table: str, day: Day) -> str:
    return _OF_DAY[table].partition(day.number)


def _attach(daily: Daily, day: Day) -> str:
    low, high = daily.bound(day.number), daily.bound(day.number + 1)
    part = daily.partition(day.number)
    return (
        f"ALTER TABLE rota.{daily.table} ATTACH PARTITION rota.{part}"
        f" FOR VALUES FROM ({low}) TO ({high})"
    )


async def _finish(dsn: str, ended: Counter[tuple[str, str]], now: int, live: int) -> None:
    """Writes live jobs and totals, and refreshes the database's statistics."""
    connection = await asyncpg.connect(dsn)
    invented = SyntheticJobs(0)
    waiting = invented.waiting(now, live)
    try:
        await connection.copy_records_to_table(
            "jobs_live", schema_name="rota", columns=_COLUMNS["jobs_live"], records=waiting.jobs
        )
        await connection.copy_records_to_table(
            "labels", schema_name="rota", columns=_COLUMNS["labels"], records=waiting.labels
        )
        await connection.copy_records_to_table(
            "totals",
            schema_name="rota",
            records=[(queue, state, count) for (queue, state), count in ended.items()],
        )
        total = sum(ended.values()) + live
        await connection.execute(
            "UPDATE rota.projection_shards SET submitted = $1, order_next = $2 WHERE shard = 0",
            total,
            2 * total,
        )
        await connection.copy_records_to_table(
            "workers", schema_name="rota", records=_gone_workers(invented, now)
        )
        await connection.copy_records_to_table(
            "settings", schema_name="rota", records=_learned(invented.trades, now)
        )
        await connection.execute("VACUUM (ANALYZE)")
    finally:
        await connection.close()


def _gone_workers(invented: SyntheticJobs, now: int) -> list[tuple[str, bytes]]:
    gone = {"state": WorkerState.OFFLINE, "gone_at": now - 3_600_000}
    return [worker_row(msgspec.structs.replace(worker, **gone)) for worker in invented.workers(now)]


def _learned(trades: Sequence[Trade], now: int) -> list[tuple[str, str, bytes]]:
    """Writes run times and usage of each job name, for `rota report waste`."""
    sketch = tuple((step, 8) for step in range(60, 120, 4))
    # Just after midnight the day has no finished jobs yet.
    today = (now - Trade.LONGEST_MS) // DAY_MS
    days = tuple(UsageDay(today - back, 1000, 10**9, 10**8, 10**12, 10**11) for back in range(14))
    usage = UsageStats(1000, sketch, sketch, sketch, 10**4, 10**9, 10**6, 1000, 1 << 30, days)
    encode = msgspec.msgpack.encode
    return [
        ("runtime", f"{one.terms.tenant}\x1f{one.terms.name}", encode(
            RuntimeStats(one.terms.tenant, one.terms.name, (60_000,) * 16, usage)
        ))
        for one in trades
    ]  # fmt: skip
