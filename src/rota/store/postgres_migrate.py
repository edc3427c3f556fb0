"""Brings PostgreSQL's schema up to date: one server at a time, each step recorded.

The first line of every step says from which schema on a program can work with it. Steps expand: a
new column has a default, a new table is nobody's yet, so that the program before goes on beside
the new one while servers are replaced one by one. What is no longer used is removed ("contract")
only in a later release, by a step whose first line shuts the older programs out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import asyncpg

from rota.store.migrate import Migration, known_migrations, missing_migrations
from rota.store.postgres_connect import TROUBLE, Address, Connection, connect, told
from rota.store.protocol import SchemaError

_LOCK = 0x726F7461
"""The advisory lock of all who migrate: "rota" in ASCII."""
_WAIT_FOR_OTHERS_MS = 300_000
_WORKS_FROM = re.compile(r"-- works with programs from: (\d+)\n")

_RECORD_TABLE = """
CREATE SCHEMA IF NOT EXISTS rota;
CREATE TABLE IF NOT EXISTS rota.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    works_from integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


async def migrate_postgres(address: Address, known: Sequence[Migration] | None = None) -> int:
    """All steps or none; answers how many there were to do. Others wait meanwhile."""
    steps = known_migrations("postgres") if known is None else known
    settings = {"lock_timeout": str(_WAIT_FOR_OTHERS_MS), "client_min_messages": "warning"}
    connection = await connect(address, "migrate", settings)
    try:
        if await _recorded(connection):
            missing = await _missing(connection, steps, address)
            if not missing:
                return 0
        async with connection.transaction():
            # Of the transaction, not the session: PgBouncer would give a session's to somebody.
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute(_RECORD_TABLE)
            missing = await _missing(connection, steps, address)
            for step in missing:
                await _apply(connection, step)
        return len(missing)
    except asyncpg.InsufficientPrivilegeError as error:
        raise SchemaError(
            f"{address.shown}: {error}: let a role that owns the database run `rota migrate`"
        ) from error
    except TROUBLE as error:
        raise told(error, address) from error
    finally:
        await connection.close()


async def _recorded(connection: Connection) -> bool:
    return bool(await connection.fetchval("SELECT to_regclass('rota.migrations') IS NOT NULL"))


async def _missing(
    connection: Connection, steps: Sequence[Migration], address: Address
) -> list[Migration]:
    found = await connection.fetch("SELECT number, checksum, works_from FROM rota.migrations")
    newest = steps[-1].number
    # A newer schema that says it works with this program is no obstacle.
    ours = {row[0]: row[1] for row in found if row[0] <= newest or row[2] > newest}
    return missing_migrations(ours, steps, address.shown)


async def _apply(connection: Connection, step: Migration) -> None:
    works_from = _WORKS_FROM.match(step.sql)
    if works_from is None:
        raise SchemaError(f"{step.name} does not say which programs work with it")
    await connection.execute(step.sql)
    await connection.execute(
        "INSERT INTO rota.migrations (number, name, checksum, works_from) VALUES ($1, $2, $3, $4)",
        step.number,
        step.name,
        step.checksum,
        int(works_from[1]),
    )
