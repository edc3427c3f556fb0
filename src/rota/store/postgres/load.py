"""Loads all that is live, and spilled jobs, from PostgreSQL; a takeover waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.core.model import JobRecord
from rota.core.outcome import Refill
from rota.store import rows
from rota.store.checksums import CRC_BYTES
from rota.store.damage import Damage
from rota.store.documents import read_settings
from rota.store.errors import DamagedRowError
from rota.store.limits import LOAD_ROWS_PER_FETCH
from rota.store.postgres.connect import Connection
from rota.store.postgres.schedules_and_events import read_buffered_events, read_triggers
from rota.store.postgres.window import stamp_of
from rota.store.projection.bulk_decode import BulkDecoder, EncodedBatch, EncodedSpec
from rota.store.projection.known_shelf import ShelfRow
from rota.store.protocol import Seq, Snapshot, SpilledJobs, Totals
from rota.store.table_changes import JobStanding

_by_arrival = attrgetter("spec.arrival_number")
_by_number = itemgetter(4)
BATCH_MIN = 8
"""Jobs per batch, on average, from which it pays to have the database group them."""

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


class SpillRead(msgspec.Struct):
    """Jobs of some spill queues, read in one snapshot of the database."""

    jobs: list[SpilledJobs]
    """The next ones of each spill queue that was asked for."""
    stamp: str
    """The stamp of the last projection in that snapshot."""
    rows: list[ShelfRow]
    """The same jobs, for the next projection."""


async def read_spill_queues(
    connection: Connection, wanted: Sequence[Refill], bulk: BulkDecoder, rows_per_fetch: int
) -> SpillRead:
    """Returns the next jobs of each spill queue."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        stamp = await stamp_of(connection)
        if len(wanted) == 1:
            jobs, found = await read_spill_queue(connection, wanted[0], bulk, rows_per_fetch)
            return SpillRead([jobs], stamp, found)
        spilled, found = await _read_each(connection, wanted, bulk)
    return SpillRead(spilled, stamp, found)


async def read_spill_queue(
    connection: Connection, wanted: Refill, bulk: BulkDecoder, rows_per_fetch: int
) -> tuple[SpilledJobs, list[ShelfRow]]:
    """Reads one spill queue in parts that fit into the processor's caches while they are
    decoded."""
    await connection.execute(_AS_INDEXED)
    jobs: list[JobRecord] = []
    rows_: list[ShelfRow] = []
    damaged: list[Any] = []
    after, came_in_batches = wanted.after, True
    while len(jobs) < wanted.limit:
        size, lost = min(wanted.limit - len(jobs), rows_per_fetch), len(damaged)
        position, found = (wanted.spill_queue, after, size), None
        if came_in_batches and bulk.number_position is not None:
            found = await _read_batches(connection, position, bulk)
            came_in_batches = found is not None
        if found is None:
            stored = await connection.fetch(_SPILL_QUEUE, *position)
            stretch = bulk.jobs(stored, damaged)
            found = stretch, list(_rows_of(stretch, stored))
        jobs += found[0]
        rows_ += found[1]
        if len(found[0]) + len(damaged) - lost < size:
            break
        after = max(row[3] for row in damaged[lost:]) if lost < len(damaged) else after
        after = max(after, jobs[-1].spec.arrival_number) if jobs else after
    return SpilledJobs(tuple(jobs), tuple(row[3] for row in damaged)), rows_


async def _read_batches(
    connection: Connection, position: tuple[int, int, int], bulk: BulkDecoder
) -> tuple[list[JobRecord], list[ShelfRow]] | None:
    """Reads a part whose jobs came in batches, as those before did; None: they did not."""
    assert bulk.number_position is not None
    start, width = bulk.number_position
    found = await connection.fetch(_BATCHES, *position, start, width)
    jobs: list[JobRecord] = []
    rows_: list[ShelfRow] = []
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
        standing = _standing_of(batch[0])
        rows_ += [ShelfRow(job.id, job.spec, encoded, standing) for job in batch]
    if len(found) > len(jobs) // BATCH_MIN:
        bulk.number_position = None
    return jobs, rows_


