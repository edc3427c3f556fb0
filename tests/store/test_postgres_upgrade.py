"""Two versions of program and schema, in every mix that a rolling upgrade passes through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from rota.core.errors import Conflict
from rota.core.inputs import CreateSchedule, NewJob, NewSchedule, Recall, Submit, Timing
from rota.core.model import Instant, JobId, JobState, Life, ScheduleId
from rota.core.outcome import AnyWrite, Order, PutSchedule
from rota.core.records.event_inputs import ReceiveEvents
from rota.core.records.event_writes import PutTrigger
from rota.engine.clock import SystemClock
from rota.engine.loop import Engine
from rota.engine.observe import Counts
from rota.engine.seat import Member
from rota.store.migrate import Migration, known_migrations
from rota.store.postgres.connect import parse_address
from rota.store.postgres.migrate import find_schema, migrate_postgres
from rota.store.postgres.store import PostgresStore, open_postgres
from rota.store.protocol import JobQuery, OccurrenceQuery, SchemaError, StoreError
from rota.store.protocols.access import Role, Token
from rota.store.protocols.nodes import Node
from tests.core.asking import job
from tests.core.planned import plan
from tests.core.stirred import event
from tests.engine.rig import Rig, succeeded
from tests.postgres.cell import Cell
from tests.postgres.previous import NoHistoryError, PreviousProgram
from tests.store.conformance import leading, put
from tests.store.conformance_events import trigger
from tests.store.conformance_retention import MONDAY
from tests.store.conformance_schedules import schedule

pytestmark = pytest.mark.postgres

KNOWN = known_migrations("postgres")
NEEDED = Migration(
    len(KNOWN) + 1, f"{len(KNOWN) + 1:04}_needed.sql", "-- works with programs from: 1\nSELECT 1"
)
CONTRACTS = Migration(
    len(KNOWN) + 1,
    f"{len(KNOWN) + 1:04}_contract.sql",
    f"-- works with programs from: {len(KNOWN) + 1}\nSELECT 1",
)


OCCASIONS = "schedules_and_events"


def before(name: str) -> list[Migration]:
    """The steps that a program has which does not know this one."""
    step = next(step for step in KNOWN if step.name.endswith(f"_{name}.sql"))
    return [one for one in KNOWN if one.number < step.number]


@pytest.fixture
def cell() -> Cell:
    return Cell()


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreviousProgram]:
    folder: Path = tmp_path_factory.mktemp("previous")
    try:
        yield PreviousProgram(folder)
    except NoHistoryError as why:
        pytest.skip(str(why))


@asynccontextmanager
async def serving(cell: Cell, *, migrate: bool) -> AsyncIterator[tuple[PostgresStore, Rig]]:
    """This program's engine, leading on whatever schema there is."""
    store = await open_postgres(cell.dsn, migrate=migrate)
    rig = Rig()
    rig.clock = SystemClock()
    member = Member(node="current", ttl_ms=3_000)
    rig.engine = Engine(store, rig.clock, Timing(), Counts(), member)
    try:
        await rig.engine.start()
        await rig.until_ready()
        yield store, rig
    finally:
        await rig.engine.stop()
        await store.close()


async def whole_lives(store: PostgresStore, rig: Rig, name: str, count: int) -> None:
    await rig.register("current")
    now: Instant = rig.clock.now()
    jobs = [job(f"{name}-{number}", created_at=now, cpu=0.1) for number in range(count)]
    await rig.engine.post(Submit(jobs=tuple(NewJob(id=one.id, spec=one.spec) for one in jobs)))
    orders: tuple[Order, ...] = ()
    done = 0
    while done < count:
        answer = await rig.poll("current", completed=tuple(succeeded(x) for x in orders))
        orders = answer.orders
        done += len(orders)
    await rig.poll("current", completed=tuple(succeeded(x) for x in orders), wait_ms=0)
    found = await store.catalog.jobs([JobId(one.id) for one in jobs])
    assert [one.life.state for one in found] == [JobState.SUCCEEDED] * count


