"""Migrations: in order, recorded, all or none, and never backwards."""

from __future__ import annotations

import apsw
import pytest

from rota.store.migrate import Migration, known_migrations, migrate_sqlite
from rota.store.protocol import SchemaError

FIRST = Migration(1, "0001_first.sql", "CREATE TABLE a (x); INSERT INTO a VALUES (1);")
SECOND = Migration(2, "0002_second.sql", "ALTER TABLE a ADD COLUMN y;")
BROKEN = Migration(3, "0003_broken.sql", "CREATE TABLE b (x); CREATE TABLE a (x);")


@pytest.fixture
def connection() -> apsw.Connection:
    return apsw.Connection(":memory:")


@pytest.mark.parametrize("dialect", ["sqlite", "sqlite_logs", "postgres"])
def test_the_programs_own_migrations_are_numbered_without_gaps(dialect: str) -> None:
    numbers = [step.number for step in known_migrations(dialect)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


def test_an_empty_database_gets_every_step_in_order(connection: apsw.Connection) -> None:
    assert migrate_sqlite(connection, [FIRST, SECOND]) == 2
    assert connection.execute("SELECT x, y FROM a").fetchall() == [(1, None)]


def test_an_old_database_gets_what_it_lacks_and_keeps_what_it_has(
    connection: apsw.Connection,
) -> None:
    migrate_sqlite(connection, [FIRST])
    connection.execute("INSERT INTO a VALUES (2)")
    assert migrate_sqlite(connection, [FIRST, SECOND]) == 1
    assert connection.execute("SELECT x FROM a").fetchall() == [(1,), (2,)]


def test_a_database_that_is_up_to_date_is_not_written(connection: apsw.Connection) -> None:
    migrate_sqlite(connection, [FIRST, SECOND])
    before = connection.total_changes()
    connection.pragma("query_only", "on")
    assert migrate_sqlite(connection, [FIRST, SECOND]) == 0
    assert connection.total_changes() == before


def test_a_step_that_fails_leaves_everything_as_it_was(connection: apsw.Connection) -> None:
    migrate_sqlite(connection, [FIRST])
    with pytest.raises(apsw.SQLError):
        migrate_sqlite(connection, [FIRST, SECOND, BROKEN])
    assert not connection.table_exists("main", "b")
    assert migrate_sqlite(connection, [FIRST, SECOND]) == 1


def test_a_database_of_a_newer_program_is_refused(connection: apsw.Connection) -> None:
    migrate_sqlite(connection, [FIRST, SECOND])
    with pytest.raises(SchemaError, match="schema 2, this program knows up to 1"):
        migrate_sqlite(connection, [FIRST])


def test_a_step_that_was_edited_after_its_release_is_noticed(connection: apsw.Connection) -> None:
    migrate_sqlite(connection, [FIRST])
    edited = Migration(1, FIRST.name, FIRST.sql + " ")
    with pytest.raises(SchemaError, match="0001_first"):
        migrate_sqlite(connection, [edited])
