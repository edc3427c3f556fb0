"""Loads all that is live, and spilled jobs, from SQLite's tables; a start waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import apsw
from msgspec.structs import replace

from rota.core.model import JobRecord
from rota.core.outcome import Refill
from rota.store import rows
from rota.store.damage import Damage
from rota.store.documents import read_settings
from rota.store.errors import DamagedRowError
from rota.store.projection.bulk_decode import BulkDecoder
from rota.store.protocol import Seq, Snapshot, SpilledJobs, Totals
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch, fetch_one, fetch_readable
from rota.store.sqlite.events import read_buffered_events, read_triggers

_by_arrival = attrgetter("spec.arrival_number")


def read_spill_queue(
    connection: apsw.Connection, spill_queue: int, after: int, limit: int, bulk: BulkDecoder
) -> SpilledJobs:
    """Returns the next jobs of a spill queue."""
    jobs: list[JobRecord] = []
    damaged: list[Row] = []
    while True:
        size, lost = limit - len(jobs), len(damaged)
        jobs += bulk.jobs(_spilled_rows(connection, spill_queue, after, size), damaged)
        # As many rows more as were damaged: with fewer jobs, the spill queue would seem to end.
        if lost == len(damaged):
            return SpilledJobs(tuple(jobs), tuple(row[3] for row in damaged))
        after = max(damaged[-1][3], jobs[-1].spec.arrival_number if jobs else after)


def _spilled_rows(
    connection: apsw.Connection, spill_queue: int, after: int, limit: int
) -> list[Row]:
    """Returns rows of id, life, spec, arrival number."""
    return fetch_readable(
        connection,
        "id, life, spec, ordinal",
        "FROM jobs INDEXED BY jobs_by_line"
        " WHERE line = ? AND line <> 0 AND ordinal > ? ORDER BY ordinal LIMIT ?",
        (spill_queue, after, limit),
    )


def read_spill_queues(
    connection: apsw.Connection, wanted: Sequence[Refill], bulk: BulkDecoder
) -> list[SpilledJobs]:
    """Returns the next jobs of each spill queue."""
    return [
        read_spill_queue(connection, one.spill_queue, one.after, one.limit, bulk) for one in wanted
    ]


def read_snapshot(connection: apsw.Connection, kept: int) -> Snapshot:
    """Loads all that is live as of the watermark, with the first `kept` jobs of each spill
    queue."""
    connection.execute("BEGIN")
    try:
        seq, order_next, submitted = fetch_one(
            connection, "SELECT folded_seq, order_next, submitted FROM meta"
        )
        damage = Damage()
        jobs, spill_counts = _jobs(connection, kept, damage)
        live_executions = fetch_readable(
            connection,
            "id, body",
            f"FROM executions WHERE state IN ({_placeholders(rows.EXECUTION_LIVE)}) ORDER BY id",
            rows.EXECUTION_LIVE,
        )
        executions = damage.whole(rows.execution, live_executions)
        workers = damage.whole(rows.worker, fetch_readable(connection, "id, body", "FROM workers"))
        queues = damage.whole(rows.queue, fetch_readable(connection, "name, body", "FROM queues"))
        settings = fetch_readable(connection, "kind, name, body", "FROM settings")
        plain = Snapshot(
            seq=Seq(seq),
            jobs=jobs,
            executions=executions,
            workers=workers,
            queues=queues,
            settings=read_settings(((row[0], row[1], row[2]) for row in settings), damage),
            next_arrival_number=order_next,
            totals=_totals(connection, submitted),
            spill_counts=spill_counts,
        )
        return replace(_with_schedules(connection, plain, damage), damaged=damage.named)
    finally:
        connection.execute("COMMIT")


def _jobs(
    connection: apsw.Connection, kept: int, damage: Damage
) -> tuple[list[JobRecord], list[tuple[int, int]]]:
    """Returns the live jobs in order of arrival, and how many are in each spill queue."""
    columns = "id, life, spec"
    live = f"FROM jobs WHERE state IN ({_placeholders(rows.JOB_LIVE)})"
    bulk = BulkDecoder()
    damaged: list[Row] = []
    try:
        jobs = bulk.jobs(connection.execute(f"SELECT {columns} {live}", rows.JOB_LIVE), damaged)
    except UnicodeDecodeError:
        damaged.clear()
        jobs = bulk.jobs(fetch_readable(connection, columns, live, rows.JOB_LIVE), damaged)
    for row in damaged:
        damage.note(DamagedRowError("job", str(row[0])))
    spill_counts: list[tuple[int, int]] = []
    for spill_queue, count in fetch(connection, "SELECT line, count FROM lines"):
        spilled = read_spill_queue(connection, spill_queue, -1, kept, bulk)
        jobs += spilled.jobs
        spill_counts.append((spill_queue, count - len(spilled.damaged)))
        for number in spilled.damaged:
            damage.note(DamagedRowError("spilled job with the arrival number", str(number)))
    # Nearly in order already: Python's sort makes use of that, SQLite's would not.
    jobs.sort(key=_by_arrival)
    return jobs, spill_counts


def _with_schedules(connection: apsw.Connection, plain: Snapshot, damage: Damage) -> Snapshot:
    """Adds schedules and triggers to the snapshot, inside the caller's transaction."""
    schedules = fetch_readable(connection, "id, course, body", "FROM schedules ORDER BY id")
    calendars = fetch_readable(connection, "name, body", "FROM calendars")
    return replace(
        plain,
        schedules=damage.whole(rows.schedule, schedules),
        calendars=damage.whole(rows.calendar, calendars),
        triggers=read_triggers(connection, damage),
        buffered_events=read_buffered_events(connection, damage),
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
