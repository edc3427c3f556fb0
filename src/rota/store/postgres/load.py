"""Loads all that is live, and spilled jobs, from PostgreSQL; a takeover waits for it.

A load reads the tables as they are and replays in memory what the journal has beyond them, all in
one snapshot of the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from msgspec.structs import replace

from rota.core.model import JobId, JobRecord
from rota.core.outcome import AnyWrite, Refill
from rota.store import rows
from rota.store.damage import Damage
from rota.store.documents import read_settings
from rota.store.errors import DamagedRowError
from rota.store.journal import ChainReader, confirm_tables
from rota.store.limits import LOAD_RECORDS_PER_FETCH, LOAD_ROWS_PER_FETCH
from rota.store.postgres.connect import Connection
from rota.store.postgres.projection import SHARDS
from rota.store.postgres.quarantine import set_aside_now
from rota.store.postgres.schedules_and_events import read_buffered_events, read_triggers
from rota.store.projection.bulk_decode import BulkDecoder, EncodedBatch, EncodedSpec
from rota.store.projection.live_state import LiveState
from rota.store.projection.quarantine import SpilledPart, decode_write, overlay_spilled
from rota.store.projection.shards import jobs_looked_up, writes_due
from rota.store.protocol import (
    FENCES_PER_LOSS,
    Head,
    JournalRecord,
    Seq,
    Snapshot,
    SpilledJobs,
    Totals,
)

Part: TypeAlias = tuple[list[JobRecord], list[int]]
"""Next jobs of a spill queue, and the arrival numbers of those among them that are damaged."""
_by_arrival = attrgetter("spec.arrival_number")
_by_seq = attrgetter("seq")
_by_number = itemgetter(4)
BATCH_MIN = 8
"""Jobs per batch, on average, from which it pays to have the database group them."""

_POSITIONS_AND_QUARANTINE = """
SELECT folded_seq, EXISTS (SELECT FROM rota.quarantine) FROM rota.projection_shards ORDER BY shard
"""
_SPILL_QUEUE = """
SELECT id, life, spec, ordinal FROM rota.jobs_shelved
WHERE line = $1 AND ordinal > $2 ORDER BY ordinal LIMIT $3
"""
_BATCHES = """
SELECT life, head, tail, string_agg(id, ','), array_agg(ordinal),
    bool_and(number = substr(int8send(ordinal), 9 - $5)),
    string_agg(life_crc, ''::bytea), string_agg(spec_crc, ''::bytea)
FROM (
    SELECT id, ordinal,
        substr(life, 1, greatest(0, octet_length(life) - 4)) AS life,
        substr(life, octet_length(life) - 3) AS life_crc,
        substr(spec, 1, $4) AS head,
        substr(spec, 1 + $4, $5) AS number,
        substr(spec, 1 + $4 + $5, greatest(0, octet_length(spec) - 4 - $4 - $5)) AS tail,
        substr(spec, octet_length(spec) - 3) AS spec_crc
    FROM (
        SELECT id, life, spec, ordinal FROM rota.jobs_shelved
        WHERE line = $1 AND ordinal > $2 ORDER BY ordinal LIMIT $3
    ) k
) j
GROUP BY life, head, tail
"""
"""The same jobs, grouped if they differ only in their arrival number, which is in the spec after so
many bytes ($4) and so many bytes long ($5), and in their checksums."""
_AS_INDEXED = "SET LOCAL enable_sort = off"
"""Before the table is analysed, the planner takes a spill queue for short, and would read and sort
all of it for each part."""
_SPILL_QUEUES = """
SELECT j.id, j.life, j.spec, j.ordinal, v.number
FROM unnest($1::int8[], $2::int8[], $3::int8[])
    WITH ORDINALITY AS v (line, place, size, number)
