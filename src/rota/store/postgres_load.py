"""Reads all that is live out of PostgreSQL's tables, fast: a take-over waits for it."""

from __future__ import annotations

from operator import attrgetter

from rota.core.model import JobRecord
from rota.store import rows
from rota.store.limits import LOAD_ROWS_PER_FETCH
from rota.store.postgres_connect import Connection
from rota.store.postgres_events import read_held, read_triggers
from rota.store.protocol import Seq, Snapshot, Totals

_by_arrival = attrgetter("spec.order")


async def read_snapshot(connection: Connection) -> Snapshot:
    """As of the newest record folded, all of it as of one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        meta = await connection.fetchrow("SELECT folded_seq, order_next, submitted FROM rota.meta")
        assert meta is not None
        jobs = await _live_jobs(connection)
        executions = await connection.fetch("SELECT body FROM rota.executions_live ORDER BY id")
        workers = await connection.fetch("SELECT body FROM rota.workers ORDER BY id")
        queues = await connection.fetch("SELECT body FROM rota.queues ORDER BY name")
        totals = await connection.fetch("SELECT queue, state, count FROM rota.totals")
        decided = await connection.fetch("SELECT decision, why, count FROM rota.decided")
        reacted = await connection.fetch("SELECT word, count FROM rota.reacted")
        triggers = await read_triggers(connection)
        held = await read_held(connection)
        schedules = await connection.fetch("SELECT course, body FROM rota.schedules ORDER BY id")
        calendars = await connection.fetch("SELECT body FROM rota.calendars ORDER BY name")
    return Snapshot(
        seq=Seq(meta[0]),
        jobs=jobs,
        executions=[rows.execution(tuple(row)) for row in executions],
        workers=[rows.worker(tuple(row)) for row in workers],
        queues=[rows.queue(tuple(row)) for row in queues],
        order_next=meta[1],
        totals=Totals(
            meta[2],
            tuple((row[0], row[1], row[2]) for row in totals),
            tuple((row[0], row[1], row[2]) for row in decided),
            tuple((row[0], row[1]) for row in reacted),
        ),
        schedules=[rows.schedule(tuple(row)) for row in schedules],
        calendars=[rows.calendar(tuple(row)) for row in calendars],
        triggers=triggers,
        held=held,
    )


async def _live_jobs(connection: Connection) -> list[JobRecord]:
    """In pages by id, not by a cursor: that is a named thing, which PgBouncer would lose."""
    bulk = rows.JobsInBulk()
    jobs: list[JobRecord] = []
    after = ""
    while True:
        found = await connection.fetch(
            "SELECT id, life, spec FROM rota.jobs_live WHERE id > $1 ORDER BY id LIMIT $2",
            after,
            LOAD_ROWS_PER_FETCH,
        )
        jobs += bulk.jobs(found)
        if len(found) < LOAD_ROWS_PER_FETCH:
            break
        after = found[-1][0]
    # Nearly in order already, which Python's sort makes use of.
    jobs.sort(key=_by_arrival)
    return jobs
