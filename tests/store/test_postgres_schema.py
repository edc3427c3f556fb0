"""Schema of PostgreSQL: migrated by one server at a time; applications write its inbox by SQL."""

from __future__ import annotations

import asyncio
import json
import uuid

import asyncpg
import pytest

from rota.core.model import Instant
from rota.store.migrate import Migration, known_migrations
from rota.store.postgres.connect import parse_address
from rota.store.postgres.migrate import migrate_postgres
from rota.store.postgres.partitions import DAY_MS, make_partitions
from rota.store.protocol import GENESIS, InboxKind, SchemaError, Seq, StoreError
from rota.store.queries import JobQuery
from rota.wire.formats import cell_tag, tag_in
from tests.postgres.cell import Cell
from tests.store.conformance import leading, put, run_of

pytestmark = pytest.mark.postgres

KNOWN = known_migrations("postgres")


@pytest.fixture
def cell() -> Cell:
    return Cell()


async def test_servers_that_start_together_migrate_once(cell: Cell) -> None:
    address = parse_address(cell.dsn)
    done = await asyncio.gather(*(migrate_postgres(address) for _ in range(4)))
    assert sorted(done) == [0, 0, 0, len(KNOWN)]


async def test_a_step_that_fails_leaves_everything_as_it_was(cell: Cell) -> None:
    broken = Migration(2, "broken.sql", "CREATE TABLE rota.journal ()")
    with pytest.raises(StoreError, match="already exists"):
        await migrate_postgres(parse_address(cell.dsn), [KNOWN[0], broken])
    assert await cell.ask("SELECT to_regclass('rota.journal') IS NULL")
    assert await migrate_postgres(parse_address(cell.dsn)) == len(KNOWN)


async def test_a_step_that_was_edited_after_its_release_is_noticed(cell: Cell) -> None:
    await migrate_postgres(parse_address(cell.dsn))
    edited = Migration(1, KNOWN[0].name, KNOWN[0].sql + " ")
    with pytest.raises(SchemaError, match=KNOWN[0].name):
        await migrate_postgres(parse_address(cell.dsn), [edited, *KNOWN[1:]])


@pytest.mark.parametrize("dsn", ["mysql://x", "postgresql://x/y?rota_fast=1"])
async def test_an_address_that_is_none_is_refused(dsn: str) -> None:
    with pytest.raises(StoreError):
        parse_address(dsn)


async def test_all_works_without_named_statements_as_behind_pgbouncer(cell: Cell) -> None:
    async with cell.opened(options="?rota_pgbouncer=1") as store:
        leader = await leading(store)
        await leader.append(put(1, labels=(("a", "b"),)), run_of(1))
        await leader.append(put(2))
        assert len((await store.journal.load()).jobs) == 2
        assert len(await store.queries.find_jobs(JobQuery(labels=(("a", "b"),)))) == 1
        await store.logs.append(run_of(1).execution.id, 0, b"text")
        named = "SELECT count(*) FROM pg_prepared_statements"
        assert await store._readers.run(lambda c: c.fetchval(named)) == 0
        assert await store.journal._appends.read(lambda c: c.fetchval(named)) == 0
        projects = store._projector._lanes[0].connection
        assert await projects.read(lambda c: c.fetchval(named)) == 0


async def test_a_job_submitted_by_sql_exists_if_and_only_if_its_transaction_commits(
    cell: Cell,
) -> None:
    submit = "SELECT rota.submit($1::jsonb)"
    async with cell.opened() as store, cell.connected() as application:
        kept = await application.fetchval(submit, json.dumps({"name": "kept"}))
        rolled_back = application.transaction()
        await rolled_back.start()
        await application.fetchval(submit, json.dumps({"name": "gone"}))
        assert len(await store.journal.take_inbox(9)) == 1
        await rolled_back.rollback()
        (entry,) = await store.journal.take_inbox(9)
        assert entry.kind == InboxKind.SPEC
        assert json.loads(entry.body) == {"job_id": str(kept), "spec": {"name": "kept"}}
        leader = await leading(store)
        await store.journal.append(leader.epoch, GENESIS, 1, [put(1)], [entry.id])
        assert await store.journal.take_inbox(9) == []


async def test_an_entry_that_commits_after_a_later_one_is_not_missed(cell: Cell) -> None:
    submit = "SELECT rota.submit('{}')"
    async with cell.opened() as store, cell.connected() as slow, cell.connected() as quick:
        async with slow.transaction():
            await slow.execute(submit)
            await quick.execute(submit)
            (second,) = await store.journal.take_inbox(9)
            await store.journal.drop_inbox([second.id])
        (first,) = await store.journal.take_inbox(9)
        assert first.id < second.id


async def test_an_id_made_by_sql_is_a_uuid_of_version_seven_and_of_now(cell: Cell) -> None:
    async with cell.opened(), cell.connected() as connection:
        before = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000")
        made = [await connection.fetchval("SELECT rota.new_id()") for _ in range(50)]
        after = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000")
    ids = [uuid.UUID(str(one)) for one in made]
    assert {(one.version, one.variant) for one in ids} == {(7, uuid.RFC_4122)}
    assert all(int(before) <= one.int >> 80 <= int(after) + 1 for one in ids)
    assert len(set(ids)) == 50


async def test_an_id_made_by_sql_carries_the_same_tag_as_one_made_by_a_server(cell: Cell) -> None:
    async with cell.opened() as store, cell.connected() as connection:
        unnamed = await connection.fetchval("SELECT rota.new_id()")
        await store.name_cell("north")
        named = await connection.fetchval("SELECT rota.new_id()")
        await connection.execute("DROP ROLE IF EXISTS maker; CREATE ROLE maker")
        await connection.execute("GRANT USAGE ON SCHEMA rota TO maker; SET ROLE maker")
        made_by_sql = await connection.fetchval("SELECT rota.new_id()")
    assert tag_in(str(unnamed)) == cell_tag("") == "000"
    assert tag_in(str(named)) == tag_in(str(made_by_sql)) == cell_tag("north")


async def test_sql_submits_objects_only_and_not_for_everybody(cell: Cell) -> None:
    async with cell.opened(), cell.connected() as application:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="JSON object"):
            await application.execute("SELECT rota.submit('[1]')")
        await application.execute("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger")
        await application.execute("SET ROLE stranger")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await application.execute("SELECT rota.submit('{}')")


async def test_no_index_asks_for_summaries_at_full_load(cell: Cell) -> None:
    await migrate_postgres(parse_address(cell.dsn))
    asking = (
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'rota'::regnamespace"
        " AND 'autosummarize=on' = ANY (reloptions)"
    )
    async with cell.connected() as connection:
        await make_partitions(connection, Seq(1), Instant(20_000 * DAY_MS))
    days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'rota.jobs_done_by_end'::regclass"
    assert await cell.ask(days) == 3  # two of them are days
    valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'rota.jobs_done_by_end'::regclass"
    assert await cell.ask(valid)
    assert await cell.ask(asking) == 0
