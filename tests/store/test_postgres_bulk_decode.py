"""Batches on PostgreSQL's shelf: put together by the database, and read as each would be alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.model import JobId, JobRecord, JobState, Life, Spec
from rota.core.outcome import Refill
from rota.store.checksums import sealed
from rota.store.postgres.load import read_spill_queue
from rota.store.projection.bulk_decode import BulkDecoder
from tests.core.asking import spec
from tests.example_counts import examples
from tests.postgres.cell import Cell, migrated_cell

pytestmark = pytest.mark.postgres

SPILL_QUEUE = 7
encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


_cells: list[Cell] = []


async def one_cell() -> Cell:
    """The same for all: a new one for each example takes longer than all that is asked of it."""
    if not _cells:
        _cells.append(await migrated_cell())
    return _cells[0]


class Batch(msgspec.Struct, frozen=True):
    """Jobs that differ in nothing but their ids and places; ids are like no others if so asked."""

    jobs: int
    name: str = "job"
    created_at: int = 1_700_000_000_000
    ready_at: int = 5
    is_of_newer: bool = False
    """Whether a newer program has stored them, with a field that this one does not know."""
    id_part: str = "-"


BATCHES = st.builds(
    Batch,
    st.integers(1, 20),
    st.sampled_from(["job", "another job"]),
    st.sampled_from([7, 1_700_000_000_000, 1_700_000_000_001]),
    st.sampled_from([5, 6]),
    st.booleans(),
    st.sampled_from(["-", "-", "-", ","]),
)
FIRST_PLACES = st.sampled_from([0, 120, 251, 70_000, 65_531, 2**32 - 5, 2**40])
"""Some of them where a number becomes longer."""


def rows_of(
    batches: Iterable[Batch], first: int, step: int = 1
) -> list[tuple[str, bytes, bytes, int]]:
    """Id, life, spec, place; a step is longer than one where jobs of other lines came between."""
    rows, place = [], first
    for batch in batches:
        life = encode(
            Life(JobState.QUEUED, reason="ready", ready_at=batch.ready_at, line=SPILL_QUEUE)
        )
        for _ in range(batch.jobs):
            asked = replace(
                spec(name=batch.name, created_at=batch.created_at), arrival_number=place
            )
            more = ["what is that?"] if batch.is_of_newer else []
            stored = encode([*decode(encode(asked)), *more])
            job_id = f"{place:08}{batch.id_part}{place}"
            rows.append((job_id, sealed(job_id, life), sealed(job_id, stored), place))
            place += step
    return rows


async def put(connection: asyncpg.Connection[Any], rows: Sequence[tuple[Any, ...]]) -> None:
    """Makes these the only spilled jobs."""
    await connection.execute("DELETE FROM rota.jobs_shelved")
    await connection.executemany(
        "INSERT INTO rota.jobs_shelved (id, lives, queue, tenant, name, priority, created_at, life,"
        f" spec, line, ordinal) VALUES ($1, 1, 'q', 't', 'n', 0, 0, $2, $3, {SPILL_QUEUE}, $4)",
        rows,
    )


@settings(max_examples=examples(20, 400), deadline=None)
@given(
    st.lists(BATCHES, max_size=8),
    FIRST_PLACES,
    st.sampled_from([1, 2]),
    st.sampled_from([(1, 30), (5, 30), (20, 120), (40, 120)]),
)
async def test_spilled_jobs_are_read_as_they_are_stored(
    batches: list[Batch], first: int, step: int, sizes: tuple[int, int]
) -> None:
    cell, (stretch, limit) = await one_cell(), sizes
    rows = rows_of(batches, first, step)
    async with cell.connected() as connection, connection.transaction():
        await put(connection, rows)
        bulk = BulkDecoder()
        for _ in range(2):  # the second time with all that was learned of them
            jobs, _ = await read_spill_queue(
                connection, Refill(SPILL_QUEUE, first - 1, limit, 1), bulk, stretch
            )
            assert jobs == [
                JobRecord(
                    JobId(row[0]), decode(row[2][:-4], type=Spec), decode(row[1][:-4], type=Life)
                )
                for row in rows[:limit]
            ]


@pytest.mark.parametrize("longer", [2**8, 2**16, 2**32])
async def test_spilled_jobs_are_read_where_arrival_numbers_become_longer_and_have_gaps(
    longer: int,
) -> None:
    """The first that is longer looks as if it were not: its upper half is as its lower one."""
    cell = await one_cell()
    first = longer - 39
    rows = rows_of([Batch(40)], first, step=2)
    assert longer + 1 in [row[3] for row in rows]
    async with cell.connected() as connection, connection.transaction():
        await put(connection, rows)
        jobs, _ = await read_spill_queue(
            connection, Refill(SPILL_QUEUE, first - 1, 40, 1), BulkDecoder(), 10
        )
    assert [(job.id, job.spec.arrival_number) for job in jobs] == [(row[0], row[3]) for row in rows]


async def test_damaged_spilled_jobs_are_told_and_others_are_read_in_their_place() -> None:
    cell = await one_cell()
    rows = rows_of([Batch(60)], 70_000)
    for number in (3, 21, 40):
        rows[number] = (*rows[number][:2], rows[number][2][:-1] + b"?", rows[number][3])
    async with cell.connected() as connection, connection.transaction():
        await put(connection, rows)
        bulk = BulkDecoder()
        for _ in range(2):
            jobs, damaged = await read_spill_queue(
                connection, Refill(SPILL_QUEUE, 69_999, 50, 1), bulk, 10
            )
            expected = [row[3] for row in rows if row[3] not in (70_003, 70_021, 70_040)][:50]
            assert [job.spec.arrival_number for job in jobs] == expected
            assert damaged == [70_003, 70_021, 70_040]
