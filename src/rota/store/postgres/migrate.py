"""Brings PostgreSQL's schema up to date: one server at a time, each step recorded.

The first line of every step says from which schema on a program can work with it. Steps expand: a
new column has a default, a new table is nobody's yet, so that the program before goes on beside
the new one while servers are replaced one by one. What is no longer used is removed ("contract")
only in a later release, by a step whose first line shuts the older programs out.

The other way round, a step's second line may say what is missing `without it`. A program that
finds the schema before such a step works on it all the same; any other step it needs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
import msgspec

from rota.store.limits import MIGRATE_TRIES, MIGRATE_WAIT_MS
from rota.store.migrate import Migration, known_migrations, missing_migrations
from rota.store.postgres.ahead import as_applied, build_ahead, drop_unfinished
from rota.store.postgres.connect import Address, Connection, close, connect
from rota.store.postgres.trouble import TROUBLE, told
from rota.store.protocol import SchemaError

_LOCK = 0x726F7461
"""The advisory lock of all who migrate: "rota" in ASCII."""
_PAUSE_S = 1.0
_WORKS_FROM = re.compile(r"-- works with programs from: (\d+)\n")
_WITHOUT_IT = re.compile(r"-- without it: (.+)\n")
_CURE = "let the role that owns schema rota run `rota migrate`"

_RECORD_TABLE = """
CREATE TABLE IF NOT EXISTS rota.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    works_from integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class NotOwnerError(SchemaError):
    """The role may not change the schema."""


class Schema(msgspec.Struct, frozen=True):
    """The schema that was found."""

    number: int
    """Its newest step."""
    steps: tuple[str, ...]
    """The names of the steps this program knows and that were done, without their numbers."""
    known: int
    """The newest step that this program knows."""
    warnings: tuple[str, ...] = ()
    """What this program does without."""

    def has(self, step: str) -> bool:
        """Whether a step of this program was done."""
        return step in self.steps


async def migrate_postgres(address: Address, known: Sequence[Migration] | None = None) -> int:
    """All steps or none; answers how many there were to do. Others wait meanwhile."""
    steps = known_migrations("postgres") if known is None else known
    settings = {"client_min_messages": "warning"}
    connection = await connect(address, "migrate", settings, statement_s=2 * MIGRATE_WAIT_MS / 1000)
    try:
        return await _migrate(connection, steps, address)
    except asyncpg.InsufficientPrivilegeError as error:
        raise NotOwnerError(f"{address.shown}: {error}: {_CURE}") from error
    except TROUBLE as error:
        raise told(error, address.shown) from error
    finally:
        await close(connection)


async def prepared(address: Address, *, migrate: bool = True) -> Schema:
    """Brings the schema up to date if need be, and if it may be; answers what it is then."""
    if migrate:
        # Whoever may not change the schema works on the one that is there, if that can be done.
        with suppress(NotOwnerError):
            await migrate_postgres(address)
    return await find_schema(address)


async def find_schema(address: Address, known: Sequence[Migration] | None = None) -> Schema:
    """The schema as it is; refuses one that this program cannot work with."""
    steps = known_migrations("postgres") if known is None else known
    connection = await connect(address, "migrate", {}, statement_s=MIGRATE_WAIT_MS / 1000)
    try:
        if not await _recorded(connection):
            raise SchemaError(f"{address.shown} has no tables of Rota yet: {_CURE}")
        missing = await _missing(connection, steps, address)
        number = await connection.fetchval("SELECT max(number) FROM rota.migrations")
    except TROUBLE as error:
        raise told(error, address.shown) from error
    finally:
        await close(connection)
    warnings = []
    for step in missing:
        without = _WITHOUT_IT.search(step.sql)
        if without is None:
            raise SchemaError(
                f"{address.shown} has schema {number}, and this program needs {step.name}: {_CURE}"
            )
        warnings.append(f"schema {number} is older than this program: {without[1]}; {_CURE}")
    done = tuple(_word(step) for step in steps if step not in missing)
    return Schema(number, done, steps[-1].number, tuple(warnings))


async def missing_steps(connection: Connection, address: Address) -> list[Migration]:
    """What `migrate_postgres` would do; refuses a schema that this program did not make."""
    steps = known_migrations("postgres")
    return await _missing(connection, steps, address) if await _recorded(connection) else steps


async def _migrate(connection: Connection, steps: Sequence[Migration], address: Address) -> int:
    missing = steps
    if await _recorded(connection):
        missing = await _missing(connection, steps, address)
        if not missing:
            return 0
    for attempt in range(1, MIGRATE_TRIES + 1):
        try:
            await build_ahead(connection, missing, address)
            return await _migrate_at_once(connection, steps, address)
        except asyncpg.LockNotAvailableError:
            # Whoever waits for a table makes everybody behind it wait too: so not for long.
            if attempt == MIGRATE_TRIES:
                raise
            await asyncio.sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


async def _migrate_at_once(
    connection: Connection, steps: Sequence[Migration], address: Address
) -> int:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = {MIGRATE_WAIT_MS}")
        # Of the transaction, not the session: PgBouncer would give a session's to somebody.
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute("SET LOCAL lock_timeout = '2s'")
        # Not "if not exists": that wants the right to make one even where it exists.
        if await connection.fetchval("SELECT to_regnamespace('rota') IS NULL"):
            await connection.execute("CREATE SCHEMA rota")
        await connection.execute(_RECORD_TABLE)
        missing = await _missing(connection, steps, address)
        await drop_unfinished(connection)
        for step in missing:
            await _apply(connection, step)
    return len(missing)


def _word(step: Migration) -> str:
    """`0002_access.sql`: access."""
    return step.name.partition("_")[2].removesuffix(".sql")


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
    await connection.execute(as_applied(step))
    await connection.execute(
        "INSERT INTO rota.migrations (number, name, checksum, works_from) VALUES ($1, $2, $3, $4)",
        step.number,
        step.name,
        step.checksum,
        int(works_from[1]),
    )
