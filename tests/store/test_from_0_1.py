"""Stores of 0.1: refused by servers, brought over once by `rota migrate`, whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from rota.core.model import JobId, JobState
from rota.store.migrate import known_migrations, missing_in_file
from rota.store.postgres.connect import parse_address
from rota.store.postgres.durability import check_up
from rota.store.postgres.migrate import migrate_postgres
from rota.store.protocol import SchemaError
from rota.store.queries import JobQuery
from rota.store.sqlite.store import migrate_directory, open_sqlite
from tests.postgres.cell import Cell
from tests.store.conformance import leading, put
from tests.store.of_0_1 import NoHistoryError, ProgramOf01

pytestmark = pytest.mark.process

COUNT = 20
COLUMNS = """
SELECT c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.attcompression::text, (SELECT array_agg(o ORDER BY o) FROM unnest(c.reloptions) o),
    pg_get_expr(d.adbin, d.adrelid)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'rota'::regnamespace AND c.relname !~ '_[0-9]+'
    AND c.relname NOT IN ('jobs_done_by_end', 'jobs_done_rest_finished_at_idx')
ORDER BY 1, a.attnum
"""
"""Days and pieces of the journal are made as time goes on. Two indexes have other options, to the
same effect: `autosummarize` cannot be changed on a table as a whole."""
INDEXES = """
SELECT tablename, indexname, indexdef FROM pg_indexes
WHERE schemaname = 'rota' AND indexname !~ '_[0-9]+'
    AND indexname NOT IN ('jobs_done_by_end', 'jobs_done_rest_finished_at_idx')
ORDER BY 1, 2
"""
FUNCTIONS = """
SELECT proname, pg_get_functiondef(oid), proacl::text FROM pg_proc
WHERE pronamespace = 'rota'::regnamespace ORDER BY 1
"""


@pytest.fixture(scope="module")
def of_0_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramOf01]:
    try:
        yield ProgramOf01(tmp_path_factory.mktemp("of_0_1"))
    except NoHistoryError as why:
        pytest.skip(str(why))


async def assert_whole(store: Any) -> None:
    """All that 0.1 left is there, and the store goes on from it."""
    jobs = {job.id: job for job in await store.catalog.find_jobs(JobQuery(limit=1_000))}
    for name, state in (("ran", JobState.SUCCEEDED), ("waits", JobState.QUEUED)):
        ids = [JobId(f"life-{name}-{number:04}") for number in range(COUNT)]
        assert [jobs[one].life.state for one in ids] == [state] * COUNT
    (execution,) = await store.catalog.executions([jobs[JobId("life-ran-0019")].life.execution_id])
    assert (await store.logs.read(execution.id, 0, 9)).data == b"text"
    snapshot = await store.ledger.load(1_000)
    assert [job.id for job in snapshot.jobs] == [
        f"life-waits-{number:04}" for number in range(COUNT)
    ]
    assert sum(count for _, count in snapshot.lines), "some of them are spilled"
    assert snapshot.totals.submitted == 2 * COUNT
    assert await store.name_cell("") == "north"
    (entry,) = await store.ledger.take_inbox(9)
    assert entry.body == b"left for the next leader"
    assert await store.ledger.inbox_job(JobId("in-the-inbox")) == entry
    seq = (await store.catalog.head())[1]
    leader = await leading(store)
    leader.seq = seq
    await leader.append(put(1))
    assert len(await store.catalog.find_jobs(JobQuery(limit=1_000))) == 2 * COUNT + 1


async def test_a_data_directory_of_0_1_comes_over_with_one_migrate(
    of_0_1: ProgramOf01, tmp_path: Path
) -> None:
    of_0_1.run_lives(str(tmp_path), "life", COUNT)
    with pytest.raises(SchemaError, match=r"0\.1: stop all servers .* `rota migrate`"):
        open_sqlite(tmp_path)
    missing = missing_in_file(tmp_path / "rota.db", "sqlite")
    assert [step.name for step in missing] == ["from_0_1.sql"]
    assert missing_in_file(tmp_path / "logs.db", "sqlite_logs") == []
    migrate_directory(tmp_path)
    migrate_directory(tmp_path)  # once more changes nothing
    store = open_sqlite(tmp_path)
    try:
        await assert_whole(store)
    finally:
        await store.close()


async def test_a_data_directory_of_0_1_has_the_baseline_schema_then(
    of_0_1: ProgramOf01, tmp_path: Path
) -> None:
    of_0_1.run_lives(str(tmp_path / "old"), "life", COUNT)
    migrate_directory(tmp_path / "old")
    migrate_directory(tmp_path / "new")
    for file in ("rota.db", "logs.db"):
        assert sqlite_schema(tmp_path / "old" / file) == sqlite_schema(tmp_path / "new" / file)


def sqlite_schema(path: Path) -> dict[str, Any]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute(
            "SELECT name, wr, strict FROM pragma_table_list WHERE schema = 'main' ORDER BY 1"
        ).fetchall()
        columns = {
            name: connection.execute(f"SELECT * FROM pragma_table_xinfo('{name}')").fetchall()
            for name, *_ in tables
        }
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY 1"
        ).fetchall()
        steps = connection.execute("SELECT number, checksum FROM migrations").fetchall()
    finally:
        connection.close()
    return {"tables": tables, "columns": columns, "indexes": indexes, "steps": steps}


@pytest.mark.postgres
async def test_a_database_of_0_1_comes_over_with_one_migrate(of_0_1: ProgramOf01) -> None:
    cell = Cell()
    of_0_1.run_lives(cell.dsn, "life", COUNT)
    with pytest.raises(SchemaError, match=r"0\.1: stop all servers .* `rota migrate`"):
        async with cell.opened():
            pass
    assert (await check_up(cell.dsn)).missing == ("from_0_1.sql",)
    address = parse_address(cell.dsn)
    await migrate_postgres(address, from_0_1=True)
    await migrate_postgres(address, from_0_1=True)  # once more changes nothing
    async with cell.opened() as store:
        await assert_whole(store)


@pytest.mark.postgres
async def test_a_database_of_0_1_has_the_baseline_schema_then(of_0_1: ProgramOf01) -> None:
    old, new = Cell(), Cell()
    of_0_1.run_lives(old.dsn, "life", COUNT)
    for cell in (old, new):
        await migrate_postgres(parse_address(cell.dsn), from_0_1=True)
    for asked in (COLUMNS, INDEXES, FUNCTIONS):
        async with old.connected() as before, new.connected() as after:
            assert await before.fetch(asked) == await after.fetch(asked)
    steps = "SELECT number, name, checksum FROM rota.migrations"
    (step,) = known_migrations("postgres")
    async with old.connected() as before:
        assert [tuple(row) for row in await before.fetch(steps)] == [
            (step.number, step.name, step.checksum)
        ]


@pytest.mark.postgres
async def test_a_program_of_0_1_neither_leads_nor_appends_after_the_migration(
    of_0_1: ProgramOf01,
) -> None:
    cell = Cell()
    of_0_1.run_lives(cell.dsn, "life", COUNT)
    epoch = "SELECT epoch FROM rota.leader"
    before = await cell.ask(epoch)
    await migrate_postgres(parse_address(cell.dsn), from_0_1=True)
    assert await cell.ask(epoch) != before, "what a leader still has on its way is fenced off"
    assert of_0_1.try_lives(cell.dsn, "late", COUNT).returncode != 0
    assert await cell.ask("SELECT count(*) FROM rota.jobs_live WHERE id LIKE 'late%'") == 0
