"""Rows that a database refuses, as a constraint or a damaged page would make it."""

from __future__ import annotations

import apsw

from rota.store.postgres.connect import Connection
from rota.store.postgres.quarantine import read_quarantine, repair
from rota.store.sqlite import quarantine as sqlite_quarantine
from rota.store.sqlite import set_aside
from rota.store.sqlite.journal_store import SqliteJournalStore
from tests.postgres.cell import Cell

_POSTGRES = """
CREATE TABLE IF NOT EXISTS rota.poison (name text COLLATE "C" PRIMARY KEY);
CREATE OR REPLACE FUNCTION rota.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM rota.poison WHERE name = to_jsonb(NEW) ->> TG_ARGV[0]) THEN
        RAISE EXCEPTION 'refused %', to_jsonb(NEW) ->> TG_ARGV[0];
    END IF;
    RETURN NEW;
END $$;
"""
_KEYS_OF_POSTGRES = {"jobs_live": "id", "jobs_shelved": "id", "jobs_done": "id", "keys": "key"}
_KEYS_OF_SQLITE = {"jobs": "id", "keys": "key"}


class PostgresPoison:
    """Triggers on PostgreSQL's tables that refuse some rows."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    async def start(self) -> PostgresPoison:
        """Makes the triggers, unless they are there."""
        await self._cell.run(
            _POSTGRES
            + "".join(
                f"CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON rota.{table}"
                f" FOR EACH ROW EXECUTE FUNCTION rota.refuse('{key}');"
                for table, key in _KEYS_OF_POSTGRES.items()
            )
        )
        await self.relent()
        return self

    async def refuse(self, *names: str) -> None:
        async with self._cell.connected() as admin:
            rows = [(name,) for name in names]
            await admin.executemany(
                "INSERT INTO rota.poison VALUES ($1) ON CONFLICT DO NOTHING", rows
            )

    async def relent(self) -> None:
        await self._cell.run("DELETE FROM rota.poison")

    async def repair(self) -> None:
        async with self._cell.connected() as admin:
            connection: Connection = admin
            for job in (await read_quarantine(connection)).values():
                await repair(connection, job, copies=True)


class SqlitePoison:
    """Triggers on SQLite's tables that refuse some rows."""

    def __init__(self, journal: SqliteJournalStore) -> None:
        self._journal = journal

    async def start(self) -> SqlitePoison:
        """Makes the triggers, unless they are there."""
        triggers = "".join(
            f"CREATE TRIGGER IF NOT EXISTS refuse_{table}_{verb} BEFORE {verb} ON {table}"
            f" WHEN NEW.{key} IN (SELECT name FROM poison)"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END;"
            for table, key in _KEYS_OF_SQLITE.items()
            for verb in ("INSERT", "UPDATE")
        )
        table = "CREATE TABLE IF NOT EXISTS poison (name TEXT PRIMARY KEY);"
        await self._journal.run_durably(lambda c: c.execute(table + triggers))
        return self

    async def refuse(self, *names: str) -> None:
        def work(connection: apsw.Connection) -> None:
            rows = [(name,) for name in names]
            connection.executemany("INSERT OR IGNORE INTO poison VALUES (?)", rows)

        await self._journal.run_durably(work)

    async def relent(self) -> None:
        await self._journal.run_durably(lambda c: c.execute("DELETE FROM poison").fetchall())

    async def repair(self) -> None:
        def work(connection: apsw.Connection) -> None:
            for job in set_aside.read_quarantine(connection).values():
                sqlite_quarantine.repair(connection, job)

        await self._journal.run_durably(work)
