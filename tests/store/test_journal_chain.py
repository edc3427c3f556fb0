"""The journal as a hash chain: a record that is damaged or replaced is noticed by every reader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.store.journal import (
    ChainReader,
    confirm_tables,
    encode_record,
    follow_chain,
    hash_records,
    next_head,
)
from rota.store.limits import StoreLimits
from rota.store.protocol import GENESIS, DivergedError, Epoch, Head, Seq, Store, StoreError
from rota.store.queries import JobQuery
from rota.store.sqlite.memory import MemoryStore
from rota.store.sqlite.store import open_sqlite
from tests.postgres.cell import migrated_cell
from tests.store.conformance import leading, project_all, put

Row = tuple[int, int, int, bytes, bytes]
"""Seq, epoch, at, hash and body, as a store has them."""


def journal(records: int = 4) -> list[Row]:
    """Stored rows of a whole journal."""
    rows: list[Row] = []
    head = GENESIS
    for number in range(1, records + 1):
        body = encode_record([put(number)])
        head = next_head(head, Epoch(1), 100 + number, body)
        rows.append((head.seq, 1, 100 + number, head.hash, body))
    return rows


def head_of(row: Row) -> Head:
    return Head(Seq(row[0]), row[3])


@st.composite
def damages(draw: st.DrawFn) -> tuple[int, Row]:
    """A record's index, and the record with one bit flipped somewhere."""
    number = draw(st.integers(0, 3))
    row = list(journal()[number])
    column = draw(st.integers(0, 4))
    value = row[column]
    if isinstance(value, int):
        row[column] = value ^ (1 << draw(st.integers(0, 40)))
    else:
        damaged = bytearray(value)
        damaged[draw(st.integers(0, len(value) - 1))] ^= 1 << draw(st.integers(0, 7))
        row[column] = bytes(damaged)
    return number, (row[0], row[1], row[2], row[3], row[4])


def test_a_whole_chain_is_read_from_any_record_on() -> None:
    rows = journal()
    for number in range(4):
        after = head_of(rows[number])
        found = follow_chain(after, rows[number:], 9)
        assert [record.head for record in found] == [head_of(row) for row in rows[number + 1 :]]
    assert [record.seq for record in follow_chain(GENESIS, rows, 2)] == [1, 2]


@given(damages())
def test_any_flipped_bit_of_a_record_is_noticed_by_who_reads_it(damage: tuple[int, Row]) -> None:
    number, damaged = damage
    rows = journal()
    chain_reader = ChainReader(GENESIS)
    for row in rows[:number]:
        chain_reader.read(*row)
    with pytest.raises(DivergedError, match=f"record {damaged[0]} does not follow"):
        chain_reader.read(*damaged)
    assert chain_reader.head.seq == number, "it can be read again once it is repaired"
    chain_reader.read(*rows[number])


@given(damages())
def test_any_flipped_bit_is_noticed_by_a_follower_wherever_it_begins(
    damage: tuple[int, Row],
) -> None:
    number, damaged = damage
    rows = journal()
    heads = [head_of(row) for row in rows]
    rows[number] = damaged
    if damaged[0] == number + 1:
        with pytest.raises(DivergedError):
            follow_chain(GENESIS, rows, 9)
    for begin in range(number):
        with pytest.raises(DivergedError):
            follow_chain(heads[begin], rows[begin:], 9)
    if number == 3:  # older records were dropped: it begins with the two that are left
        with pytest.raises(DivergedError):
            follow_chain(heads[0], rows[2:], 9)


def test_a_follower_whose_record_was_replaced_or_is_gone_reads_nothing() -> None:
    rows = journal()
    for found in (rows[1:], []):
        with pytest.raises(DivergedError, match="record 2 that this server read"):
            follow_chain(Head(Seq(2), b"another record's"), found, 9)


def test_a_follower_that_was_away_too_long_gets_the_records_that_are_left() -> None:
    rows = journal()
    found = follow_chain(head_of(rows[0]), rows[2:], 9)
    assert [record.seq for record in found] == [3, 4]
    assert [record.seq for record in follow_chain(head_of(rows[0]), rows[2:], 1)] == [3]


def test_tables_that_are_ahead_of_the_journal_are_refused() -> None:
    head = head_of(journal()[-1])
    confirm_tables(head, head.hash)
    confirm_tables(GENESIS, None)
    for stored in (None, b"another record's"):
        with pytest.raises(DivergedError, match="record 4 that the tables have"):
            confirm_tables(head, stored)


def test_records_without_hashes_are_given_those_that_a_store_would_have_given_them() -> None:
    rows = journal()
    bare = [(seq, epoch, at, body) for seq, epoch, at, _, body in rows]
    assert hash_records(GENESIS.hash, bare) == [(row[0], row[3]) for row in rows]


# In databases


class Database(Protocol):
    """Database of a store, as somebody with an editor would change it."""

    opened: Callable[[], Any]
    """Opens the store."""

    async def run(self, sql: str, *given: object) -> None: ...


