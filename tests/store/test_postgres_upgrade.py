"""A program and a schema of other versions, and who may change a schema."""

from __future__ import annotations

import pytest

from rota.store.limits import StoreLimits
from rota.store.migrate import Migration, known_migrations
from rota.store.postgres.connect import parse_address
from rota.store.postgres.migrate import check_schema, migrate_postgres
from rota.store.postgres.store import open_postgres
from rota.store.protocol import SchemaError, StoreError
from rota.store.queries import JobQuery
from tests.postgres.cell import Cell
from tests.store.conformance import leading, put
from tests.store.conformance_retention import MONDAY

pytestmark = pytest.mark.postgres

KNOWN = known_migrations("postgres")
NEXT = Migration(
    len(KNOWN) + 1,
    f"{len(KNOWN) + 1:04}_next.sql",
    "ALTER TABLE rota.meta ADD COLUMN note text NOT NULL DEFAULT ''",
)


@pytest.fixture
def cell() -> Cell:
    return Cell()


async def test_a_role_that_may_not_change_the_schema_works_on_the_one_that_is_there(
    cell: Cell,
) -> None:
    await migrate_postgres(parse_address(cell.dsn))
    role = f"only_{cell.database}"
    await cell.run(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA rota TO {role};"
        f" GRANT ALL ON ALL TABLES IN SCHEMA rota TO {role};"
        f" GRANT ALL ON ALL SEQUENCES IN SCHEMA rota TO {role}"
    )
    address = parse_address(cell.dsn.replace("rota@", f"{role}@"))
    with pytest.raises(SchemaError, match=r"permission denied.*rota migrate"):
        await migrate_postgres(address, [*KNOWN, NEXT])
    await check_schema(address)


async def test_an_owner_of_the_schema_alone_can_migrate(cell: Cell) -> None:
    role = f"owner_{cell.database}"
    await cell.run(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA rota AUTHORIZATION {role}")
    owned = Cell(cell.server)
    owned.dsn = cell.dsn.replace("rota@", f"{role}@")
    async with owned.opened() as store:
        await (await leading(store)).append(put(1))
        assert len(await store.queries.find_jobs(JobQuery())) == 1


async def test_two_members_of_one_owner_share_the_tables(cell: Cell) -> None:
    """One migrates, the other serves, as the documents advise."""
    owner, deployer, servant = (f"{name}_{cell.database}" for name in ("o", "d", "s"))
    await cell.run(
        f"CREATE ROLE {owner} NOLOGIN; CREATE SCHEMA rota AUTHORIZATION {owner};"
        f" CREATE ROLE {deployer} LOGIN; GRANT {owner} TO {deployer};"
        f" CREATE ROLE {servant} LOGIN; GRANT {owner} TO {servant};"
        f" ALTER ROLE {deployer} SET role = {owner}; ALTER ROLE {servant} SET role = {owner}"
    )
    await migrate_postgres(parse_address(cell.dsn.replace("rota@", f"{deployer}@")))
    store = await open_postgres(cell.dsn.replace("rota@", f"{servant}@"), migrate=False)
    try:
        await (await leading(store)).append(put(1), at=MONDAY)
        assert len(await store.queries.find_jobs(JobQuery())) == 1
        owners = "SELECT count(DISTINCT tableowner) FROM pg_tables WHERE schemaname = 'rota'"
        assert await cell.ask(owners) == 1
    finally:
        await store.close()


async def test_a_step_that_is_missing_is_asked_for(cell: Cell) -> None:
    await migrate_postgres(parse_address(cell.dsn))
    with pytest.raises(SchemaError, match=r"needs \d+_next.sql: .*rota migrate"):
        await check_schema(parse_address(cell.dsn), [*KNOWN, NEXT])


async def test_an_empty_database_is_not_changed_without_permission(cell: Cell) -> None:
    with pytest.raises(SchemaError, match=r"no tables of Rota yet.*rota migrate"):
        await open_postgres(cell.dsn, migrate=False)
    assert await cell.ask("SELECT to_regnamespace('rota') IS NULL")


async def test_a_server_goes_on_when_its_schema_is_migrated_and_leads_no_more_after_that(
    cell: Cell,
) -> None:
    async with cell.opened() as store:
        before = await leading(store)
        await before.append(put(1))
        await migrate_postgres(parse_address(cell.dsn), [*KNOWN, NEXT])
        await before.append(put(2))
        with pytest.raises(SchemaError, match=f"schema {NEXT.number}"):
            await store.journal.claim("thawed")
        assert (await store.journal.observe()) is not None
        assert len(await store.queries.find_jobs(JobQuery())) == 2
    with pytest.raises(SchemaError, match=f"schema {NEXT.number}"):
        await open_postgres(cell.dsn)


async def test_a_busy_table_holds_a_migration_up_and_not_everybody_behind_it(cell: Cell) -> None:
    address = parse_address(cell.dsn, StoreLimits(migrate_tries=1))
    await migrate_postgres(address)
    async with cell.connected() as report:
        async with report.transaction():
            await report.execute("LOCK TABLE rota.meta IN ACCESS SHARE MODE")
            with pytest.raises(StoreError, match="holds a lock"):
                await migrate_postgres(address, [*KNOWN, NEXT])
            assert await cell.ask("SELECT max(number) FROM rota.migrations") == len(KNOWN)
        assert await migrate_postgres(address, [*KNOWN, NEXT]) == 1
