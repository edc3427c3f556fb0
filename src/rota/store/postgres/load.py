"""Loads all that is live, and spilled jobs, from PostgreSQL; a takeover waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.core.model import JobRecord
from rota.core.outcome import Refill
from rota.store import rows
from rota.store.documents import read_settings
from rota.store.limits import LOAD_ROWS_PER_FETCH
from rota.store.postgres.connect import Connection
from rota.store.postgres.schedules_and_events import read_buffered_events, read_triggers
from rota.store.postgres.window import stamp_of
from rota.store.projection.bulk_decode import BulkDecoder, EncodedBatch, EncodedSpec
from rota.store.projection.known_shelf import ShelfRow
from rota.store.protocol import Seq, Snapshot, Totals
from rota.store.table_changes import JobStanding

_by_arrival = attrgetter("spec.arrival_number")
_by_number = itemgetter(3)
BATCH_MIN = 8
"""Jobs per batch, on average, from which it pays to have the database group them."""

_SPILL_QUEUE = """
SELECT id, life, spec FROM rota.jobs_shelved
WHERE line = $1 AND ordinal > $2 ORDER BY ordinal LIMIT $3
"""
_BATCHES = """
SELECT life, substr(spec, 1, $4) AS head, substr(spec, 1 + $4 + $5) AS tail,
    string_agg(id, ','), array_agg(ordinal),
    bool_and(substr(spec, 1 + $4, $5) = substr(int8send(ordinal), 9 - $5))
FROM (
    SELECT id, life, spec, ordinal FROM rota.jobs_shelved
    WHERE line = $1 AND ordinal > $2 ORDER BY ordinal LIMIT $3
) j
GROUP BY life, head, tail
"""
"""The same jobs, grouped if they differ only in their arrival number, which is in the spec after so
many bytes ($4) and so many bytes long ($5)."""
_AS_INDEXED = "SET LOCAL enable_sort = off"
"""Before the table is analysed, the planner takes a spill queue for short, and would read and sort
all of it for each part."""
_SPILL_QUEUES = """
SELECT j.id, j.life, j.spec, v.number
FROM unnest($1::int8[], $2::int8[], $3::int8[])
    WITH ORDINALITY AS v (line, place, size, number)
CROSS JOIN LATERAL (
    SELECT id, life, spec, ordinal FROM rota.jobs_shelved
    WHERE line = v.line AND ordinal > v.place ORDER BY ordinal LIMIT v.size
) j
ORDER BY v.number, j.ordinal
"""


class SpilledJobs(msgspec.Struct):
    """Jobs of some spill queues, read in one snapshot of the database."""

    jobs: list[tuple[JobRecord, ...]]
    """The next ones of each spill queue that was asked for."""
    stamp: str
    """The stamp of the last projection in that snapshot."""
    rows: list[ShelfRow]
    """The same jobs, for the next projection."""


async def read_spill_queues(
    connection: Connection, wanted: Sequence[Refill], bulk: BulkDecoder, rows_per_fetch: int
) -> SpilledJobs:
    """Returns the next jobs of each spill queue."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        stamp = await stamp_of(connection)
        if len(wanted) == 1:
            jobs, found = await read_spill_queue(connection, wanted[0], bulk, rows_per_fetch)
            return SpilledJobs([tuple(jobs)], stamp, found)
        stored = await _fetch_spill_queues(connection, wanted)
    spilled = _jobs_of_each(stored, wanted, bulk)
    return SpilledJobs(spilled, stamp, list(_rows_of(chain.from_iterable(spilled), stored)))


async def read_spill_queue(
    connection: Connection, wanted: Refill, bulk: BulkDecoder, rows_per_fetch: int
) -> tuple[list[JobRecord], list[ShelfRow]]:
    """Reads one spill queue in parts that fit into the processor's caches while they are
    decoded."""
    await connection.execute(_AS_INDEXED)
    jobs: list[JobRecord] = []
    rows_: list[ShelfRow] = []
    after, left, came_in_batches = wanted.after, wanted.limit, True
    while left > 0:
        size = min(left, rows_per_fetch)
        position, found = (wanted.spill_queue, after, size), None
        if came_in_batches and bulk.number_position is not None:
            found = await _read_batches(connection, position, bulk)
            came_in_batches = found is not None
        if found is None:
            stored = await connection.fetch(_SPILL_QUEUE, *position)
            stretch = list(bulk.jobs(stored))
            found = stretch, list(_rows_of(stretch, stored))
        jobs += found[0]
        rows_ += found[1]
        left -= size
        if len(found[0]) < size:
            break
        after = jobs[-1].spec.arrival_number
    return jobs, rows_


