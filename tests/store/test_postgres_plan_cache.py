"""Plan cache of the projection: plans of empty tables cost nothing later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rota.core.lifecycle import ExecutionState, JobState
from rota.core.model import JobId, Life
from rota.core.outcome import DropJob, MoveJob
from rota.store.limits import PLAN_CACHE_FIRST_WRITES
from rota.store.postgres.plan_cache import BY_KEY, PLANNED
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance import leading, put, run_of

pytestmark = pytest.mark.postgres

_READ = """
SELECT coalesce(sum(idx_tup_read), 0)::int FROM pg_stat_user_indexes
WHERE relname LIKE $1 AND indexrelname NOT LIKE '%_pkey'
"""
"""Entries that were read of other indexes than that of the key."""


@pytest.fixture
async def cell() -> Cell:
    """One whose tables the database knows to be empty."""
    cell = await migrated_cell()
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(put(1), run_of(1))
        await leader.append(DropJob(JobId("job-0001")))
        await store.queries.jobs([])
    async with cell.connected() as connection:
        await connection.execute("VACUUM")
        await connection.execute("ANALYZE")
    return cell


async def test_a_table_that_counts_as_empty_is_still_searched_by_key(cell: Cell) -> None:
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
    """Else each job that goes on after its end is found by reading an index of all that ended."""
    ids = [JobId(f"job-{number:04}") for number in range(1, 3 * PLAN_CACHE_FIRST_WRITES)]
    ended, again = Life(JobState.SUCCEEDED), Life(JobState.RUNNING, lives=2)
    async with cell.opened() as store:
        leader = await leading(store)

        async def move(few: Sequence[JobId], life: Life) -> None:
            await leader.append(*[MoveJob(job_id, life) for job_id in few])
            await store.queries.jobs([])

        await leader.append(put(1))
        await move(ids[:1], ended)
        await move(ids[:1], again)
        await leader.append(*[put(number) for number in range(2, len(ids) + 1)])
        await move(ids[1:], ended)
        for start in range(1, len(ids), 100):
            await move(ids[start : start + 100], again)
    assert await cell.ask(_READ, "jobs_done%") < len(ids)


async def test_ids_of_a_table_that_was_vacuumed_while_empty_are_found_by_key_alone(
    cell: Cell,
) -> None:
    """Its size stays and its rows count as none, so that any index seems as good as the key's."""
    numbers = range(1, 3 * PLAN_CACHE_FIRST_WRITES + 1)
    ids = [JobId(f"job-{number:04}") for number in numbers]
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(*map(put, numbers), *map(run_of, numbers))
        await store.queries.jobs([])
        await leader.append(*map(DropJob, ids))
        await store.queries.jobs([])
    async with cell.connected() as connection:
        await connection.execute("VACUUM (TRUNCATE false, ANALYZE)")
        await connection.execute("SELECT pg_stat_reset()")
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(*map(put, numbers), *map(run_of, numbers))
        await store.queries.jobs([])
        for start in range(0, len(ids), 100):
            few = ids[start : start + 100]
            await leader.append(*[MoveJob(job_id, Life(JobState.RUNNING)) for job_id in few])
            await store.queries.jobs([])
            runs = range(start + 1, start + 101)
            await leader.append(*[run_of(number, ExecutionState.SUCCEEDED) for number in runs])
            await store.queries.jobs([])
    assert await cell.ask(_READ, "%_live") == 0
