"""Builds the indexes of a step before the step, day by day, while everybody goes on writing.

An index that is made inside a step's transaction keeps the fold waiting until it is done: minutes,
where a table has millions of rows. But where a partition has a like index already, PostgreSQL takes
that as its part of the one that a step makes of the whole table. So those of large partitions are
built `CONCURRENTLY` first, and the step itself finds little left to do.

What was not finished, because the server was killed or somebody's transaction would not end, is
marked by PostgreSQL as invalid. It is dropped, and built again or left to the step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import asyncpg
import msgspec

from rota.store.limits import MIGRATE_WAIT_MS, ONLINE_INDEX_S
from rota.store.migrate import Migration
from rota.store.postgres.connect import Address, Connection, close, connect

_INDEX_LOCK = 0x726F7462
"""The advisory lock of who builds: another one than that of the step, which has to be free."""
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
"""It is about what only the steps before will make, or a day that has just been dropped."""
_NOT_NOW = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
)


class OnlineIndex(msgspec.Struct, frozen=True):
    """An index of one partition."""

    partition: str
    definition: str
    """From the columns on, as the step has it."""

    @property
    def name(self) -> str:
        """The same whoever builds it."""
        return (
            f"{self.partition}_ahead_{blake2b(self.definition.encode(), digest_size=4).hexdigest()}"
        )


def as_applied(step: Migration) -> str:
    """The step's text; its functions may be there already, for indexes use them."""
    return step.sql.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


async def build_indexes_online(
    connection: Connection, steps: Sequence[Migration], address: Address
) -> None:
    """All that the steps would take long for, one server at a time."""
    bytes_min = address.limits.online_index_bytes_min
    if not await _missing_indexes(connection, steps, bytes_min):
        return
    # Its own waiting hurts nobody: it holds no lock that writers want.
    patient = {"lock_timeout": str(MIGRATE_WAIT_MS), "idle_in_transaction_session_timeout": "0"}
    guard = await connect(address, "migrate", patient, statement_s=2 * MIGRATE_WAIT_MS / 1000)
    try:
        builder = await connect(address, "migrate", patient, statement_s=ONLINE_INDEX_S)
        try:
            async with guard.transaction():
                # Without arguments: those would keep a snapshot open, for which the building waits.
                await guard.execute(f"SELECT pg_advisory_xact_lock({_INDEX_LOCK:d})")
                await drop_unfinished(builder)
                for function in _functions(steps):
                    await builder.execute(function)
                for index in await _missing_indexes(builder, steps, bytes_min):
                    await _build_index(builder, index)
        finally:
            await close(builder)
    finally:
        await close(guard)


async def drop_unfinished(connection: Connection) -> None:
    """A step would take an invalid one as it is, and then have one itself that nobody uses."""
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