@pytest.mark.parametrize("schema", range(1, len(KNOWN)))
async def test_this_program_does_its_work_on_every_schema_before_and_says_what_is_missing(
    cell: Cell, schema: int
) -> None:
    await migrate_postgres(parse_address(cell.dsn), KNOWN[:schema])
    async with serving(cell, migrate=False) as (store, rig):
        assert store.schema.number == schema
        await whole_lives(store, rig, "life", 20)
        warnings = [one for one in (await store.durability()).warnings if "schema" in one]
        assert len(warnings) == len(KNOWN) - schema
        assert all(f"schema {schema} " in one and "rota migrate" in one for one in warnings)
        # What needs the newer tables does without, each in its own way.
        await store.access.load(b"secret")
        await store.access.add_token(
            Token(id="t", name="n", digest=b"d", role=Role.ADMIN, created_at=1, created_by="test")
        )
        await store.nodes.announce(Node(node="current"))
        assert [one.told.node for one in await store.nodes.everyone()] == ["current"]
        entry = await store.ledger.put_inbox(b"body")
        await store.ledger.drop_inbox([entry.id])
        await store.ledger.inbox_job(JobId("nobody"))
        assert await store.name_cell("") == ""
    assert await cell.ask("SELECT max(number) FROM rota.migrations") == schema


async def test_without_keys_in_the_inbox_a_submission_with_one_is_asked_to_come_back(
    cell: Cell,
) -> None:
    await migrate_postgres(parse_address(cell.dsn), KNOWN[:1])
    store = await open_postgres(cell.dsn, migrate=False)
    try:
        with pytest.raises(StoreError, match="ask again"):
            await store.ledger.put_inbox(b"body", "key")
        assert await store.ledger.take_inbox(9) == []
    finally:
        await store.close()


async def test_the_tables_may_move_on_under_a_program_that_did_not_ask_for_it(cell: Cell) -> None:
    await migrate_postgres(parse_address(cell.dsn), KNOWN[:1])
    async with serving(cell, migrate=False) as (store, rig):
        await whole_lives(store, rig, "before", 5)
        await migrate_postgres(parse_address(cell.dsn))
        await whole_lives(store, rig, "after", 5)
    async with serving(cell, migrate=False) as (store, rig):
        assert store.schema.warnings == ()
        assert len(await store.catalog.find_jobs(JobQuery())) == 10


async def test_a_role_that_may_not_change_the_schema_works_on_the_one_that_is_there(
    cell: Cell,
) -> None:
    await migrate_postgres(parse_address(cell.dsn), KNOWN[:-1])
    role = f"only_{cell.database}"
    await cell.run(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA rota TO {role};"
        f" GRANT ALL ON ALL TABLES IN SCHEMA rota TO {role};"
        f" GRANT ALL ON ALL SEQUENCES IN SCHEMA rota TO {role}"
    )
    address = parse_address(cell.dsn.replace("rota@", f"{role}@"))
    with pytest.raises(SchemaError, match=r"permission denied.*rota migrate"):
        await migrate_postgres(address)
    schema = await find_schema(address)
    assert (schema.number, len(schema.warnings)) == (len(KNOWN) - 1, 1)


