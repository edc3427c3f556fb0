"""Partitions by day: made before they are needed, dropped when they are too old.

Ids are UUIDv7: their first twelve hexadecimal digits are the milliseconds of their time, so a day
is a range of ids. All of this happens under the projection's own lock, with a short timeout for
other locks: a statement that waits for a lock on a table makes all behind it wait too.

Why: docs/decisions/0006-postgresql-partitions-retention-upgrades.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import date
from functools import partial
from typing import TypeAlias

import msgspec

from rota.core.model import Instant
from rota.store.limits import (
    EVENT_AGE_MS,
    JOURNAL_AGE_MS,
    JOURNAL_PARTITIONS_AHEAD,
    KEY_AGE_MS,
    OLD_JOBS_COUNTED,
    PRUNE_MIN,
    REST_ROWS_PER_DROP,
    STORE_LIMITS,
    TRIGGER_DECISION_AGE_MS,
    StoreLimits,
)
from rota.store.postgres.connect import Connection
from rota.store.postgres.logs_and_files import delete_outputs_later
from rota.store.protocol import Dropped, Seq
from rota.store.queries import id_at

Make: TypeAlias = Callable[[Connection], Awaitable[None]]
"""Makes one partition."""

DAY_MS = 24 * 3600 * 1000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LOCK_PATIENCE = "SET LOCAL lock_timeout = '300ms'"
_TAKE_TURN = """
SELECT min(folded_seq) FROM (
    SELECT folded_seq FROM rota.projection_shards ORDER BY shard FOR UPDATE
) s
"""
"""Locks all shards of the projection; returns how far the slowest is."""


class Daily(msgspec.Struct, frozen=True):
    """Table that is partitioned by day."""

    table: str
    column: str
    keep: str = "false"
    """Condition for rows that stay when their day is dropped, by `kept_jobs` and `kept_executions`;
    they move to the partition of the rest."""
    options: str = ""
    index: str = ""
    """An index of each day that differs from the table's own."""

    def bound(self, day: int) -> str:
        """Returns the first value of a day, as SQL."""
        if self.column in ("at", "nominal"):
            return str(day * DAY_MS)
        return f"'{id_at(day * DAY_MS)}'"

    def partition(self, day: int) -> str:
        """Returns the name of a day's partition."""
        return f"{self.table}_{date.fromordinal(_EPOCH_ORDINAL + day):%Y%m%d}"


_OF_KEPT_JOB = "IN (SELECT id FROM kept_jobs)"
_OF_KEPT_EXECUTION = "IN (SELECT id FROM kept_executions)"
JOBS_DONE = Daily("jobs_done", "id", f"id {_OF_KEPT_JOB}", index="USING brin (finished_at)")
"""Without `autosummarize`, which the table's own has in a database that began with 0.1."""
EXECUTIONS_DONE = Daily("executions_done", "id", f"id {_OF_KEPT_EXECUTION}")
KEYS = Daily("keys", "at")
OCCURRENCES = Daily("occurrences", "nominal")
EVENTS = Daily("events", "at")
TRIGGER_DECISIONS = Daily("arrivals", "id")
AGED = {KEYS: KEY_AGE_MS, EVENTS: EVENT_AGE_MS, TRIGGER_DECISIONS: TRIGGER_DECISION_AGE_MS}
"""Tables that are dropped by their own age, and not with the finished work of their day."""
DAILY = (
    JOBS_DONE,
    Daily("labels", "job_id", f"job_id {_OF_KEPT_JOB}"),
    Daily("edges", "child", f"child {_OF_KEPT_JOB}"),
    EXECUTIONS_DONE,
    Daily("logs", "execution_id", f"execution_id {_OF_KEPT_EXECUTION}", "WITH (fillfactor = 70)"),
    Daily("log_pieces", "execution_id", f"execution_id {_OF_KEPT_EXECUTION}"),
    Daily("artifacts", "execution_id", f"execution_id {_OF_KEPT_EXECUTION}"),
    Daily("artifact_pieces", "execution_id", f"execution_id {_OF_KEPT_EXECUTION}"),
    OCCURRENCES,
    *AGED,
)


async def make_partitions(
    connection: Connection,
    newest: Seq,
    now: Instant | None,
    limits: StoreLimits = STORE_LIMITS,
) -> None:
    """Makes the partitions that the next records, and today and tomorrow, will need."""
    size = limits.journal_partition_records
    if not _missing(await _partitions(connection), newest, now, size):
        return
    async with connection.transaction():
        # Servers that start together come here together: the second waits, and finds it done. The
        # short timeout is set after that: a waiting lock on a table blocks everybody.
        await connection.fetchval(_TAKE_TURN)
        await connection.execute(_LOCK_PATIENCE)
        for make in _missing(await _partitions(connection), newest, now, size):
            await make(connection)