def _rows_of(jobs: Sequence[JobRecord], found: Sequence[Any]) -> Iterator[ShelfRow]:
    """Yields the rows from which these jobs were decoded; `found` may have damaged ones too."""
    if len(jobs) < len(found):
        ids = {job.id: None for job in jobs}
        found = [row for row in found if row[0] in ids]
    life, queue, standing = None, "", None
    for job, row in zip(jobs, found, strict=True):
        if standing is None or job.life is not life or job.spec.terms.queue != queue:
            life, queue = job.life, job.spec.terms.queue
            standing = _standing_of(job)
        spec = row[2][:-CRC_BYTES]
        yield ShelfRow(job.id, job.spec, EncodedSpec(len(spec), spec), standing)


def _standing_of(job: JobRecord) -> JobStanding:
    life = job.life
    return JobStanding(life.state, life.lives, job.spec.terms.queue, life.line)


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
) -> tuple[list[SpilledJobs], list[ShelfRow]]:
    """Reads the next jobs of several spill queues."""
    spilled = [SpilledJobs(())] * len(wanted)
    rows_: list[ShelfRow] = []
    stored = await _fetch_spill_queues(connection, wanted)
    for number, group in groupby(stored, _by_number):
        part = list(group)
        damaged: list[Any] = []
        jobs = tuple(bulk.jobs(part, damaged))
        rows_ += _rows_of(jobs, part)
        asked = wanted[number - 1]
        spilled[number - 1] = SpilledJobs(jobs, tuple(row[3] for row in damaged))
        if damaged and len(part) == asked.limit:
            rest = replace(asked, after=part[-1][3], limit=len(damaged))
            more, more_rows = await read_spill_queue(connection, rest, bulk, rest.limit)
            rows_ += more_rows
            spilled[number - 1] = SpilledJobs(
                jobs + more.jobs, spilled[number - 1].damaged + more.damaged
            )
    return spilled, rows_


async def read_snapshot(connection: Connection, kept: int, stamp: str) -> Snapshot | None:
    """Loads all that is live as of the watermark, with the first `kept` jobs of each spill queue.

    None: another server has projected since the stamp was read. It may have written ahead of the
    watermark, and reading on from there would count twice.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        if await stamp_of(connection) != stamp:
            return None
        meta = await connection.fetchrow("SELECT folded_seq, order_next, submitted FROM rota.meta")
        assert meta is not None
        damage = Damage()
        jobs, spill_counts = await _jobs(connection, kept, damage)
        executions = await connection.fetch("SELECT id, body FROM rota.executions_live ORDER BY id")
        workers = await connection.fetch("SELECT id, body FROM rota.workers ORDER BY id")
        queues = await connection.fetch("SELECT name, body FROM rota.queues ORDER BY name")
        settings = await connection.fetch("SELECT kind, name, body FROM rota.settings")
        totals = await connection.fetch("SELECT queue, state, count FROM rota.totals")
        plain = Snapshot(
            seq=Seq(meta[0]),
            jobs=jobs,
            executions=damage.whole(rows.execution, executions),
            workers=damage.whole(rows.worker, workers),
            queues=damage.whole(rows.queue, queues),
            settings=read_settings(((row[0], row[1], row[2]) for row in settings), damage),
            next_arrival_number=meta[1],
            totals=Totals(meta[2], tuple((row[0], row[1], row[2]) for row in totals)),
            spill_counts=spill_counts,
        )
        return replace(await _with_schedules(connection, plain, damage), damaged=damage.named)


async def _jobs(
    connection: Connection, kept: int, damage: Damage
) -> tuple[list[JobRecord], list[tuple[int, int]]]:
    """Returns the live jobs in order of arrival, and how many are in each spill queue."""
    jobs = await _live_jobs(connection, damage)
    counts = await connection.fetch("SELECT line, count FROM rota.lines ORDER BY line")
    wanted = [Refill(row[0], -1, kept, 0) for row in counts]
    spilled, _ = await _read_each(connection, wanted, BulkDecoder())
    for one in spilled:
        jobs += one.jobs
        for number in one.damaged:
            damage.note(DamagedRowError("spilled job with the arrival number", str(number)))
    # Nearly in order already: Python's sort makes use of that.
    jobs.sort(key=_by_arrival)
    whole = zip(counts, spilled, strict=True)
    return jobs, [(row[0], row[1] - len(one.damaged)) for row, one in whole]


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
