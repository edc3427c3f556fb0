"""Spilled jobs in PostgreSQL: read in parts, along an index, and written back unchanged."""

from __future__ import annotations

import msgspec
import pytest

from rota.core.model import JobId, JobState, Life
from rota.core.outcome import MoveJob, Refill
from rota.store.checksums import sealed
from rota.store.limits import StoreLimits
from rota.store.postgres import load as postgres_load
from rota.store.postgres.store import PostgresStore
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance import Appender, leading, put
from tests.store.conformance_spill import SPILL_QUEUE, ids, put_spilled

pytestmark = pytest.mark.postgres

IDS = [JobId(f"job-{number:04}") for number in range(1, 7)]
RUNNING = Life(JobState.RUNNING, attempt=1)
DONE = Life(JobState.SUCCEEDED, finished_at=9)


async def six_spilled(store: PostgresStore) -> Appender:
    leader = await leading(store)
    await leader.append(*(put_spilled(number) for number in range(1, 7)))
    await project_all(store)
    return leader


async def project_all(store: PostgresStore) -> None:
    """All that was appended; a reader waits for that."""
    await store.queries.jobs([IDS[0]])


async def read(store: PostgresStore) -> None:
    (found,) = (await store.journal.read_spilled([Refill(SPILL_QUEUE, -1, 99, 1)])).jobs
    assert ids(found) == [1, 2, 3, 4, 5, 6]


async def states(cell: Cell) -> dict[str, list[str]]:
    """The numbers of the jobs in each table; a job may be in one only."""
    return {
        table: [row[0].removeprefix("job-000") for row in found]
        for table in ("jobs_shelved", "jobs_live", "jobs_done")
        if (found := await _ids_in(cell, table))
    }


async def _ids_in(cell: Cell, table: str) -> list[tuple[str]]:
    async with cell.connected() as admin:
        found = await admin.fetch(f"SELECT id FROM rota.{table} ORDER BY id")
    return [(row[0],) for row in found]


async def test_a_spilled_job_that_moves_is_in_one_table_only() -> None:
    cell = await migrated_cell()
    async with cell.opened() as store:
        leader = await six_spilled(store)
        await read(store)
        await leader.append(MoveJob(IDS[0], RUNNING), MoveJob(IDS[1], DONE), put(7))
        assert (await store.queries.jobs([IDS[1]]))[0].life == DONE
        lines = dict((await store.journal.load()).spill_counts)
    assert lines == {SPILL_QUEUE: 4}
    assert await states(cell) == {
        "jobs_shelved": ["3", "4", "5", "6"], "jobs_live": ["1", "7"], "jobs_done": ["2"],
    }  # fmt: skip


async def test_fields_that_a_newer_program_stored_stay_when_the_job_ends() -> None:
    cell = await migrated_cell()
    async with cell.opened() as store:
        leader = await six_spilled(store)
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(put_spilled(1).spec))
        newer = sealed(IDS[0], msgspec.msgpack.encode([*stored, "what is that?"]))
        async with cell.connected() as admin:
            await admin.execute(
                "UPDATE rota.jobs_shelved SET spec = $1 WHERE id = $2", newer, IDS[0]
            )
        await read(store)
        await leader.append(put(7))
        await project_all(store)
        await leader.append(MoveJob(IDS[0], RUNNING))
        await project_all(store)
        await leader.append(MoveJob(IDS[0], DONE))
        await project_all(store)
    kept = await cell.ask("SELECT spec FROM rota.jobs_done WHERE id = $1", IDS[0])
    assert kept == newer


async def test_a_spill_queue_is_read_in_parts_and_no_further_than_was_asked() -> None:
    cell = await migrated_cell(StoreLimits(spilled_rows_per_fetch=2))
    async with cell.opened() as store:
        await six_spilled(store)
        for limit in range(1, 8):
            wanted = [Refill(SPILL_QUEUE, 1, limit, 1)]
            (found,) = (await store.journal.read_spilled(wanted)).jobs
            assert ids(found) == [2, 3, 4, 5, 6][:limit]


_MANY = """
INSERT INTO rota.jobs_shelved (id, lives, queue, tenant, name, priority, created_at, life, spec,
    line, ordinal)
SELECT 'job-' || n, 1, 'default', 'default', 'many', 0, 0, '', convert_to(repeat('-', 150), 'UTF8'),
    7, n FROM generate_series(1, 3000) n
"""


@pytest.mark.parametrize("statement", [postgres_load._SPILL_QUEUE, postgres_load._BATCHES])
async def test_a_spill_queue_is_read_along_its_index_also_before_the_table_is_analysed(
    statement: str,
) -> None:
    cell = await migrated_cell()
    asked = statement
    for number, value in enumerate(("7", "10", "2000", "100", "4"), 1):
        asked = asked.replace(f"${number}", value)
    async with cell.connected() as admin, admin.transaction():
        await admin.execute(_MANY)
        await admin.execute(postgres_load._AS_INDEXED)
        plan = "".join(row[0] for row in await admin.fetch(f"EXPLAIN {asked}"))
    assert "jobs_shelved_by_line" in plan
    assert "Sort" not in plan