CROSS JOIN LATERAL (
    SELECT id, life, spec, ordinal FROM rota.jobs_shelved
    WHERE line = v.line AND ordinal > v.place ORDER BY ordinal LIMIT v.size
) j
ORDER BY v.number, j.ordinal
"""


async def read_spill_queues(
    connection: Connection, wanted: Sequence[Refill], bulk: BulkDecoder, rows_per_fetch: int
) -> SpilledJobs:
    """Reads the next jobs of spill queues, in one snapshot of the database."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await connection.fetch(_POSITIONS_AND_QUARANTINE)
        positions = [Seq(row[0]) for row in found]
        aside = await set_aside_now(connection) if found[0][1] else {}
        longer = [replace(one, limit=one.limit + len(aside)) for one in wanted]
        parts: Sequence[SpilledPart]
        if len(wanted) == 1:
            parts = [await read_spill_queue(connection, longer[0], bulk, rows_per_fetch)]
        else:
            parts = await _read_each(connection, longer, bulk)
    if aside:
        parts = [overlay_spilled(one, part, aside) for one, part in zip(wanted, parts, strict=True)]
    return SpilledJobs(
        [tuple(jobs) for jobs, _ in parts], positions, [tuple(damaged) for _, damaged in parts]
    )


async def read_positions(connection: Connection) -> dict[int, Head]:
    """Returns how far each shard of the projection is."""
    found = await connection.fetch(
        "SELECT shard, folded_seq, folded_hash FROM rota.projection_shards ORDER BY shard"
    )
    return {row[0]: Head(Seq(row[1]), row[2]) for row in found}


async def read_spill_queue(
    connection: Connection, wanted: Refill, bulk: BulkDecoder, rows_per_fetch: int
) -> Part:
    """Reads one spill queue in parts that fit into the processor's caches while they are
    decoded."""
    await connection.execute(_AS_INDEXED)
    jobs: list[JobRecord] = []
    damaged: list[Any] = []
    after, came_in_batches = wanted.after, True
    while len(jobs) < wanted.limit:
        size, lost = min(wanted.limit - len(jobs), rows_per_fetch), len(damaged)
        position, found = (wanted.spill_queue, after, size), None
        if came_in_batches and bulk.number_position is not None:
            found = await _read_batches(connection, position, bulk)
            came_in_batches = found is not None
        if found is None:
            found = bulk.jobs(await connection.fetch(_SPILL_QUEUE, *position), damaged)
        jobs += found
        if len(found) + len(damaged) - lost < size:
            break
        after = max(row[3] for row in damaged[lost:]) if lost < len(damaged) else after
        after = max(after, jobs[-1].spec.arrival_number) if jobs else after
    return jobs, [row[3] for row in damaged]


async def _read_batches(
    connection: Connection, position: tuple[int, int, int], bulk: BulkDecoder
) -> list[JobRecord] | None:
    """Reads a part whose jobs came in batches, as those before did; None: they did not."""
    assert bulk.number_position is not None
    start, width = bulk.number_position
    found = await connection.fetch(_BATCHES, *position, start, width)
    jobs: list[JobRecord] = []
    for life, head, tail, ids, orders, fits, *crcs in sorted(found, key=_by_first_number):
        encoded = EncodedSpec(len(head) + width + len(tail), head, width, tail)
        alike = EncodedBatch(life, encoded, ids.split(","), orders, *crcs)
        batch = bulk.batch(alike) if fits else None
        # Only the index says that they come in order, so it is checked.
        if (
            batch is None
            or orders != sorted(orders)
            or (jobs and jobs[-1].spec.arrival_number > orders[0])
        ):
            bulk.number_position = None
            return None
        jobs += batch
    if len(found) > len(jobs) // BATCH_MIN:
        bulk.number_position = None
    return jobs


def _by_first_number(batch: Any) -> int:
    number: int = batch[4][0]
    return number


async def _fetch_spill_queues(connection: Connection, wanted: Sequence[Refill]) -> Sequence[Any]:
    queues, positions = [one.spill_queue for one in wanted], [one.after for one in wanted]
    found: Sequence[Any] = await connection.fetch(
        _SPILL_QUEUES, queues, positions, [one.limit for one in wanted]
    )
    return found


