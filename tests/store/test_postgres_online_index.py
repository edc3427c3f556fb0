"""A step with large indexes: built before it while others write, and again after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rota.store.limits import StoreLimits
from rota.store.migrate import Migration, known_migrations
from rota.store.postgres.connect import parse_address
from rota.store.postgres.migrate import migrate_postgres
from rota.store.postgres.store import PostgresStore, open_postgres
from rota.store.protocol import StoreError
from rota.store.queries import JobQuery
from tests.postgres.cell import Cell
from tests.store.conformance import leading
from tests.store.conformance_lists import NOW, unknown_ids

pytestmark = pytest.mark.postgres

KNOWN = known_migrations("postgres")
PATIENCE_S = 20.0
WITH_INDEXES = Migration(
    len(KNOWN) + 1,
    f"{len(KNOWN) + 1:04}_with_indexes.sql",
    """
CREATE FUNCTION rota.half_of(at bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT at / 2 $$;
CREATE INDEX jobs_done_by_lives ON rota.jobs_done (lives, id) WHERE lives > 1;
CREATE INDEX jobs_done_by_half ON rota.jobs_done (rota.half_of(created_at));
""",
)
PARTS = """
SELECT w.relname, p.indisvalid, string_agg(c.relname, ' ') FROM pg_index p
JOIN pg_class w ON w.oid = p.indexrelid
JOIN pg_inherits ON inhparent = p.indexrelid JOIN pg_class c ON c.oid = inhrelid
WHERE p.indrelid = 'rota.jobs_done'::regclass GROUP BY 1, 2
"""


@pytest.fixture
def cell() -> Cell:
    return Cell(limits=StoreLimits(online_index_bytes_min=0))


@asynccontextmanager
async def older(cell: Cell) -> AsyncIterator[PostgresStore]:
    """A store with some finished jobs, on the schema before the step."""
    store = await open_postgres(cell.dsn)
    try:
        leader = await leading(store)
        await leader.append(*unknown_ids(30), at=NOW)
        assert len(await store.queries.find_jobs(JobQuery(limit=100))) == 30
        yield store
    finally:
        await store.close()


async def parts(cell: Cell) -> dict[str, tuple[bool, str]]:
    async with cell.connected() as connection:
        found = await connection.fetch(PARTS)
    return {name: (is_valid, of) for name, is_valid, of in found}


async def assert_all_whole(cell: Cell) -> None:
    found = await parts(cell)
    for word in ("by_lives", "by_half"):
        is_valid, of = found[f"jobs_done_{word}"]
        assert is_valid
        assert "_ahead_" in of, "taken, not built again"


async def test_a_steps_indexes_are_built_before_it_and_taken_by_it(cell: Cell) -> None:
    async with older(cell) as store:
        assert (
            await migrate_postgres(parse_address(cell.dsn, cell.limits), [*KNOWN, WITH_INDEXES])
            == 1
        )
        await assert_all_whole(cell)
        assert len(await store.queries.find_jobs(JobQuery(name="a", queue="default"))) == 10


async def test_an_index_that_a_crash_left_unfinished_is_built_again(cell: Cell) -> None:
    async with older(cell):
        # The step fails after its indexes were built, and one of them is as a crash leaves it.
        number = WITH_INDEXES.number + 1
        broken = Migration(number, f"{number:04}_broken.sql", "SELECT none")
        with pytest.raises(StoreError, match="none"):
            await migrate_postgres(
                parse_address(cell.dsn, cell.limits), [*KNOWN, WITH_INDEXES, broken]
            )
        left = "relname LIKE 'jobs\\_done%\\_ahead\\_%'"
        built = await cell.ask(f"SELECT count(*) FROM pg_class WHERE {left}")
        assert built
        await cell.run(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid ="
            f" (SELECT min(oid::int8)::oid FROM pg_class WHERE {left})"
        )
        await migrate_postgres(parse_address(cell.dsn, cell.limits), [*KNOWN, WITH_INDEXES])
        await assert_all_whole(cell)
        assert await cell.ask(f"SELECT count(*) FROM pg_class WHERE {left}") == built


async def test_the_store_is_written_and_read_while_an_index_waits_to_be_finished(
    cell: Cell,
) -> None:
    async with older(cell) as store, cell.connected() as report:
        leader = await leading(store)
        async with report.transaction():
            # Whoever writes to the day keeps an index of it from being finished.
            await report.execute("LOCK TABLE rota.jobs_done IN ROW EXCLUSIVE MODE")
            migrating = asyncio.create_task(
                migrate_postgres(parse_address(cell.dsn, cell.limits), [*KNOWN, WITH_INDEXES])
            )
            async with asyncio.timeout(PATIENCE_S):
                while not await cell.ask(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE query LIKE 'CREATE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'"
                ):
                    assert not migrating.done()
                    await asyncio.sleep(0.01)
            await leader.append(*unknown_ids(60)[30:], at=NOW)
            assert len(await store.queries.find_jobs(JobQuery(limit=100))) == 60
            assert not migrating.done()
        assert await migrating
        await assert_all_whole(cell)
        assert len(await store.queries.find_jobs(JobQuery(limit=100))) == 60