async def test_an_owner_of_the_schema_alone_can_migrate(cell: Cell) -> None:
    role = f"owner_{cell.database}"
    await cell.run(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA rota AUTHORIZATION {role}")
    owned = Cell(cell.server)
    owned.dsn = cell.dsn.replace("rota@", f"{role}@")
    async with owned.opened() as store:
        await (await leading(store)).append(put(1))
        assert len(await store.catalog.find_jobs(JobQuery())) == 1


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
        assert len(await store.catalog.find_jobs(JobQuery())) == 1
        owners = "SELECT count(DISTINCT tableowner) FROM pg_tables WHERE schemaname = 'rota'"
        assert await cell.ask(owners) == 1
    finally:
        await store.close()


async def test_a_step_that_a_program_cannot_do_without_is_asked_for(cell: Cell) -> None:
    await migrate_postgres(parse_address(cell.dsn))
    with pytest.raises(SchemaError, match=r"needs \d+_needed.sql: .*rota migrate"):
        await find_schema(parse_address(cell.dsn), [*KNOWN, NEEDED])


async def test_an_empty_database_is_not_touched_without_leave(cell: Cell) -> None:
    with pytest.raises(SchemaError, match=r"no tables of Rota yet.*rota migrate"):
        await open_postgres(cell.dsn, migrate=False)
    assert await cell.ask("SELECT to_regnamespace('rota') IS NULL")


async def test_a_program_that_the_schema_left_behind_while_it_slept_does_not_lead(
    cell: Cell,
) -> None:
    async with cell.opened() as store:
        before = await leading(store)
        await before.append(put(1))
        await migrate_postgres(parse_address(cell.dsn), [*KNOWN, CONTRACTS])
        with pytest.raises(SchemaError, match=f"schema {CONTRACTS.number}"):
            await store.ledger.claim("thawed")
        assert (await store.ledger.observe()) is not None
        assert len(await store.catalog.find_jobs(JobQuery())) == 1


async def test_the_first_job_on_the_shelf_shuts_out_programs_that_do_not_know_of_it(
    cell: Cell,
) -> None:
    older = before("lines")
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(put(1))
        await store.ledger.load()
        assert await migrate_postgres(parse_address(cell.dsn), older) == 0
        new = put(2)
        shelved = msgspec.structs.replace(new, life=Life(JobState.QUEUED, line=7))
        await leader.append(shelved)
        await store.ledger.load()
    with pytest.raises(SchemaError):
        await migrate_postgres(parse_address(cell.dsn), older)


async def test_without_tables_for_them_schedules_and_events_are_refused(cell: Cell) -> None:
    await migrate_postgres(parse_address(cell.dsn), before(OCCASIONS))
    new = CreateSchedule(schedule=NewSchedule(id=ScheduleId("s"), plan=plan()))
    told = ReceiveEvents(events=(event(),), recall=Recall(at=0))
    async with serving(cell, migrate=False) as (store, rig):
        for asked in (new, told):
            with pytest.raises(Conflict, match="rota migrate"):
                await rig.engine.post(asked)
        query = OccurrenceQuery(schedule_id=ScheduleId("s"))
        assert await store.catalog.find_occurrences(query) == []
        await whole_lives(store, rig, "life", 3)


@pytest.mark.parametrize("write", [PutSchedule(schedule()), PutTrigger(trigger("trigger-0"))])
async def test_the_first_schedule_or_trigger_shuts_out_programs_that_know_none(
    cell: Cell, write: AnyWrite
) -> None:
    await migrate_postgres(parse_address(cell.dsn), before(OCCASIONS))
    early = await open_postgres(cell.dsn, migrate=False)
    try:
        async with cell.opened() as store:
            leader = await leading(store)
            await leader.append(put(1))
            await store.ledger.load()
            assert await migrate_postgres(parse_address(cell.dsn), before(OCCASIONS)) == 0
            await leader.append(write)
            await store.ledger.load()
        with pytest.raises(SchemaError):
            await migrate_postgres(parse_address(cell.dsn), before(OCCASIONS))
        # Nor may this very program lead if it started before the tables were there.
        with pytest.raises(SchemaError, match="restart it"):
            await early.ledger.claim("early")
    finally:
        await early.close()


async def test_a_busy_table_holds_a_migration_up_and_not_everybody_behind_it(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.store.postgres.migrate.MIGRATE_TRIES", 1)
    address = parse_address(cell.dsn)
    await migrate_postgres(address, KNOWN[:1])
    async with cell.connected() as report:
        async with report.transaction():
            await report.execute("LOCK TABLE rota.meta, rota.inbox IN ACCESS SHARE MODE")
            with pytest.raises(StoreError, match="holds a lock"):
                await migrate_postgres(address)
            assert await cell.ask("SELECT max(number) FROM rota.migrations") == 1
        assert await migrate_postgres(address) == len(KNOWN) - 1


@pytest.mark.process
async def test_the_program_before_goes_on_with_the_newest_schema_beside_this_one(
    cell: Cell, previous: PreviousProgram
) -> None:
    """It could not serve a PostgreSQL to the network yet; its engine and store are put to work."""
    await migrate_postgres(parse_address(cell.dsn))
    previous.run_lives(cell.dsn, "old-1", 30)
    async with serving(cell, migrate=True) as (store, rig):
        assert len(await store.catalog.find_jobs(JobQuery(limit=1_000))) == 30
        assert [entry.body for entry in await store.ledger.take_inbox(9)] == [
            b"left for the next leader"
        ]
        await whole_lives(store, rig, "new", 30)
    # Back again, on tables and a journal that this program wrote.
    previous.run_lives(cell.dsn, "old-2", 30)
    async with serving(cell, migrate=True) as (store, rig):
        assert len(await store.catalog.find_jobs(JobQuery(limit=1_000))) == 90


@pytest.mark.process
async def test_this_program_brings_the_tables_of_the_one_before_up_to_date(
    cell: Cell, previous: PreviousProgram
) -> None:
    previous.run_lives(cell.dsn, "old", 30)
    assert await cell.ask("SELECT max(number) FROM rota.migrations") == 1
    async with serving(cell, migrate=True) as (store, rig):
        assert store.schema.number == len(KNOWN)
        assert len(await store.catalog.find_jobs(JobQuery(limit=1_000))) == 30
        await whole_lives(store, rig, "new", 10)