async def _read_each(
    connection: Connection, wanted: Sequence[Refill], bulk: BulkDecoder
) -> list[Part]:
    """Reads the next jobs of several spill queues."""
    parts: list[Part] = [([], []) for _ in wanted]
    for number, group in groupby(await _fetch_spill_queues(connection, wanted), _by_number):
        part, damaged = list(group), list[Any]()
        jobs, asked = bulk.jobs(part, damaged), wanted[number - 1]
        lost = [row[3] for row in damaged]
        if damaged and len(part) == asked.limit:
            rest = replace(asked, after=part[-1][3], limit=len(damaged))
            more, more_lost = await read_spill_queue(connection, rest, bulk, rest.limit)
            jobs, lost = jobs + more, lost + more_lost
        parts[number - 1] = (jobs, lost)
    return parts


async def load_snapshot(connection: Connection, kept: int) -> Snapshot:
    """Returns all that is live at the journal's end, with the first `kept` jobs of each spill
    queue."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        positions = await read_positions(connection)
        lowest = min(positions.values(), key=_by_seq)
        damage = Damage()
        state = LiveState(await _read_tables(connection, lowest, damage))
        tail = await read_journal(connection, lowest)
        due = await _read_quarantined(connection)
        due += writes_due(tail, {shard: head.seq for shard, head in positions.items()}, SHARDS)
        stored = await _read_rows(connection, state.lacks(jobs_looked_up(due)), damage)
        state.replay(due, stored, tail[-1].head if tail else lowest)
        spilled = await _first_spilled(connection, state, kept, damage)
        return replace(state.snapshot(spilled, tail), damaged=damage.named)


async def read_journal(connection: Connection, after: Head) -> list[JournalRecord]:
    """Returns all records after `after`, verified as a chain."""
    at_head = await connection.fetchval("SELECT hash FROM rota.journal WHERE seq = $1", after.seq)
    confirm_tables(after, at_head)
    chain_reader = ChainReader(after)
    records: list[JournalRecord] = []
    while True:
        found = await connection.fetch(
            "SELECT seq, epoch, at, hash, body FROM rota.journal WHERE seq > $1"
            " ORDER BY seq LIMIT $2",
            chain_reader.head.seq,
            LOAD_RECORDS_PER_FETCH,
        )
        records += [chain_reader.read(*row) for row in found]
        if len(found) < LOAD_RECORDS_PER_FETCH:
            return records


async def _read_quarantined(connection: Connection) -> list[Sequence[AnyWrite]]:
    """Returns all writes that were set aside: they are in no other table."""
    found = await connection.fetch(
        "SELECT body FROM rota.quarantined_writes ORDER BY seq, index, job_id"
    )
    return [[decode_write(row[0]) for row in found]]


async def _read_rows(
    connection: Connection, job_ids: Sequence[JobId], damage: Damage
) -> list[JobRecord]:
    """Returns those of these jobs that are spilled or have ended."""
    bulk, jobs, damaged = BulkDecoder(), list[JobRecord](), list[Any]()
    for table in ("jobs_shelved", "jobs_done") if job_ids else ():
        # Ids mostly rise: new ones are not looked up.
        newest = await connection.fetchval(f"SELECT max(id) FROM rota.{table}")
        wanted = [] if newest is None else [one for one in job_ids if one <= newest]
        if wanted:
            found = await connection.fetch(
                f"SELECT id, life, spec FROM rota.{table} WHERE id = ANY ($1)", wanted
            )
            jobs += bulk.jobs(found, damaged)
    for row in damaged:
        damage.note(DamagedRowError("job", row[0]))
    return jobs


async def _first_spilled(
    connection: Connection, state: LiveState, kept: int, damage: Damage
) -> list[JobRecord]:
    """Returns the first `kept` jobs of each spill queue at the journal's end.

    The tables may still have jobs that newer records moved, and lack jobs that they spilled.
    """
    first: dict[int, list[JobRecord]] = {line: [] for line, n in state.spill_counts.items() if n}
    after = dict.fromkeys(first, -1)
    open_queues = list(first)
    while open_queues:
        wanted = [Refill(line, after[line], kept, 0) for line in open_queues]
        each = await _read_each(connection, wanted, BulkDecoder())
        for line, (jobs, damaged) in zip(tuple(open_queues), each, strict=True):
            state.spill_counts[line] -= len(damaged)
            for number in damaged:
                damage.note(DamagedRowError("spilled job with the arrival number", str(number)))
            first[line] += [job for job in jobs if job.id not in state.touched]
            if len(jobs) < kept or len(first[line]) >= kept:
                open_queues.remove(line)
            else:
                after[line] = jobs[-1].spec.arrival_number
    for job in state.spilled():
        first[job.life.line].append(job)
    return [job for jobs in first.values() for job in sorted(jobs, key=_by_arrival)[:kept]]


async def _read_tables(connection: Connection, lowest: Head, damage: Damage) -> Snapshot:
    """Returns what is live by the tables, without spilled jobs; inside the caller's transaction."""
    sums = await connection.fetchrow(
        "SELECT max(order_next), sum(submitted)::int8 FROM rota.projection_shards"
    )
    assert sums is not None
    jobs = await _live_jobs(connection, damage)
    spilled = await connection.fetch(
        "SELECT line, sum(count)::int8 FROM rota.lines GROUP BY line ORDER BY line"
    )
    executions = await connection.fetch("SELECT id, body FROM rota.executions_live ORDER BY id")
    workers = await connection.fetch("SELECT id, body FROM rota.workers ORDER BY id")
    queues = await connection.fetch("SELECT name, body FROM rota.queues ORDER BY name")
    settings = await connection.fetch("SELECT kind, name, body FROM rota.settings")
    totals = await connection.fetch(
        "SELECT queue, state, sum(count)::int8 FROM rota.totals GROUP BY queue, state"
    )
    losses = await connection.fetchval(
        "SELECT failovers + (SELECT count(*) FROM rota.losses) FROM rota.meta"
    )
    plain = Snapshot(
        head=lowest,
        jobs=jobs,
        executions=damage.whole(rows.execution, executions),
        workers=damage.whole(rows.worker, workers),
        queues=damage.whole(rows.queue, queues),
        settings=read_settings(((row[0], row[1], row[2]) for row in settings), damage),
        next_arrival_number=sums[0],
        totals=Totals(sums[1], tuple((row[0], row[1], row[2]) for row in totals)),
        spill_counts=[(row[0], row[1]) for row in spilled],
        fence_floor=losses * FENCES_PER_LOSS,
    )
    return await _with_schedules(connection, plain, damage)