class SqliteFile:
    """Data directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        store = open_sqlite(self._folder)
        try:
            yield store
        finally:
            await store.close()

    async def run(self, sql: str, *given: object) -> None:
        connection = apsw.Connection(str(self._folder / "rota.db"))
        try:
            connection.execute(sql.replace("rota.", ""), given)
        finally:
            connection.close()


class PostgresDatabase:
    """Database on the tests' PostgreSQL; nobody leads, so a server stands in soon."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        limits = StoreLimits(projection_stand_in_s=0.05, projection_watch_s=0.05)
        async with self._cell.opened(limits=limits) as store:
            yield store

    async def run(self, sql: str, *given: object) -> None:
        for number in range(1, len(given) + 1):
            sql = sql.replace("?", f"${number}", 1)
        async with self._cell.connected() as connection:
            await connection.execute(sql, *given)


class SharedMemory:
    """Store in memory."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        self._store.journal.start_over()
        yield self._store

    async def run(self, sql: str, *given: object) -> None:
        self._store.journal.connection.execute(sql.replace("rota.", ""), given)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "memory":
        return SharedMemory()
    return SqliteFile(tmp_path) if request.param == "sqlite" else await postgres()


async def postgres() -> Database:
    return PostgresDatabase(await migrated_cell())


async def with_a_record_to_project(database: Database) -> tuple[Head, Row]:
    """Makes a journal of four records, the last of which is in no table.

    Returns that one, and the head before it.
    """
    async with database.opened() as store:
        leader = await leading(store)
        for number in (1, 2, 3):
            await leader.append(put(number))
        await project_all(store)
    # As if the server had ended right after the append.
    body = encode_record([put(4)])
    newest = next_head(leader.head, leader.epoch, 1, body)
    row = (newest.seq, leader.epoch, 1, newest.hash, body)
    await database.run(
        "INSERT INTO rota.journal (seq, epoch, at, hash, body) VALUES (?, ?, ?, ?, ?)", *row
    )
    return leader.head, row


DAMAGES = [
    ("body", lambda row: row[4].replace(b"job-0004", b"job-0005")),
    ("hash", lambda row: bytes(16)),
    ("epoch", lambda row: row[1] + 1),
    ("at", lambda row: row[2] + 1),
    ("seq", lambda row: row[0] + 1),
]


@pytest.mark.parametrize(("column", "change"), DAMAGES, ids=[one[0] for one in DAMAGES])
async def test_a_damaged_record_is_neither_loaded_nor_followed_nor_projected(
    database: Database, column: str, change: Callable[[Row], object]
) -> None:
    _, row = await with_a_record_to_project(database)
    where = row[0] + 1 if column == "seq" else row[0]
    await database.run(f"UPDATE rota.journal SET {column} = ? WHERE seq = 4", change(row))
    async with database.opened() as store:
        words = f"journal record {where} does not follow record 3"
        with pytest.raises(DivergedError, match=words):
            await store.journal.load()
        with pytest.raises(DivergedError, match=words):
            await store.journal.records_after(GENESIS, 9)
        with pytest.raises(StoreError, match=words):
            await store.queries.find_jobs(JobQuery())
    value = row[("seq", "epoch", "at", "hash", "body").index(column)]
    await database.run(f"UPDATE rota.journal SET {column} = ? WHERE seq = {where}", value)
    async with database.opened() as store:
        assert [job.id for job in (await store.journal.load()).jobs] == [
            f"job-000{number}" for number in (1, 2, 3, 4)
        ]
        assert len(await store.queries.find_jobs(JobQuery())) == 4


async def test_a_damaged_record_that_is_in_the_tables_is_noticed_by_who_reads_it(
    database: Database,
) -> None:
    await with_a_record_to_project(database)
    await database.run("UPDATE rota.journal SET body = ? WHERE seq = 2", encode_record([put(9)]))
    async with database.opened() as store:
        with pytest.raises(DivergedError, match="journal record 2 does not follow record 1"):
            await store.journal.records_after(GENESIS, 9)
        found = await store.queries.find_jobs(JobQuery())
        assert sorted(job.id for job in found) == [f"job-000{number}" for number in (1, 2, 3, 4)]


async def test_a_journal_that_lacks_the_newest_record_of_the_tables_is_not_loaded(
    database: Database,
) -> None:
    await with_a_record_to_project(database)
    await database.run("DELETE FROM rota.journal WHERE seq >= 3")
    async with database.opened() as store:
        with pytest.raises(DivergedError, match="record 3 that the tables have"):
            await store.journal.load()


async def test_a_leader_whose_newest_record_was_replaced_appends_no_more_until_it_loads(
    database: Database,
) -> None:
    before, newest = await with_a_record_to_project(database)
    body, epoch = encode_record([put(7)]), Epoch(newest[1])
    replaced = next_head(before, epoch, 1, body)
    await database.run(
        "UPDATE rota.journal SET body = ?, hash = ? WHERE seq = 4", body, replaced.hash
    )
    async with database.opened() as store:
        with pytest.raises(DivergedError, match="another record 4"):
            await store.journal.append(epoch, head_of(newest), 1, [put(5)])
        snapshot = await store.journal.load()
        assert snapshot.head == replaced
        assert [job.id for job in snapshot.jobs][-1] == "job-0007"
        await store.journal.append(epoch, replaced, 1, [put(8)])
        jobs = await store.queries.jobs([put(number).id for number in (4, 5, 7, 8)])
        assert sorted(job.id for job in jobs) == ["job-0007", "job-0008"]
