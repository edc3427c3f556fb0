"""Brings PostgreSQL's schema up to date: one server at a time, each step recorded.

A server that runs goes on with a schema that was migrated after its start, so that servers can be
replaced one by one, but does not become leader any more. A program needs all the steps it knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import asyncpg

from rota.store.limits import MIGRATE_WAIT_MS
from rota.store.migrate import (
    Migration,
    is_of_0_1,
    known_migrations,
    missing_migrations,
    pending_migrations,
    step_from_0_1,
)
from rota.store.postgres.ahead import as_applied, build_indexes_online, drop_unfinished
from rota.store.postgres.connect import Address, Connection, close, connect
from rota.store.postgres.trouble import DATABASE_ERRORS, as_store_error
from rota.store.protocol import SchemaError

_LOCK = 0x726F7461
"""The advisory lock of all who migrate: "rota" in ASCII."""
_PAUSE_S = 1.0
_CURE = "let the role that owns schema rota run `rota migrate`"

_RECORD_TABLE = """
CREATE TABLE IF NOT EXISTS rota.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class NotOwnerError(SchemaError):
    """The role may not change the schema."""


async def migrate_postgres(
    address: Address, known: Sequence[Migration] | None = None, *, from_0_1: bool = False
) -> int:
    """All steps or none; answers how many there were to do. Others wait meanwhile."""
    steps = known_migrations("postgres") if known is None else known
    settings = {"client_min_messages": "warning"}
    connection = await connect(address, "migrate", settings, statement_s=2 * MIGRATE_WAIT_MS / 1000)
    try:
        if from_0_1:
            await _take_over_0_1(connection, steps[0])
        return await _migrate(connection, steps, address)
    except asyncpg.InsufficientPrivilegeError as error:
        raise NotOwnerError(f"{address.shown}: {error}: {_CURE}") from error
    except DATABASE_ERRORS as error:
        raise as_store_error(error, address.shown) from error
    finally:
        await close(connection)


async def prepare(address: Address, *, migrate: bool = True) -> None:
    """Brings the schema up to date if need be, and if it may be; refuses what is not then."""
    if migrate:
        # Whoever may not change the schema works on the one that is there, if that can be done.
        with suppress(NotOwnerError):
            await migrate_postgres(address)
    await check_schema(address)


async def check_schema(address: Address, known: Sequence[Migration] | None = None) -> None:
    """Refuses a schema that this program cannot work with."""
    steps = known_migrations("postgres") if known is None else known
    connection = await connect(address, "migrate", {}, statement_s=MIGRATE_WAIT_MS / 1000)
    try:
        if not await _recorded(connection):
            raise SchemaError(f"{address.shown} has no tables of Rota yet: {_CURE}")
        missing = await _missing(connection, steps, address)
    except DATABASE_ERRORS as error:
        raise as_store_error(error, address.shown) from error
    finally:
        await close(connection)
    if missing:
        raise SchemaError(f"{address.shown}: this program needs {missing[0].name}: {_CURE}")


async def missing_steps(connection: Connection, address: Address) -> list[Migration]:
    """What `rota migrate` would do; refuses a schema that this program cannot take over."""
    steps = known_migrations("postgres")
    if not await _recorded(connection):
        return steps
    return pending_migrations(await _applied(connection), steps, address.shown, "postgres")


async def _take_over_0_1(connection: Connection, baseline: Migration) -> None:
    """Has no effect on any other database."""
    async with connection.transaction():
        await _lock(connection)
        if await _recorded(connection) and is_of_0_1(await _applied(connection)):
            await connection.execute(step_from_0_1("postgres").sql)
            await connection.execute(_RECORD_TABLE)
            await _record(connection, baseline)


async def _migrate(connection: Connection, steps: Sequence[Migration], address: Address) -> int:
    missing = steps
    if await _recorded(connection):
        missing = await _missing(connection, steps, address)
        if not missing:
            return 0
    tries = address.limits.migrate_tries
    for attempt in range(1, tries + 1):
        try:
            await build_indexes_online(connection, missing, address)
            return await _migrate_at_once(connection, steps, address)
        except asyncpg.LockNotAvailableError:
            # Whoever waits for a table makes everybody behind it wait too: so not for long.
            if attempt == tries:
                raise
            await asyncio.sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


async def _migrate_at_once(
    connection: Connection, steps: Sequence[Migration], address: Address
) -> int:
    async with connection.transaction():
        await _lock(connection)
        # Not "if not exists": that wants the right to make one even where it exists.
        if await connection.fetchval("SELECT to_regnamespace('rota') IS NULL"):
            await connection.execute("CREATE SCHEMA rota")
        await connection.execute(_RECORD_TABLE)
        missing = await _missing(connection, steps, address)
        await drop_unfinished(connection)
        for step in missing:
            await connection.execute(as_applied(step))
            await _record(connection, step)
    return len(missing)


async def _lock(connection: Connection) -> None:
    await connection.execute(f"SET LOCAL lock_timeout = {MIGRATE_WAIT_MS}")
    # Of the transaction, not the session: PgBouncer would give a session's to somebody.
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    await connection.execute("SET LOCAL lock_timeout = '2s'")


async def _recorded(connection: Connection) -> bool:
    return bool(await connection.fetchval("SELECT to_regclass('rota.migrations') IS NOT NULL"))


async def _missing(
    connection: Connection, steps: Sequence[Migration], address: Address
) -> list[Migration]:
    return missing_migrations(await _applied(connection), steps, address.shown)


async def _applied(connection: Connection) -> dict[int, str]:
    found = await connection.fetch("SELECT number, checksum FROM rota.migrations")
    return {row[0]: row[1] for row in found}


async def _record(connection: Connection, step: Migration) -> None:
    await connection.execute(
        "INSERT INTO rota.migrations (number, name, checksum) VALUES ($1, $2, $3)",
        step.number,
        step.name,
        step.checksum,
    )
