"""A fold into PostgreSQL's tables happens as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import asyncpg
import pytest

from rota.core.model import ExecutionState, JobState, Life
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
    await store.queries.jobs([])
    await store.queries.count_jobs("default")


async def written(cell: Cell) -> tuple[int, ...]:
    async with cell.connected() as admin:
        found = await admin.fetchrow(_WRITTEN)
    assert found is not None
    return tuple(found)


@pytest.mark.parametrize("broken", ["jobs_done", "executions_done"])
async def test_a_projection_that_breaks_among_its_rows_leaves_nothing_and_is_repeated(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, breaks = asyncpg.Connection.copy_records_to_table, iter([True])

    def half_of(records: Iterable[Any]) -> Iterator[Any]:
        yield from islice(records, JOBS // 2)
        raise ValueError("no such row")

    async def copy_half(connection: Any, table: str, *, records: Iterable[Any], **how: Any) -> str:
        if table == broken and next(breaks, False):
            records = half_of(records)
        return await copy(connection, table, records=records, **how)

    monkeypatch.setattr(asyncpg.Connection, "copy_records_to_table", copy_half)
    cell = await migrated_cell()
    async with cell.opened() as store:
        await end_all(await leading(store))
        with pytest.raises(StoreError, match="no such row"):
            await read(store)
        assert await written(cell) == (0, 0, 0)
        await read(store)
    assert await written(cell) == (JOBS, JOBS, JOBS)
