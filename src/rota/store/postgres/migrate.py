"""Migrations of PostgreSQL's schema, one server at a time; large indexes are built online before.

A running server goes on with a schema that was migrated after its start, so that servers can be
replaced one by one, but it can no longer become leader. A program needs all the steps it knows.

An index that is built inside a step's transaction would block the projection for minutes. If a
partition has an equal index already, PostgreSQL takes that one as its part of the step's index. So
indexes of large partitions are built `CONCURRENTLY` before. PostgreSQL marks one that was not
finished as invalid; it is dropped, and built again or left to the step.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b

import asyncpg
import msgspec

from rota.store.checksums import row_key, sealed
from rota.store.journal import hash_records
from rota.store.limits import (
    LOAD_RECORDS_PER_FETCH,
    MIGRATE_WAIT_MS,
    ONLINE_INDEX_S,
    SEALED_ROWS_AT_ONCE,
)
from rota.store.migrate import (
    Migration,
    is_of_0_1,
    known_migrations,
    missing_migrations,
    pending_migrations,
    step_from_0_1,
)
from rota.store.postgres.connect import Address, Connection, close, connect
from rota.store.postgres.errors import DATABASE_ERRORS, as_store_error
from rota.store.protocol import GENESIS, SchemaError
from rota.store.stored_bodies import BODIES, StoredBodies

_INDEX_LOCK = 0x726F7462
"""The advisory lock for building; the one of the step must stay free."""
_INDEX = re.compile(r"^CREATE INDEX \w+ ON rota\.(\w+) ([^;]+);", re.MULTILINE)
_FUNCTION = re.compile(r"^CREATE FUNCTION .+?\$\$.+?\$\$;", re.MULTILINE | re.DOTALL)
_PARTITIONS = """
SELECT child.relname FROM pg_inherits
JOIN pg_class child ON child.oid = inhrelid JOIN pg_class parent ON parent.oid = inhparent
WHERE parent.oid = to_regclass($1) AND parent.relkind = 'p' AND pg_relation_size(child.oid) > $2
ORDER BY child.relname
"""
_UNFINISHED = """
SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON oid = indexrelid
WHERE relnamespace = 'rota'::regnamespace AND relname LIKE '%\\_ahead\\_%' AND NOT indisvalid
"""
_NOT_YET = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
"""Raised for what only earlier steps will make, or for a day that has just been dropped."""
_NOT_NOW = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
)


class OnlineIndex(msgspec.Struct, frozen=True):
    """Index of one partition that is built online."""

    partition: str
    definition: str
    """The step's definition, from the columns on."""

    @property
    def name(self) -> str:
        """The name, the same on every server."""
        return (
            f"{self.partition}_ahead_{blake2b(self.definition.encode(), digest_size=4).hexdigest()}"
        )


def as_applied(step: Migration) -> str:
    """Returns the step's text; its functions may exist already, as indexes use them."""
    return step.sql.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


async def build_indexes_online(
    connection: Connection, steps: Sequence[Migration], address: Address
) -> None:
    """Builds the indexes that would take long within the steps, one server at a time."""
    bytes_min = address.limits.online_index_bytes_min
    if not await _missing_indexes(connection, steps, bytes_min):
        return
    # It may wait long: it holds no lock that writers need.
    settings = {"lock_timeout": str(MIGRATE_WAIT_MS), "idle_in_transaction_session_timeout": "0"}
    lock_connection = await connect(
        address, "migrate", settings, statement_s=2 * MIGRATE_WAIT_MS / 1000
    )
    try:
        builder = await connect(address, "migrate", settings, statement_s=ONLINE_INDEX_S)
        try:
            async with lock_connection.transaction():
                # Without arguments: those would keep a snapshot open, for which the build would
                # wait.
                await lock_connection.execute(f"SELECT pg_advisory_xact_lock({_INDEX_LOCK:d})")
                await drop_unfinished(builder)
                for function in _functions(steps):
                    await builder.execute(function)
                for index in await _missing_indexes(builder, steps, bytes_min):
                    await _build_index(builder, index)
        finally:
            await close(builder)
    finally:
        await close(lock_connection)


async def drop_unfinished(connection: Connection) -> None:
    """Drops invalid indexes: a step would take one as it is, and its own would be invalid too."""
    for row in await connection.fetch(_UNFINISHED):
        await connection.execute(f"DROP INDEX IF EXISTS {row[0]}")


async def _build_index(connection: Connection, index: OnlineIndex) -> None:
    try:
        await connection.execute(
            f"CREATE INDEX CONCURRENTLY {index.name} ON rota.{index.partition} {index.definition}"
        )
    except (*_NOT_YET, *_NOT_NOW):
        return  # the step makes it


