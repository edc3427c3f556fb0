"""Loads all that is live, and spilled jobs, from SQLite's tables; a start waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import apsw
import msgspec
from msgspec.structs import replace

from rota.core.model import JobId, JobRecord
from rota.core.outcome import AnyWrite, Refill
from rota.store import rows
from rota.store.damage import Damage
from rota.store.documents import read_settings
from rota.store.errors import DamagedRowError
from rota.store.journal import ChainReader, confirm_tables
from rota.store.projection.bulk_decode import BulkDecoder
from rota.store.projection.live_state import LiveState
from rota.store.projection.quarantine import SpilledPart, decode_write, overlay_spilled
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
from rota.store.sqlite.connect import fetch, fetch_one, fetch_readable
from rota.store.sqlite.events import read_buffered_events, read_triggers
from rota.store.sqlite.projection import read_positions
from rota.store.sqlite.set_aside import read_quarantined_writes, read_set_aside

_by_arrival = attrgetter("spec.arrival_number")
_by_seq = attrgetter("seq")
_json = msgspec.json.Encoder()


def read_spill_queue(
    connection: apsw.Connection, spill_queue: int, after: int, limit: int, bulk: BulkDecoder
) -> tuple[list[JobRecord], list[int]]:
    """Returns the next jobs of a spill queue, and the arrival numbers of damaged ones."""
    jobs: list[JobRecord] = []
    damaged: list[Row] = []
    while True:
        size, lost = limit - len(jobs), len(damaged)
        jobs += bulk.jobs(_spilled_rows(connection, spill_queue, after, size), damaged)
        # As many rows more as were damaged: with fewer jobs, the spill queue would seem to end.
        if lost == len(damaged):
            return jobs, [row[3] for row in damaged]
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
) -> SpilledJobs:
    """Returns the next jobs of each spill queue, in one snapshot of the file."""
    connection.execute("BEGIN")
    try:
        aside = read_set_aside(connection)
        parts: Sequence[SpilledPart] = [
            read_spill_queue(connection, one.spill_queue, one.after, one.limit + len(aside), bulk)
            for one in wanted
        ]
        positions = [head.seq for head in read_positions(connection).values()]
    finally:
        connection.execute("COMMIT")
    if aside:
        parts = [overlay_spilled(one, part, aside) for one, part in zip(wanted, parts, strict=True)]
    return SpilledJobs(
        [tuple(jobs) for jobs, _ in parts], positions, [tuple(damaged) for _, damaged in parts]
    )


def load_snapshot(connection: apsw.Connection, kept: int) -> Snapshot:
    """Returns all that is live at the journal's end, with the first `kept` jobs of each spill
    queue.

    Reads the tables as they are, and replays in memory what the journal has beyond them.
    """
    connection.execute("BEGIN")
    try:
        positions, damage = read_positions(connection), Damage()
        lowest = min(positions.values(), key=_by_seq)
        state = LiveState(_read_tables(connection, lowest, damage))
        tail = _read_journal(connection, lowest)
        due: list[Sequence[AnyWrite]] = [
            [decode_write(one.body) for one in read_quarantined_writes(connection)]
        ]
        seqs = {shard: head.seq for shard, head in positions.items()}
        due += writes_due(tail, seqs, len(positions))
        stored = _read_rows(connection, state.lacks(jobs_looked_up(due)), damage)
        state.replay(due, stored, tail[-1].head if tail else lowest)
        spilled = _first_spilled(connection, state, kept, damage)
        return replace(state.snapshot(spilled, tail), damaged=damage.named)
    finally:
        connection.execute("COMMIT")


def _read_journal(connection: apsw.Connection, after: Head) -> list[JournalRecord]:
    """Returns all records after `after`, verified as a chain."""
    at_head = fetch(connection, "SELECT hash FROM journal WHERE seq = ?", (after.seq,))
    confirm_tables(after, at_head[0][0] if at_head else None)
    chain_reader = ChainReader(after)
    found = connection.execute(
        "SELECT seq, epoch, at, hash, body FROM journal WHERE seq > ? ORDER BY seq", (after.seq,)
    )
    return [chain_reader.read(*row) for row in found]


def _read_rows(
    connection: apsw.Connection, job_ids: Sequence[JobId], damage: Damage
) -> list[JobRecord]:
    wanted = _json.encode(job_ids).decode()
    found = fetch_readable(
        connection,
        "id, life, spec",
        "FROM jobs WHERE id IN (SELECT value FROM json_each(?))",
        (wanted,),
    )
    return _decoded(found, damage)


def _decoded(found: Sequence[Row], damage: Damage) -> list[JobRecord]:
    """Decodes rows of id, life, spec; notes damaged ones and leaves them out."""
    damaged: list[Row] = []
    jobs = BulkDecoder().jobs(found, damaged)
    for row in damaged:
        damage.note(DamagedRowError("job", str(row[0])))
    return jobs


def _first_spilled(
    connection: apsw.Connection, state: LiveState, kept: int, damage: Damage
) -> list[JobRecord]:
    """Returns the first `kept` jobs of each spill queue at the journal's end.

    The table may still have jobs that newer records moved, and lack jobs that they spilled.
    """
    bulk, first = BulkDecoder(), dict[int, list[JobRecord]]()
    for line in [line for line, count in state.spill_counts.items() if count]:
        found, after = list[JobRecord](), -1
        while len(found) < kept:
            jobs, damaged = read_spill_queue(connection, line, after, kept, bulk)
            state.spill_counts[line] -= len(damaged)
            for number in damaged:
                damage.note(DamagedRowError("spilled job with the arrival number", str(number)))
            found += [job for job in jobs if job.id not in state.touched]
            if len(jobs) < kept:
                break
            after = jobs[-1].spec.arrival_number
        first[line] = found
    for job in state.spilled():
        first[job.life.line].append(job)
    return [job for jobs in first.values() for job in sorted(jobs, key=_by_arrival)[:kept]]


def _read_tables(connection: apsw.Connection, lowest: Head, damage: Damage) -> Snapshot:
    """Returns what is live by the tables, without spilled jobs; in the caller's transaction."""
    order_next, submitted = fetch_one(
        connection, "SELECT max(order_next), sum(submitted) FROM projection_shards"
    )
    live_executions = fetch_readable(
        connection,
        "id, body",
        f"FROM executions WHERE state IN ({_placeholders(rows.EXECUTION_LIVE)}) ORDER BY id",
        rows.EXECUTION_LIVE,
    )
    spilled = fetch(connection, "SELECT line, sum(count) FROM lines GROUP BY line")
    settings = fetch_readable(connection, "kind, name, body", "FROM settings")
    plain = Snapshot(
        head=lowest,
        jobs=_live_jobs(connection, damage),
        executions=damage.whole(rows.execution, live_executions),
        workers=damage.whole(rows.worker, fetch_readable(connection, "id, body", "FROM workers")),
        queues=damage.whole(rows.queue, fetch_readable(connection, "name, body", "FROM queues")),
        settings=read_settings(((row[0], row[1], row[2]) for row in settings), damage),
        next_arrival_number=order_next,
        totals=_totals(connection, submitted),
        spill_counts=[(line, count) for line, count in spilled],
        fence_floor=fetch_one(connection, "SELECT count(*) FROM losses")[0] * FENCES_PER_LOSS,
    )
    return _with_schedules(connection, plain, damage)


def _live_jobs(connection: apsw.Connection, damage: Damage) -> list[JobRecord]:
    columns = "id, life, spec"
    live = f"FROM jobs WHERE state IN ({_placeholders(rows.JOB_LIVE)})"
    try:
        found = fetch(connection, f"SELECT {columns} {live}", rows.JOB_LIVE)
    except UnicodeDecodeError:
        found = fetch_readable(connection, columns, live, rows.JOB_LIVE)
    return _decoded(found, damage)


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
