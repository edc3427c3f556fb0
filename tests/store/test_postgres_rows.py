"""Rows of PostgreSQL's tables are made while the database takes those before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from rota.core.model import ExecutionState, JobState, Life
from rota.store import rows
from rota.store.postgres.store import PostgresStore
from rota.store.protocol import StoreError
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance import Appender, leading, put, run_of

pytestmark = pytest.mark.postgres

JOBS = 50
DONE = Life(JobState.SUCCEEDED, finished_at=9)
_WRITTEN = """
SELECT (SELECT count(*) FROM rota.jobs_done), (SELECT count(*) FROM rota.executions_done),
    (SELECT submitted FROM rota.meta)
"""


async def end_all(leader: Appender) -> None:
    """Jobs that came and went well, and a run of each."""
    runs = [run_of(number, ExecutionState.SUCCEEDED) for number in range(JOBS)]
    await leader.append(*(put(number, DONE) for number in range(JOBS)), *runs)


async def read(store: PostgresStore) -> None:
    """Whoever reads waits for the fold."""
    await store.catalog.jobs([])
    await store.catalog.count_jobs("default")


async def written(cell: Cell) -> tuple[int, ...]:
    async with cell.connected() as admin:
        found = await admin.fetchrow(_WRITTEN)
    assert found is not None
    return tuple(found)


async def test_the_database_takes_the_first_rows_before_the_last_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    seen: dict[str, int] = {}
    copy = asyncpg.Connection.copy_records_to_table

    def noted(row_of: Callable[..., rows.Row]) -> Callable[..., rows.Row]:
        def make(*given: Any) -> rows.Row:
            made.append("")
            return row_of(*given)

        return make

    async def watched(connection: Any, table: str, **how: Any) -> str:
        seen[table] = len(made)
        return await copy(connection, table, **how)

    monkeypatch.setattr(rows, "job_row", noted(rows.job_row))
    monkeypatch.setattr(rows, "execution_row", noted(rows.execution_row))
    monkeypatch.setattr(asyncpg.Connection, "copy_records_to_table", watched)
    cell = await migrated_cell()
    async with cell.opened() as store:
        await end_all(await leading(store))
        await read(store)
    assert seen == {"jobs_done": 0, "executions_done": JOBS}
    assert await written(cell) == (JOBS, JOBS, JOBS)


@pytest.mark.parametrize("broken", ["job_row", "execution_row"])
async def test_a_fold_that_breaks_among_its_rows_leaves_nothing_and_is_done_again(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_of, left = getattr(rows, broken), iter([True] * (JOBS // 2) + [False])

    def make(*given: Any) -> rows.Row:
        if not next(left, True):
            raise ValueError("no such row")
        return row_of(*given)  # type: ignore[no-any-return]

    monkeypatch.setattr(rows, broken, make)
    cell = await migrated_cell()
    async with cell.opened() as store:
        await end_all(await leading(store))
        with pytest.raises(StoreError, match="no such row"):
            await read(store)
        assert await written(cell) == (0, 0, 0)
        await read(store)
    assert await written(cell) == (JOBS, JOBS, JOBS)
