"""A database that is away, half away, full, busy or no longer the primary: what callers are told,
how soon, and that the next call finds a better connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from rota.core.model import ExecutionId, JobId
from rota.core.outcome import AnyWrite
from rota.store.limits import POSTGRES_READERS, StoreLimits
from rota.store.postgres.connect import connect, parse_address
from rota.store.postgres.errors import as_store_error, breaks_connection
from rota.store.postgres.partitions import make_partitions
from rota.store.postgres.store import PostgresStore, open_postgres
from rota.store.protocol import GENESIS, Seq, StoreError, StoreFullError, UnknownFateError
from rota.store.queries import JobQuery
from tests.chaos.proxy import Mode, Proxy
from tests.postgres.cell import Cell, migrated_cell
from tests.postgres.replica import Replica
from tests.postgres.server import PostgresServer, free_port
from tests.store.conformance import leading, put
from tests.store.conformance_logs_and_files import eventually
from tests.store.conformance_retention import MONDAY, run_id

pytestmark = pytest.mark.postgres

SOON_S = 20.0
"""Far less than the deadlines that would otherwise be waited for, and enough for a slow machine."""
IMPATIENT = StoreLimits(
    close_s=0.2,
    connect_s=0.5,
    projection_close_s=0.2,
    projection_statement_s=0.5,
    append_deadline_s=0.5,
    follow_deadline_s=0.5,
    leader_deadline_s=0.5,
)
"""Deadlines short enough for a test to wait for."""


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


@pytest.fixture
def proxy(cell: Cell) -> Iterator[Proxy]:
    between = Proxy(cell.server.port)
    yield between
    between.close()


@asynccontextmanager
async def through(cell: Cell, proxy: Proxy) -> AsyncIterator[PostgresStore]:
    dsn = cell.server.dsn(cell.database, proxy.port)
    store = await open_postgres(dsn, limits=IMPATIENT)
    try:
        yield store
    finally:
        await store.close()


def failure(code: str, severity: str = "ERROR") -> asyncpg.PostgresError:
    made = asyncpg.PostgresError.new({"C": code, "M": "said so", "S": severity, "V": severity})
    assert isinstance(made, asyncpg.PostgresError)
    return made


@pytest.mark.parametrize(
    ("code", "severity", "kind", "words", "spoiled"),
    [
        ("53100", "ERROR", StoreFullError, "no space left", False),
        ("53200", "ERROR", StoreError, "out of memory", False),
        ("53300", "ERROR", StoreError, "no connection left", False),
        ("25006", "ERROR", StoreError, "replica", True),
        ("40P01", "ERROR", StoreError, "deadlock", False),
        ("55P03", "ERROR", StoreError, "holds a lock", False),
        ("57014", "ERROR", StoreError, "too long", False),
        ("42501", "ERROR", StoreError, "right", False),
        ("57P01", "FATAL", UnknownFateError, "shutting down", True),
        ("57P02", "FATAL", UnknownFateError, "restarting", True),
        ("57P03", "FATAL", UnknownFateError, "starting up", True),
        ("08006", "ERROR", UnknownFateError, "said so", True),
        ("58030", "PANIC", UnknownFateError, "said so", True),
    ],
)
def test_every_error_says_whether_it_happened_and_what_to_do(
    code: str, severity: str, kind: type[StoreError], words: str, *, spoiled: bool
) -> None:
    error = failure(code, severity)
    said = as_store_error(error, "PostgreSQL at host/db")
    assert type(said) is kind
    assert words in str(said)
    assert str(said).startswith("PostgreSQL at host/db")
    assert breaks_connection(error) is spoiled


async def test_no_connection_left_is_said_so_and_goes_on_when_there_is_one() -> None:
    cell = Cell()
    role = f"few_{cell.database}"
    await cell.run(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA rota AUTHORIZATION {role}")
    store = await open_postgres(cell.dsn.replace("rota@", f"{role}@"))
    end_all = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
    try:
        leader = await leading(store)
        await cell.run(f"ALTER ROLE {role} CONNECTION LIMIT 0")
        await cell.run(end_all)

        async def refused() -> bool:
            try:
                await leader.append(put(1))
            except UnknownFateError:
                return False  # the farewell of the connection before
            except StoreError as error:
                return "no connection left" in str(error)
            raise AssertionError("there was a connection")

        await eventually(refused)
        with pytest.raises(StoreError, match="no connection left"):
            await store.queries.head()
        await cell.run(f"ALTER ROLE {role} CONNECTION LIMIT -1")
        again = await leading(store)
        await again.append(put(2))
        assert len(await store.queries.find_jobs(JobQuery())) == again.seq
    finally:
        await store.close()


async def test_a_database_that_stops_answering_is_given_up_and_found_again(
    cell: Cell, proxy: Proxy
) -> None:
    async with through(cell, proxy) as store, asyncio.timeout(SOON_S):
        leader = await leading(store)
        await leader.append(put(1))
        proxy.become(Mode.HOLE)
        with pytest.raises(UnknownFateError, match=r"0\.5 s"):
            await leader.append(put(2))
        with pytest.raises(StoreError, match="no answer"):
            await store.journal.records_after(GENESIS, 9)
        with pytest.raises(StoreError, match="no answer"):
            await store._readers.run(lambda c: c.fetchval("SELECT 1"), 0.5)
        with pytest.raises(StoreError):
            await store.journal.renew(leader.epoch)
        proxy.heal()
        assert await store.journal.renew(leader.epoch)
        again = await leading(store)
        await again.append(put(3))
        assert len(await store.queries.find_jobs(JobQuery())) == again.seq


async def test_a_projection_whose_database_vanished_goes_on_over_another_connection(
    cell: Cell, proxy: Proxy
) -> None:
    async with through(cell, proxy) as store, cell.opened() as other, asyncio.timeout(SOON_S):
        leader = await leading(store)
        await leader.append(put(1))
        await store.queries.jobs([])
        proxy.become(Mode.DEAF)
        await other.journal.append(leader.epoch, leader.head, 1, [put(2)])
        with pytest.raises(StoreError):
            await store._projector.reached(Seq(2))
        proxy.heal()
        assert len(await store.queries.find_jobs(JobQuery())) == 2


async def test_a_server_can_stop_although_its_database_is_away(cell: Cell, proxy: Proxy) -> None:
    dsn = cell.server.dsn(cell.database, proxy.port)
    store = await open_postgres(dsn, limits=IMPATIENT)
    leader = await leading(store)
    await leader.append(put(1))
    reading = asyncio.create_task(store.queries.find_jobs(JobQuery()))
    proxy.become(Mode.HOLE)
    logging = asyncio.create_task(store.logs.append(ExecutionId("x"), 0, b"text"))
    async with asyncio.timeout(SOON_S):
        await store.close()
        await asyncio.gather(reading, logging, return_exceptions=True)


async def test_a_read_that_is_cancelled_ends_although_the_database_does_not_answer(
    cell: Cell, proxy: Proxy
) -> None:
    async with through(cell, proxy) as store:
        await store.queries.head()
        proxy.become(Mode.HOLE)
        before = proxy.swallowed
        reading = asyncio.create_task(store.queries.head())

        async def asked() -> bool:
            return proxy.swallowed > before

        await eventually(asked)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(SOON_S):
                await reading


async def test_a_caller_waits_for_a_connection_no_longer_than_for_its_work(
    cell: Cell,
) -> None:
    short = StoreLimits(append_deadline_s=0.5)
    async with cell.opened(limits=short) as store, cell.connected() as admin:
        leader = await leading(store)
        async with admin.transaction():
            await admin.execute("LOCK TABLE rota.inbox, rota.journal IN EXCLUSIVE MODE")
            outcomes = await asyncio.gather(
                *(store.journal.put_inbox(b"body") for _ in range(6)), return_exceptions=True
            )
        assert all(isinstance(one, StoreError) for one in outcomes)
        certain = [one for one in outcomes if not isinstance(one, UnknownFateError)]
        assert any("nothing was done" in str(one) for one in certain)
        await leader.append(put(1))


async def test_many_readers_keep_no_server_from_following(cell: Cell) -> None:
    async with cell.opened() as store, asyncio.timeout(SOON_S):
        await (await leading(store)).append(put(1))
        crowd = [
            asyncio.create_task(store._readers.run(lambda c: c.execute("SELECT pg_sleep(60)")))
            for _ in range(20)
        ]

        async def crowded() -> bool:
            sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
            return await cell.ask(sleeping) == POSTGRES_READERS

        await eventually(crowded)
        assert len(await store.journal.records_after(GENESIS, 9)) == 1
        assert await store.journal.take_inbox(9) == []
        for one in crowd:
            one.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)


async def test_a_host_that_swallows_everything_does_not_hide_the_next_one(
    cell: Cell, proxy: Proxy
) -> None:
    proxy.become(Mode.HOLE)
    nobody = free_port()
    hosts = f"127.0.0.1:{proxy.port},127.0.0.1:{nobody},127.0.0.1:{cell.server.port}"
    async with asyncio.timeout(SOON_S):
        store = await open_postgres(f"postgresql://rota@{hosts}/{cell.database}")
        await (await leading(store)).append(put(1))
        await store.close()


async def test_hosts_that_are_all_away_are_named(proxy: Proxy) -> None:
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2/none"):
        await open_postgres("postgresql://rota@127.0.0.1:1,127.0.0.1:2/none")


async def test_a_partition_that_is_attached_while_a_row_is_inserted_does_no_harm(
    cell: Cell,
) -> None:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with cell.opened() as store, cell.connected() as folder:
        run = run_id(1, MONDAY)
        async with folder.transaction():
            await make_partitions(folder, Seq(1), MONDAY)
            appending = asyncio.create_task(store.logs.append(run, 0, b"text"))

            async def waiting() -> bool:
                return bool(await cell.ask(waits))

            await eventually(waiting)
        assert await appending == 4
        assert (await store.logs.read(run, 0, 9)).data == b"text"


async def test_servers_that_start_together_wait_for_each_others_partitions(cell: Cell) -> None:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with cell.opened(), cell.connected() as first, cell.connected() as second:
        async with first.transaction():
            await make_partitions(first, Seq(1), MONDAY)
            making = asyncio.create_task(make_partitions(second, Seq(1), MONDAY))

            async def waiting() -> bool:
                return bool(await cell.ask(waits))

            await eventually(waiting)
            # Longer than it has patience for a table's lock.
            await cell.run("SELECT pg_sleep(0.5)")
        await making


@pytest.mark.process
async def test_a_failover_is_followed_to_the_new_primary_and_not_back_to_the_old() -> None:
    server = PostgresServer()
    cell = Cell(server)
    async with cell.opened() as store:
        await (await leading(store)).append(put(1))
        await store.queries.jobs([])
    replica = Replica(server)
    hosts = f"127.0.0.1:{replica.port},127.0.0.1:{server.port}"
    dsn = f"postgresql://rota@{hosts}/{cell.database}?target_session_attrs=read-write"
    try:
        with pytest.raises(StoreError, match="it is a replica"):
            await open_postgres(server.dsn(cell.database, replica.port))
        store = await open_postgres(dsn)
        try:
            await _fail_over(store, server, replica)
            old = parse_address(dsn.replace(hosts, f"127.0.0.1:{server.port}"))
            old.identity.__dict__.update(store.journal._address.identity.__dict__)
            with pytest.raises(StoreError, match="was the primary once"):
                await connect(old, "test", {})
        finally:
            await store.close()
    finally:
        replica.stop()
        server.remove()


@pytest.mark.process
async def test_connections_to_a_former_primary_are_closed_when_the_new_one_is_known() -> None:
    """The old one never noticed: it still answers, and takes writes that nobody will keep."""
    server = PostgresServer()
    cell = Cell(server)
    async with cell.opened():
        pass
    replica = Replica(server)
    hosts = f"127.0.0.1:{replica.port},127.0.0.1:{server.port}"
    try:
        store = await open_postgres(f"postgresql://rota@{hosts}/{cell.database}")
        try:
            await (await leading(store)).append(put(1))
            await store.queries.head()
            await asyncio.to_thread(replica.promote)
            await cell.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                           " WHERE application_name = 'rota append'")  # fmt: skip
            await eventually(lambda: _appended(store, put(2)))
            here = "SELECT inet_server_port()"
            ports = [await store._readers.run(lambda c: c.fetchval(here))]
            ports += [await line.read(lambda c: c.fetchval(here))
                      for line in (store.journal._leader, store.journal._follows)]  # fmt: skip
            assert ports == [replica.port] * 3
            assert [job.id for job in await store.queries.find_jobs(JobQuery())] == ["job-0002"]
        finally:
            await store.close()
    finally:
        replica.stop()
        server.remove()


async def _appended(store: PostgresStore, write: AnyWrite) -> bool:
    """As an engine does it: whatever fails, everything is read again."""
    try:
        await (await leading(store)).append(write)
    except StoreError:
        return False
    return True


async def _fail_over(store: PostgresStore, server: PostgresServer, replica: Replica) -> None:
    leader = await leading(store)
    writes: list[AnyWrite] = [put(2)]
    await leader.append(*writes)
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(replica.promote)
    with pytest.raises(StoreError):
        await leader.append(put(3))
    again = await leading(store)
    await again.append(put(4))
    # The old one comes back as if it had never left: nothing of ours goes there any more.
    await asyncio.to_thread(server.start)
    await again.append(put(5))
    found = [job.id for job in await store.queries.find_jobs(JobQuery())]
    assert found == [JobId("job-0005"), JobId("job-0004"), JobId("job-0001")]
