"""Jobs inside the application's own transaction, by every library that is promised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from rota.sdk import App, AsyncClient, Client, InvalidError, NotFoundError, WaitTimeoutError
from rota.sdk.transactions import submit_in, submit_in_async
from rota.store.postgres.connect import parse_address
from rota.store.postgres.migrate import migrate_postgres
from rota.wire.limits import PAYLOAD_BYTES_MAX
from tests.postgres.cell import Cell
from tests.sdk.fake_server import TOKEN, SmallServer

JOB = {"name": "hello", "task": {"kind": "noop"}, "payload": {"text": "Ünïcode 100%s $1"}}
URL = "http://127.0.0.1:1"


class Database:
    """A database with Rota's schema in it, and what waits in its inbox."""

    def __init__(self) -> None:
        self.dsn = Cell().dsn
        with asyncio.Runner() as runner:
            runner.run(migrate_postgres(parse_address(self.dsn)))

    def inbox(self) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute("select body from rota.inbox order by id").fetchall()
            return [json.loads(bytes(row[0])) for row in rows]

    def empty(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute("delete from rota.inbox")


@pytest.fixture(scope="module")
def whole() -> Database:
    return Database()


@pytest.fixture
def database(whole: Database) -> Iterator[Database]:
    yield whole
    whole.empty()


@contextmanager
def by_psycopg(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn) as connection:
        yield connection


@contextmanager
def by_psycopg_with_dicts(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        yield connection


@contextmanager
def by_psycopg2(dsn: str) -> Iterator[Any]:
    connection = psycopg2.connect(dsn)
    yield connection
    connection.close()


@contextmanager
def by_psycopg2_with_dicts(dsn: str) -> Iterator[Any]:
    connection = psycopg2.connect(dsn, cursor_factory=psycopg2.extras.RealDictCursor)
    yield connection
    connection.close()


@contextmanager
def by_sqlalchemy(dsn: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(_driver(dsn, "psycopg"), poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


@contextmanager
def by_sqlalchemy_session(dsn: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(_driver(dsn, "psycopg2"), poolclass=NullPool)
    with Session(engine) as session:
        yield session


class Asyncpg:
    """A connection of asyncpg with the manners of the others."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._transaction = connection.transaction()

    async def begin(self) -> None:
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


@asynccontextmanager
async def by_asyncpg(dsn: str) -> AsyncIterator[tuple[Any, Any]]:
    connection = await asyncpg.connect(dsn)
    # As many applications do: Python values in, Python values out.
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
    )
    ending = Asyncpg(connection)
    await ending.begin()
    yield connection, ending
    await connection.close(timeout=5)


@asynccontextmanager
async def by_asyncpg_pool(dsn: str) -> AsyncIterator[tuple[Any, Any]]:
    async with asyncpg.create_pool(dsn, min_size=1) as pool, pool.acquire() as connection:
        ending = Asyncpg(connection)
        await ending.begin()
        yield connection, ending


@asynccontextmanager
async def by_async_psycopg(dsn: str) -> AsyncIterator[tuple[Any, Any]]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield connection, connection


@asynccontextmanager
async def by_async_sqlalchemy(dsn: str) -> AsyncIterator[tuple[Any, Any]]:
    engine = create_async_engine(_driver(dsn, "asyncpg"), poolclass=NullPool)
    async with engine.connect() as connection:
        yield connection, connection


@asynccontextmanager
async def by_async_sqlalchemy_session(dsn: str) -> AsyncIterator[tuple[Any, Any]]:
    engine = create_async_engine(_driver(dsn, "psycopg"), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        yield session, session


def _driver(dsn: str, name: str) -> str:
    return dsn.replace("postgresql://", f"postgresql+{name}://")


BLOCKING = [
    by_psycopg,
    by_psycopg_with_dicts,
    by_psycopg2,
    by_psycopg2_with_dicts,
    by_sqlalchemy,
    by_sqlalchemy_session,
]
AWAITED = [
    by_asyncpg,
    by_asyncpg_pool,
    by_async_psycopg,
    by_async_sqlalchemy,
    by_async_sqlalchemy_session,
]


@pytest.mark.postgres
@pytest.mark.parametrize("connect", BLOCKING)
def test_a_job_exists_if_and_only_if_its_transaction_commits(
    database: Database, connect: Callable[[str], Any]
) -> None:
    with Client(URL, TOKEN) as client, connect(database.dsn) as connection:
        client.submit(JOB, conn=connection)
        assert database.inbox() == []
        connection.rollback()
        assert database.inbox() == []
        kept = client.submit(JOB, conn=connection)
        connection.commit()
    assert database.inbox() == [{"job_id": kept, "spec": JOB}]


@pytest.mark.postgres
@pytest.mark.parametrize("connect", AWAITED)
async def test_a_job_of_asyncio_exists_if_and_only_if_its_transaction_commits(
    database: Database, connect: Callable[[str], AbstractAsyncContextManager[tuple[Any, Any]]]
) -> None:
    async with AsyncClient(URL, TOKEN) as client:
        async with connect(database.dsn) as (connection, ending):
            await client.submit(JOB, conn=connection)
            assert database.inbox() == []
            await ending.rollback()
        assert database.inbox() == []
        async with connect(database.dsn) as (connection, ending):
            kept = await client.submit(JOB, conn=connection)
            await ending.commit()
    assert database.inbox() == [{"job_id": kept, "spec": JOB}]


@pytest.mark.postgres
def test_functions_and_apps_take_part_in_a_transaction(database: Database) -> None:
    app = App(URL, TOKEN)

    @app.job(retries=2)
    def invoice(customer: int) -> str:
        return str(customer)

    with psycopg.connect(database.dsn) as connection:
        first = invoice.submit(42, conn=connection, priority=5)
        second = app.submit({**JOB, "dependencies": [first.id]}, conn=connection)
        more = invoice.options(conn=connection).map([1, 2])
    found = database.inbox()
    assert [one["job_id"] for one in found] == [first.id, second.id, *(job.id for job in more)]
    assert found[0]["spec"] == {
        "name": "invoice",
        "priority": 5,
        "retry": {"max_attempts": 3},
        "payload": {"args": [42], "kwargs": {}},
    }
    app.close()


@pytest.mark.postgres
async def test_functions_take_part_in_a_transaction_of_asyncio(database: Database) -> None:
    async with App(URL, TOKEN) as app:

        @app.job
        async def crawl(url: str) -> None: ...

        async with by_asyncpg(database.dsn) as (connection, ending):
            job = await crawl.options(conn=connection).submit_async("x")
            other = await app.submit_async(JOB, conn=connection)
            await ending.commit()
    assert [one["job_id"] for one in database.inbox()] == [job.id, other.id]


@pytest.mark.postgres
def test_what_a_server_would_refuse_is_refused_before_the_transaction_is_touched(
    database: Database,
) -> None:
    large = {**JOB, "payload": "x" * PAYLOAD_BYTES_MAX}
    with Client(URL, TOKEN) as client, psycopg.connect(database.dsn) as connection:
        for wrong in ({}, {**JOB, "prio": 1}, {**JOB, "ref": "a"}, large):
            with pytest.raises(InvalidError):
                client.submit(wrong, conn=connection)
        client.submit(JOB, conn=connection)
    assert len(database.inbox()) == 1


def test_a_key_does_not_go_with_a_transaction() -> None:
    with Client(URL, TOKEN) as client, pytest.raises(ValueError, match="cannot be used with conn"):
        client.submit(JOB, conn=object(), idempotency_key="k")  # type: ignore[call-overload]


def test_what_is_no_connection_is_refused_with_a_word_on_what_is() -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://nowhere", poolclass=NullPool)
    for wrong in (object(), "postgresql://", engine):
        with pytest.raises(TypeError, match="give a connection of psycopg"):
            submit_in(wrong, JOB)


async def test_a_connection_of_the_other_kind_or_a_pool_is_refused() -> None:
    pool = asyncpg.create_pool("postgresql://nowhere")
    with pytest.raises(TypeError, match="is for asyncio"):
        submit_in(asyncpg.Connection, JOB)
    for wrong in (pool, psycopg.Connection):
        with pytest.raises(TypeError, match="give an asyncio connection"):
            await submit_in_async(wrong, JOB)


def test_in_ones_own_tests_no_database_is_needed() -> None:
    app = App()

    @app.job
    def double(number: int) -> int:
        return 2 * number

    with app.inline() as runs:
        assert double.submit(4, conn="nothing").result() == 8
        assert len(runs) == 1


class Arriving:
    """A connection whose jobs the server learns of a little later."""

    def __init__(self, server: SmallServer, job_id: str) -> None:
        self._server = server
        self._job_id = job_id

    def cursor(self) -> Arriving:
        return self

    def execute(self, sql: str, values: tuple[str]) -> None:
        assert sql.startswith("select rota.submit(")

    def fetchone(self) -> tuple[str]:
        return (self._job_id,)

    def close(self) -> None:
        """Nothing to close."""


def test_a_job_is_waited_for_before_a_server_has_heard_of_it(server: SmallServer) -> None:
    there = server.add_job(status="succeeded")
    del server.jobs[there.job_id]
    with Client(server.url, TOKEN) as client:
        job_id = client.submit(JOB, conn=Arriving(server, there.job_id))
        with pytest.raises(NotFoundError):
            client.job(job_id)
        with pytest.raises(WaitTimeoutError):
            client.wait(job_id, timeout_s=0.15)

        class Late(dict[str, Any]):
            """Has it when it is asked for the third time."""

            asked = 0

            def __contains__(self, key: object) -> bool:
                self.asked += 1
                return self.asked > 2 and super().__contains__(key)

        server.jobs = Late({job_id: there})
        assert client.wait(job_id, timeout_s=30).status == "succeeded"