async def _with_schedules(connection: Connection, plain: Snapshot, damage: Damage) -> Snapshot:
    """Adds schedules and triggers to the snapshot, inside the caller's transaction."""
    decided = await connection.fetch("SELECT decision, why, count FROM rota.decided")
    reacted = await connection.fetch("SELECT word, count FROM rota.reacted")
    schedules = await connection.fetch("SELECT id, course, body FROM rota.schedules ORDER BY id")
    calendars = await connection.fetch("SELECT name, body FROM rota.calendars ORDER BY name")
    return replace(
        plain,
        totals=replace(
            plain.totals,
            decided=tuple((row[0], row[1], row[2]) for row in decided),
            reacted=tuple((row[0], row[1]) for row in reacted),
        ),
        schedules=damage.whole(rows.schedule, schedules),
        calendars=damage.whole(rows.calendar, calendars),
        triggers=await read_triggers(connection, damage),
        buffered_events=await read_buffered_events(connection, damage),
    )


async def _live_jobs(connection: Connection, damage: Damage) -> list[JobRecord]:
    """Reads in pages by id: PgBouncer would lose a cursor."""
    bulk = BulkDecoder()
    jobs: list[JobRecord] = []
    damaged: list[Any] = []
    after = ""
    while True:
        found = await connection.fetch(
            "SELECT id, life, spec FROM rota.jobs_live WHERE id > $1 ORDER BY id LIMIT $2",
            after,
            LOAD_ROWS_PER_FETCH,
        )
        jobs += bulk.jobs(found, damaged)
        if len(found) < LOAD_ROWS_PER_FETCH:
            break
        after = found[-1][0]
    for row in damaged:
        damage.note(DamagedRowError("job", row[0]))
    return jobs
