"""How the fold's statements are planned, and what plans of empty tables cost later: nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rota.core.lifecycle import JobState
from rota.core.model import JobId, Life
from rota.core.outcome import DropJob, MoveJob
from rota.store.limits import FOLD_PLANS_FIRST_WRITES
from rota.store.postgres_plans import BY_KEY, PLANNED
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance import leading, put, run_of

pytestmark = pytest.mark.postgres

_READ = """
SELECT coalesce(sum(idx_tup_read), 0)::int FROM pg_stat_user_indexes
WHERE relname = 'jobs_live' AND indexrelname <> 'jobs_live_pkey'
"""


@pytest.fixture
async def cell() -> Cell:
    """One whose tables the database knows to be empty."""
    cell = await migrated_cell()
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(put(1), run_of(1))
        await leader.append(DropJob(JobId("job-0001")))
        await store.catalog.jobs([])
    async with cell.connected() as connection:
        await connection.execute("VACUUM")
        await connection.execute("ANALYZE")
    return cell


async def test_a_table_thought_empty_is_still_looked_into_by_key(cell: Cell) -> None:
    """Else the next burst of jobs is compared with each of its rows: seconds for some thousand."""
    tables = ["jobs_live", "executions_live"]
    async with cell.connected() as connection:
        # From 18 on the planner forgets in a table of one partition that a scan was forbidden.
        if connection.get_server_version().major < 18:
            tables += ["jobs_done", "executions_done"]
        async with connection.transaction():
            await connection.execute(PLANNED)
            await connection.execute(BY_KEY)
            for table in tables:
                plan = await connection.fetch(
                    f"EXPLAIN UPDATE rota.{table} j SET state = '' FROM"
                    " unnest($1::text[]) AS v (id) WHERE j.id = v.id",
                    ["a"] * 20,
                )
                steps = [row[0] for row in plan if "Scan" in row[0]]
                assert "Function Scan" in steps[0], (table, plan)
                assert all("Bitmap" in step for step in steps[1:]), (table, plan)


async def test_plans_of_an_empty_table_are_not_kept_when_it_fills(cell: Cell) -> None:
    """Else every fold reads an index of all waiting jobs that has their ids in a later column."""
    ids = [JobId(f"job-{number:04}") for number in range(1, 3 * FOLD_PLANS_FIRST_WRITES)]
    async with cell.opened() as store:
        leader = await leading(store)

        async def run(few: Sequence[JobId]) -> None:
            await leader.append(*[MoveJob(job_id, Life(JobState.RUNNING)) for job_id in few])
            await store.catalog.jobs([])

        await leader.append(put(1))
        await run(ids[:1])
        await leader.append(*[put(number) for number in range(2, len(ids) + 1)])
        await store.catalog.jobs([])
        for start in range(1, len(ids), 100):
            await run(ids[start : start + 100])
    assert await cell.ask(_READ) < len(ids)


async def test_a_table_that_was_cleaned_while_empty_is_looked_at_again_when_it_fills(
    cell: Cell,
) -> None:
    """Its size stays and its rows count as none: a single statement could take minutes."""
    count = 3 * FOLD_PLANS_FIRST_WRITES
    ids = [JobId(f"job-{number:04}") for number in range(1, count + 1)]
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(*[put(number) for number in range(1, count + 1)])
        await store.catalog.jobs([])
        await leader.append(*[DropJob(job_id) for job_id in ids])
        await store.catalog.jobs([])
    async with cell.connected() as connection:
        await connection.execute("VACUUM (TRUNCATE false, ANALYZE) rota.jobs_live")
        await connection.execute("SELECT pg_stat_reset()")
    async with cell.opened() as store, cell.connected() as cleaner:
        leader = await leading(store)
        async with cleaner.transaction():
            await cleaner.execute("LOCK TABLE rota.jobs_live IN SHARE UPDATE EXCLUSIVE MODE")
            await leader.append(*[put(number) for number in range(1, count + 1)])
            await store.catalog.jobs([])
            await leader.append(MoveJob(ids[0], Life(JobState.RUNNING)))
            await store.catalog.jobs([])  # nobody waits for the cleaner, and nothing fails
        for start in range(0, count, 100):
            few = ids[start : start + 100]
            await leader.append(*[MoveJob(job_id, Life(JobState.RUNNING)) for job_id in few])
            await store.catalog.jobs([])
    assert await cell.ask(_READ) < 5 * count  # some while it was locked; else thirty times as many