def _missing(there: dict[str, None], newest: Seq, now: Instant | None, size: int) -> list[Make]:
    first = max(0, newest - 1) // size
    journal: list[Make] = [
        partial(_make_journal, number=number, size=size)
        for number in range(first, first + 1 + JOURNAL_PARTITIONS_AHEAD)
        if f"journal_{number}" not in there
    ]
    days = () if now is None else (now // DAY_MS, now // DAY_MS + 1)
    return journal + [
        partial(_make_day, daily=daily, day=day)
        for day in days
        for daily in DAILY
        if daily.partition(day) not in there
    ]


async def drop_old_journal(connection: Connection, now: Instant, limits: StoreLimits) -> None:
    """Drops journal, keys and events that are too old; what is not projected always stays."""
    async with connection.transaction():
        await connection.execute(_LOCK_PATIENCE)
        projected = await connection.fetchval(_TAKE_TURN)
        there = await _partitions(connection)
        journal = sorted(int(name[8:]) for name in there if name.startswith("journal_"))
        for number in journal:
            end = (number + 1) * limits.journal_partition_records
            if end >= projected:
                break
            newest_at = await connection.fetchval(
                f"SELECT at FROM rota.journal_{number} ORDER BY seq DESC LIMIT 1"
            )
            old = newest_at is None or newest_at < now - JOURNAL_AGE_MS
            if old or end <= projected - limits.journal_records_max:
                await connection.execute(f"DROP TABLE rota.journal_{number}")
        for aged, age in AGED.items():
            await _drop_aged(connection, aged, there, now - age)


async def _drop_aged(
    connection: Connection, aged: Daily, there: dict[str, None], before: Instant
) -> None:
    for day in _days_before(there, aged, before):
        await connection.execute(f"DROP TABLE rota.{aged.partition(day)}")
    rest = f"rota.{aged.table}_rest"
    await connection.execute(
        f"DELETE FROM {rest} WHERE ctid = ANY (ARRAY("
        f" SELECT ctid FROM {rest} WHERE {aged.column} < {aged.bound(before // DAY_MS)}"
        f" LIMIT {PRUNE_MIN:d}))"
    )


async def drop_old(connection: Connection, before: Instant) -> Dropped:
    """Drops finished work of the oldest day that was over before `before`, or else of the rest.

    Jobs that have not finished, or finished after `before`, stay; both are few, and move to the
    partition of the rest.
    """
    there = await _partitions(connection)
    days = _days_before(there, JOBS_DONE, before)
    if not days:
        return await _drop_from_rest(connection, before)
    jobs = await _size(connection, JOBS_DONE.partition(days[0]))
    async with connection.transaction():
        await _drop_day(connection, days[0], before, there)
    return Dropped(jobs, more=True)


async def _size(connection: Connection, table: str) -> int:
    """Estimates the number of rows; a day has too many to be counted."""
    estimate = await connection.fetchval(
        "SELECT reltuples::bigint FROM pg_class WHERE oid = $1::text::regclass", f"rota.{table}"
    )
    if estimate >= 0:
        return int(estimate)
    return int(
        await connection.fetchval(
            f"SELECT count(*) FROM (SELECT FROM rota.{table} LIMIT $1) counted", OLD_JOBS_COUNTED
        )
    )


async def _drop_day(
    connection: Connection, day: int, before: Instant, there: dict[str, None]
) -> None:
    await connection.execute(_LOCK_PATIENCE)
    await connection.fetchval(_TAKE_TURN)
    end = JOBS_DONE.bound(day + 1)
    await connection.execute(
        "CREATE TEMP TABLE kept_jobs ON COMMIT DROP AS"
        f" SELECT id FROM rota.jobs_live WHERE id < {end}"
        f" UNION ALL SELECT id FROM rota.jobs_shelved WHERE id < {end}"
        " UNION ALL SELECT id FROM rota.jobs_done_rest"
        f" UNION ALL SELECT id FROM rota.{JOBS_DONE.partition(day)} WHERE finished_at >= {before:d}"
    )
    await connection.execute(
        "CREATE TEMP TABLE kept_executions ON COMMIT DROP AS"
        f" SELECT id FROM rota.executions_live WHERE id < {end}"
        f" UNION ALL SELECT id FROM rota.{EXECUTIONS_DONE.partition(day)}"
        f" WHERE job_id {_OF_KEPT_JOB}"
    )
    await delete_outputs_later(
        connection, f"execution_id < {end} AND NOT execution_id {_OF_KEPT_EXECUTION}"
    )
    for daily in DAILY:
        part = daily.partition(day)
        # Some have an age of their own. A day of before 0.1 may lack some tables.
        if daily in AGED or part not in there:
            continue
        await connection.execute(
            f"ALTER TABLE rota.{daily.table} DETACH PARTITION rota.{part};"
            f" INSERT INTO rota.{daily.table} SELECT * FROM rota.{part} WHERE {daily.keep};"
            f" DROP TABLE rota.{part}"
        )


async def _drop_from_rest(connection: Connection, before: Instant) -> Dropped:
    """Drops old work that is in no day's partition, some thousands at a time; it is never much."""
    async with connection.transaction():
        await connection.fetchval(_TAKE_TURN)
        decided = await connection.fetch(
            "DELETE FROM rota.occurrences_rest WHERE ctid = ANY (ARRAY("
            " SELECT ctid FROM rota.occurrences_rest WHERE nominal < $1 LIMIT $2))"
            " RETURNING true",
            before,
            REST_ROWS_PER_DROP,
        )
        gone = await connection.fetch(
            "DELETE FROM rota.jobs_done_rest WHERE ctid = ANY (ARRAY("
            " SELECT ctid FROM rota.jobs_done_rest"
            " WHERE coalesce(finished_at, created_at) < $1 LIMIT $2)) RETURNING id",
            before,
            REST_ROWS_PER_DROP,
        )
        ids = [row[0] for row in gone]
        for table, column in (("labels", "job_id"), ("edges", "child")) if ids else ():
            await connection.execute(f"DELETE FROM rota.{table} WHERE {column} = ANY ($1)", ids)
        await connection.execute(
            "WITH gone AS (DELETE FROM rota.executions_done WHERE job_id = ANY ($1) RETURNING id)"
            " INSERT INTO rota.leftovers SELECT id FROM gone ON CONFLICT DO NOTHING",
            ids,
        )
    return Dropped(len(ids), more=REST_ROWS_PER_DROP in (len(ids), len(decided)))


async def _partitions(connection: Connection) -> dict[str, None]:
    found = await connection.fetch(
        "SELECT child.relname FROM pg_inherits"
        " JOIN pg_class child ON child.oid = inhrelid"
        " JOIN pg_class parent ON parent.oid = inhparent"
        " WHERE parent.relnamespace = 'rota'::regnamespace AND parent.relkind = 'p'"
    )
    return dict.fromkeys(row[0] for row in found)


def _days_before(there: dict[str, None], daily: Daily, before: Instant) -> Sequence[int]:
    """Returns the days that have a partition and were over at `before`."""
    found = []
    for name in there:
        day_text = name.removeprefix(f"{daily.table}_")
        if day_text != name and day_text.isdigit():
            day = date.fromisoformat(day_text).toordinal() - _EPOCH_ORDINAL
            if (day + 1) * DAY_MS <= before:
                found.append(day)
    return sorted(found)


async def _make_journal(connection: Connection, number: int, size: int) -> None:
    first = number * size + 1
    await connection.execute(
        f"CREATE TABLE rota.journal_{number} (LIKE rota.journal INCLUDING COMPRESSION);"
        f" ALTER TABLE rota.journal ATTACH PARTITION rota.journal_{number}"
        f" FOR VALUES FROM ({first}) TO ({first + size})"
    )


async def _make_day(connection: Connection, daily: Daily, day: int) -> None:
    """Makes a partition apart and attaches it: that takes a weaker lock than CREATE PARTITION."""
    part, low, high = daily.partition(day), daily.bound(day), daily.bound(day + 1)
    of_day = f"{daily.column} >= {low} AND {daily.column} < {high}"
    index = f" CREATE INDEX ON rota.{part} {daily.index};" if daily.index else ""
    await connection.execute(
        f"CREATE TABLE rota.{part} (LIKE rota.{daily.table}) {daily.options};{index}"
        f" WITH moved AS (DELETE FROM rota.{daily.table}_rest WHERE {of_day} RETURNING *)"
        f" INSERT INTO rota.{part} SELECT * FROM moved;"
        f" ALTER TABLE rota.{daily.table} ATTACH PARTITION rota.{part}"
        f" FOR VALUES FROM ({low}) TO ({high})"
    )
