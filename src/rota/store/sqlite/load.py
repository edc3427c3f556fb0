"""Loads all that is live, and spilled jobs, from SQLite's tables; a start waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

import apsw
from msgspec.structs import replace

from rota.core.model import JobRecord
from rota.core.outcome import Refill
from rota.store import rows
from rota.store.documents import read_settings
from rota.store.projection.bulk_decode import BulkDecoder
from rota.store.protocol import Seq, Snapshot, Totals
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch
from rota.store.sqlite.events import read_buffered_events, read_triggers

_by_arrival = attrgetter("spec.arrival_number")


def read_spill_queue(
    connection: apsw.Connection, spill_queue: int, after: int, limit: int
) -> Iterator[Row]:
    """Returns rows of id, life, spec: the next jobs of a spill queue."""
    return connection.execute(
        "SELECT id, life, spec FROM jobs INDEXED BY jobs_by_line"
        " WHERE line = ? AND line <> 0 AND ordinal > ? ORDER BY ordinal LIMIT ?",
        (spill_queue, after, limit),
    )


def read_spill_queues(
    connection: apsw.Connection, wanted: Sequence[Refill], bulk: BulkDecoder
) -> list[tuple[JobRecord, ...]]:
    """Returns the next jobs of each spill queue."""
    return [
        tuple(bulk.jobs(read_spill_queue(connection, one.spill_queue, one.after, one.limit)))
        for one in wanted
    ]


def read_snapshot(connection: apsw.Connection, kept: int) -> Snapshot:
    """Loads all that is live as of the watermark, with the first `kept` jobs of each spill
    queue."""
    connection.execute("BEGIN")
    try:
        seq, order_next, submitted = fetch(
            connection, "SELECT folded_seq, order_next, submitted FROM meta"
        )[0]
        live_jobs = connection.execute(
            f"SELECT id, life, spec FROM jobs WHERE state IN ({_placeholders(rows.JOB_LIVE)})",
            rows.JOB_LIVE,
        )
        bulk = BulkDecoder()
        jobs = list(bulk.jobs(live_jobs))
        spill_counts = fetch(connection, "SELECT line, count FROM lines")
        for spill_queue, _ in spill_counts:
            jobs += bulk.jobs(read_spill_queue(connection, spill_queue, -1, kept))
        # Nearly in order already: Python's sort makes use of that, SQLite's would not.
        jobs.sort(key=_by_arrival)
        live_executions = connection.execute(
            f"SELECT body FROM executions WHERE state IN ({_placeholders(rows.EXECUTION_LIVE)})"
            " ORDER BY id",
            rows.EXECUTION_LIVE,
        )
        executions = [rows.execution(row) for row in live_executions]
        settings = fetch(connection, "SELECT kind, body FROM settings")
        plain = Snapshot(
            seq=Seq(seq),
            jobs=jobs,
            executions=executions,
            workers=[rows.worker(row) for row in connection.execute("SELECT body FROM workers")],
            queues=[rows.queue(row) for row in connection.execute("SELECT body FROM queues")],
            settings=read_settings((row[0], row[1]) for row in settings),
            next_arrival_number=order_next,
            totals=_totals(connection, submitted),
            spill_counts=[(spill_queue, count) for spill_queue, count in spill_counts],
        )
        return _with_schedules(connection, plain)
    finally:
        connection.execute("COMMIT")


def _with_schedules(connection: apsw.Connection, plain: Snapshot) -> Snapshot:
    """Adds schedules and triggers to the snapshot, inside the caller's transaction."""
    schedules = connection.execute("SELECT course, body FROM schedules ORDER BY id")
    calendars = connection.execute("SELECT body FROM calendars")
    return replace(
        plain,
        schedules=[rows.schedule(row) for row in schedules],
        calendars=[rows.calendar(row) for row in calendars],
        triggers=read_triggers(connection),
        buffered_events=read_buffered_events(connection),
    )


def _totals(connection: apsw.Connection, submitted: int) -> Totals:
    finished = fetch(connection, "SELECT queue, state, count FROM totals")
    decided = fetch(connection, "SELECT decision, why, count FROM decided")
    reacted = fetch(connection, "SELECT word, count FROM reacted")
    return Totals(
        submitted,
        tuple((row[0], row[1], row[2]) for row in finished),
        tuple((row[0], row[1], row[2]) for row in decided),
        tuple((row[0], row[1]) for row in reacted),
    )


def _placeholders(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
