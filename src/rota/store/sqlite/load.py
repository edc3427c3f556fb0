"""Loads all that is live, and spilled jobs, from SQLite's tables; a start waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter

import apsw
import msgspec
from msgspec.structs import replace

from rota.core.model import JobId, JobRecord
from rota.core.outcome import AnyWrite, Refill
from rota.store import rows
from rota.store.documents import read_settings
from rota.store.journal import ChainReader
from rota.store.projection.bulk_decode import BulkDecoder
from rota.store.projection.live_state import LiveState
from rota.store.projection.quarantine import decode_write
from rota.store.projection.shards import jobs_looked_up, writes_due
from rota.store.protocol import (
    FENCES_PER_LOSS,
    Head,
    JournalRecord,
    Snapshot,
    SpilledJobs,
    Totals,
)
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch
from rota.store.sqlite.events import read_buffered_events, read_triggers
from rota.store.sqlite.projection import read_positions
from rota.store.sqlite.set_aside import read_set_aside
from rota.store.table_changes import spill_queue_of

_by_arrival = attrgetter("spec.arrival_number")
_by_seq = attrgetter("seq")
_json = msgspec.json.Encoder()
_QUARANTINED = 'SELECT body FROM quarantined_writes ORDER BY seq, "index", job_id'


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
) -> SpilledJobs:
    """Returns the next jobs of each spill queue, in one snapshot of the file."""
    connection.execute("BEGIN")
    try:
        aside = read_set_aside(connection)
        return SpilledJobs(
            [_next_spilled(connection, one, aside, bulk) for one in wanted],
            [head.seq for head in read_positions(connection).values()],
        )
    finally:
        connection.execute("COMMIT")


def _next_spilled(
    connection: apsw.Connection,
    wanted: Refill,
    aside: Mapping[JobId, JobRecord | None],
    bulk: BulkDecoder,
) -> tuple[JobRecord, ...]:
    """Returns the next jobs of a spill queue; `aside` are the jobs in quarantine, as they are."""
    line, limit = wanted.spill_queue, wanted.limit + len(aside)
    found = bulk.jobs(read_spill_queue(connection, line, wanted.after, limit))
    if not aside:
        return tuple(found)
    jobs = [job for job in found if job.id not in aside]
    jobs += [
        job
        for job in aside.values()
        if job is not None
        and spill_queue_of(job.life) == line
        and job.spec.arrival_number > wanted.after
    ]
    return tuple(sorted(jobs, key=_by_arrival)[: wanted.limit])


def load_snapshot(connection: apsw.Connection, kept: int) -> Snapshot:
    """Returns all that is live at the journal's end, with the first `kept` jobs of each spill
    queue.

    Reads the tables as they are, and replays in memory what the journal has beyond them.
    """
    connection.execute("BEGIN")
    try:
        positions = read_positions(connection)
        lowest = min(positions.values(), key=_by_seq)
        state = LiveState(_read_tables(connection, lowest))
        tail = _read_journal(connection, lowest)
        due: list[Sequence[AnyWrite]] = [
            [decode_write(row[0]) for row in fetch(connection, _QUARANTINED)]
        ]
        seqs = {shard: head.seq for shard, head in positions.items()}
        due += writes_due(tail, seqs, len(positions))
        stored = _read_rows(connection, state.lacks(jobs_looked_up(due)))
        state.replay(due, stored, tail[-1].head if tail else lowest)
        return state.snapshot(_first_spilled(connection, state, kept), tail)
    finally:
        connection.execute("COMMIT")


def _read_journal(connection: apsw.Connection, after: Head) -> list[JournalRecord]:
    """Returns all records after `after`, verified as a chain."""
    chain_reader = ChainReader(after)
    found = connection.execute(
        "SELECT seq, epoch, at, hash, body FROM journal WHERE seq > ? ORDER BY seq", (after.seq,)
    )
    return [chain_reader.read(*row) for row in found]


def _read_rows(connection: apsw.Connection, job_ids: Sequence[JobId]) -> list[JobRecord]:
    wanted = _json.encode(job_ids).decode()
    sql = "SELECT id, life, spec FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
    return list(BulkDecoder().jobs(connection.execute(sql, (wanted,)))) if job_ids else []


def _first_spilled(connection: apsw.Connection, state: LiveState, kept: int) -> list[JobRecord]:
    """Returns the first `kept` jobs of each spill queue at the journal's end.

    The table may still have jobs that newer records moved, and lack jobs that they spilled.
    """
    bulk, first = BulkDecoder(), dict[int, list[JobRecord]]()
    for line in [line for line, count in state.spill_counts.items() if count]:
        rows_ = bulk.jobs(read_spill_queue(connection, line, -1, -1))
        first[line] = list(islice((job for job in rows_ if job.id not in state.touched), kept))
    for job in state.spilled():
        first[job.life.line].append(job)
    return [job for jobs in first.values() for job in sorted(jobs, key=_by_arrival)[:kept]]


def _read_tables(connection: apsw.Connection, lowest: Head) -> Snapshot:
    """Returns what is live by the tables, without spilled jobs; in the caller's transaction."""
    order_next, submitted = fetch(
        connection, "SELECT max(order_next), sum(submitted) FROM projection_shards"
    )[0]
    live_jobs = connection.execute(
        f"SELECT id, life, spec FROM jobs WHERE state IN ({_placeholders(rows.JOB_LIVE)})",
        rows.JOB_LIVE,
    )
    jobs = list(BulkDecoder().jobs(live_jobs))
    live_executions = connection.execute(
        f"SELECT body FROM executions WHERE state IN ({_placeholders(rows.EXECUTION_LIVE)})"
        " ORDER BY id",
        rows.EXECUTION_LIVE,
    )
    executions = [rows.execution(row) for row in live_executions]
    settings = fetch(connection, "SELECT kind, body FROM settings")
    spilled = fetch(connection, "SELECT line, sum(count) FROM lines GROUP BY line")
    plain = Snapshot(
        head=lowest,
        jobs=jobs,
        executions=executions,
        workers=[rows.worker(row) for row in connection.execute("SELECT body FROM workers")],
        queues=[rows.queue(row) for row in connection.execute("SELECT body FROM queues")],
        settings=read_settings((row[0], row[1]) for row in settings),
        next_arrival_number=order_next,
        totals=_totals(connection, submitted),
        spill_counts=[(line, count) for line, count in spilled],
        fence_floor=fetch(connection, "SELECT count(*) FROM losses")[0][0] * FENCES_PER_LOSS,
    )
    return _with_schedules(connection, plain)


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
    finished = fetch(
        connection, "SELECT queue, state, sum(count) FROM totals GROUP BY queue, state"
    )
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
