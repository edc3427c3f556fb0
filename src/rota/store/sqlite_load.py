"""Reads all that is live out of SQLite's tables, fast: a start waits for it."""

from __future__ import annotations

from operator import attrgetter

import apsw

from rota.store import rows
from rota.store.protocol import Seq, Snapshot, Totals
from rota.store.sqlite_connect import fetch
from rota.store.sqlite_events import read_held, read_triggers

_by_arrival = attrgetter("spec.order")


def read_snapshot(connection: apsw.Connection) -> Snapshot:
    """As of the newest record folded."""
    connection.execute("BEGIN")
    try:
        seq, order_next, submitted = fetch(
            connection, "SELECT folded_seq, order_next, submitted FROM meta"
        )[0]
        live_jobs = connection.execute(
            f"SELECT id, life, spec FROM jobs WHERE state IN ({_places(rows.JOB_LIVE)})",
            rows.JOB_LIVE,
        )
        jobs = list(rows.JobsInBulk().jobs(live_jobs))
        # Nearly in order already, which Python's sort makes use of and SQLite's would not.
        jobs.sort(key=_by_arrival)
        live_executions = connection.execute(
            f"SELECT body FROM executions WHERE state IN ({_places(rows.EXECUTION_LIVE)})"
            " ORDER BY id",
            rows.EXECUTION_LIVE,
        )
        executions = [rows.execution(row) for row in live_executions]
        return Snapshot(
            seq=Seq(seq),
            jobs=jobs,
            executions=executions,
            workers=[rows.worker(row) for row in connection.execute("SELECT body FROM workers")],
            queues=[rows.queue(row) for row in connection.execute("SELECT body FROM queues")],
            order_next=order_next,
            totals=_totals(connection, submitted),
            schedules=[
                rows.schedule(row)
                for row in connection.execute("SELECT course, body FROM schedules ORDER BY id")
            ],
            calendars=[
                rows.calendar(row) for row in connection.execute("SELECT body FROM calendars")
            ],
            triggers=read_triggers(connection),
            held=read_held(connection),
        )
    finally:
        connection.execute("COMMIT")


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


def _places(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