async def _missing_indexes(
    connection: Connection, steps: Sequence[Migration], bytes_min: int
) -> list[OnlineIndex]:
    found = []
    for step in steps:
        for table, definition in _INDEX.findall(step.sql):
            rows = await connection.fetch(_PARTITIONS, f"rota.{table}", bytes_min)
            found += [OnlineIndex(row[0], definition) for row in rows]
    made = await connection.fetch(
        "SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid"
        " WHERE relname = ANY ($1::text[]) AND indisvalid",
        [index.name for index in found],
    )
    names = {row[0] for row in made}
    return [index for index in found if index.name not in names]


def _functions(steps: Sequence[Migration]) -> Iterator[str]:
    for step in steps:
        for text in _FUNCTION.findall(step.sql):
            yield text.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


_LOCK = 0x726F7461
"""The advisory lock of migrations: "rota" in ASCII."""
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
    """Raised when the role may not change the schema."""


async def migrate_postgres(
    address: Address, known: Sequence[Migration] | None = None, *, from_0_1: bool = False
) -> int:
    """Applies all steps or none; returns how many there were to do. Other servers wait."""
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
    """Migrates the schema if it must and may; refuses one that is not up to date then."""
    if migrate:
        # A role that may not change the schema works with the present one, if that is possible.
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
    """Returns what `rota migrate` would do; refuses a schema that it cannot take over."""
    steps = known_migrations("postgres")
    if not await _recorded(connection):
        return steps
    return pending_migrations(await _applied(connection), steps, address.shown, "postgres")


async def _take_over_0_1(connection: Connection, baseline: Migration) -> None:
    """Has no effect on any other database."""
    async with connection.transaction():
        await _lock(connection)
        if await _recorded(connection) and is_of_0_1(await _applied(connection)):
            for stored in BODIES["postgres"]:
                await _seal(connection, stored)
            await connection.execute(step_from_0_1("postgres").sql)
            await _chain_journal(connection)
            await connection.execute(_RECORD_TABLE)
            await _record(connection, baseline)


async def _seal(connection: Connection, stored: StoredBodies) -> None:
    """Adds the checksums to a table of 0.1, a page of rows at a time."""
    names, keys = (*stored.keys, *stored.bodies), len(stored.keys)
    kinds = {
        row[0]: row[1]
        for row in await connection.fetch(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = $1::regclass AND attnum > 0",
            f"rota.{stored.table}",
        )
    }
    arrays = ", ".join(f"${place}::{kinds[name]}[]" for place, name in enumerate(names, 1))
    update = (
        f"UPDATE rota.{stored.table} t"
        f" SET {', '.join(f'{body} = v.{body}' for body in stored.bodies)}"
        f" FROM unnest({arrays}) AS v ({', '.join(names)})"
        f" WHERE {' AND '.join(f't.{key} = v.{key}' for key in stored.keys)}"
    )
    cursor = await connection.cursor(f"SELECT {', '.join(names)} FROM rota.{stored.table}")
    while page := await cursor.fetch(SEALED_ROWS_AT_ONCE):
        rows = [
            (*row[:keys], *(sealed(row_key(*row[:keys]), body) for body in row[keys:]))
            for row in map(tuple, page)
        ]
        await connection.execute(update, *(list(column) for column in zip(*rows, strict=True)))


async def _chain_journal(connection: Connection) -> None:
    """Gives the records of 0.1 their hashes; the chain begins with the oldest that is kept."""
    seq, newest = 0, GENESIS.hash
    while found := await connection.fetch(
        "SELECT seq, epoch, at, body FROM rota.journal WHERE seq > $1 ORDER BY seq LIMIT $2",
        seq,
        LOAD_RECORDS_PER_FETCH,
    ):
        hashes = hash_records(newest, [tuple(row) for row in found])
        await connection.execute(
            "UPDATE rota.journal j SET hash = v.hash"
            " FROM unnest($1::int8[], $2::bytea[]) AS v (seq, hash) WHERE j.seq = v.seq",
            *zip(*hashes, strict=True),
        )
        seq, newest = hashes[-1]
    await connection.execute(
        "UPDATE rota.projection_shards SET folded_hash = j.hash"
        " FROM rota.journal j WHERE j.seq = folded_seq"
    )
    await connection.execute("ALTER TABLE rota.journal ALTER COLUMN hash SET NOT NULL")


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
            # A statement that waits for a table makes all behind it wait too: so not for long.
            if attempt == tries:
                raise
            await asyncio.sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


async def _migrate_at_once(
    connection: Connection, steps: Sequence[Migration], address: Address
) -> int:
    async with connection.transaction():
        await _lock(connection)
        # Not "if not exists": that needs the privilege to create it even if it exists.
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
    # Of the transaction, not the session: PgBouncer would hand a session's lock to others.
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