async def _read_batches(
    connection: Connection, position: tuple[int, int, int], bulk: BulkDecoder
) -> tuple[list[JobRecord], list[ShelfRow]] | None:
    """Reads a part whose jobs came in batches, as those before did; None: they did not."""
    assert bulk.number_position is not None
    start, width = bulk.number_position
    found = await connection.fetch(_BATCHES, *position, start, width)
    jobs: list[JobRecord] = []
    rows_: list[ShelfRow] = []
    for life, head, tail, ids, orders, fits in sorted(found, key=_by_first_number):
        encoded = EncodedSpec(len(head) + width + len(tail), head, width, tail)
        batch = bulk.batch(EncodedBatch(life, encoded, ids.split(","), orders)) if fits else None
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


def _rows_of(jobs: Iterable[JobRecord], found: Iterable[Any]) -> Iterator[ShelfRow]:
    """Yields the rows from which these jobs were decoded."""
    life, queue, standing = None, "", None
    for job, row in zip(jobs, found, strict=True):
        if standing is None or job.life is not life or job.spec.terms.queue != queue:
            life, queue = job.life, job.spec.terms.queue
            standing = _standing_of(job)
        yield ShelfRow(job.id, job.spec, EncodedSpec(len(row[2]), row[2]), standing)


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


def _jobs_of_each(
    found: Sequence[Any], wanted: Sequence[Refill], bulk: BulkDecoder
) -> list[tuple[JobRecord, ...]]:
    spilled: list[tuple[JobRecord, ...]] = [()] * len(wanted)
    for number, part in groupby(found, _by_number):
        spilled[number - 1] = tuple(bulk.jobs(part))
    return spilled


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
        jobs = await _live_jobs(connection)
        found = await connection.fetch("SELECT line, count FROM rota.lines ORDER BY line")
        spill_counts = [(row[0], row[1]) for row in found]
        wanted = [Refill(spill_queue, -1, kept, 0) for spill_queue, _ in spill_counts]
        stored = await _fetch_spill_queues(connection, wanted)
        jobs += chain.from_iterable(_jobs_of_each(stored, wanted, BulkDecoder()))
        # Nearly in order already: Python's sort makes use of that.
        jobs.sort(key=_by_arrival)
        executions = await connection.fetch("SELECT body FROM rota.executions_live ORDER BY id")
        workers = await connection.fetch("SELECT body FROM rota.workers ORDER BY id")
        queues = await connection.fetch("SELECT body FROM rota.queues ORDER BY name")
        settings = await connection.fetch("SELECT kind, body FROM rota.settings")
        totals = await connection.fetch("SELECT queue, state, count FROM rota.totals")
        plain = Snapshot(
            seq=Seq(meta[0]),
            jobs=jobs,
            executions=[rows.execution(tuple(row)) for row in executions],
            workers=[rows.worker(tuple(row)) for row in workers],
            queues=[rows.queue(tuple(row)) for row in queues],
            settings=read_settings((row[0], row[1]) for row in settings),
            next_arrival_number=meta[1],
            totals=Totals(meta[2], tuple((row[0], row[1], row[2]) for row in totals)),
            spill_counts=spill_counts,
        )
        return await _with_schedules(connection, plain)


async def _with_schedules(connection: Connection, plain: Snapshot) -> Snapshot:
    """Adds schedules and triggers to the snapshot, inside the caller's transaction."""
    decided = await connection.fetch("SELECT decision, why, count FROM rota.decided")
    reacted = await connection.fetch("SELECT word, count FROM rota.reacted")
    schedules = await connection.fetch("SELECT course, body FROM rota.schedules ORDER BY id")
    calendars = await connection.fetch("SELECT body FROM rota.calendars ORDER BY name")
    return replace(
        plain,
        totals=replace(
            plain.totals,
            decided=tuple((row[0], row[1], row[2]) for row in decided),
            reacted=tuple((row[0], row[1]) for row in reacted),
        ),
        schedules=[rows.schedule(tuple(row)) for row in schedules],
        calendars=[rows.calendar(tuple(row)) for row in calendars],
        triggers=await read_triggers(connection),
        buffered_events=await read_buffered_events(connection),
    )


async def _live_jobs(connection: Connection) -> list[JobRecord]:
    """Reads in pages by id: PgBouncer would lose a cursor."""
    bulk = BulkDecoder()
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
    return jobs
