"""Looks at a PostgreSQL from outside, for people: what it is, what it is worth, what it lacks."""

from __future__ import annotations

import msgspec

from rota.core.model import Instant
from rota.store.limits import CHECKUP_S
from rota.store.postgres.connect import Connection, close, connect, parse_address
from rota.store.postgres.durability import read_durability
from rota.store.postgres.migrate import missing_steps
from rota.store.postgres.trouble import DATABASE_ERRORS, as_store_error
from rota.store.protocols.durability import Durability

_VERSION_AND_CLOCK = """
SELECT current_setting('server_version'), (extract(epoch FROM clock_timestamp()) * 1000)::bigint
"""


class Checkup(msgspec.Struct, frozen=True):
    """What was found."""

    shown: str
    """The address without its password."""
    version: str
    durability: Durability
    clock: Instant
    """What time it is there."""
    missing: tuple[str, ...]
    """Steps of the schema that `rota migrate` would take."""


async def check_up(dsn: str) -> Checkup:
    """Changes nothing; raises StoreError where there is nothing to look at."""
    address = parse_address(dsn)
    # Durable as the servers' own connections are: the level is read from the session.
    settings = {"synchronous_commit": "on"}
    connection = await connect(address, "checkup", settings, statement_s=CHECKUP_S)
    try:
        durability = await read_durability(connection, address.shown)
        missing = tuple(step.name for step in await missing_steps(connection, address))
        version, clock = await _version_and_clock(connection)
    except DATABASE_ERRORS as error:
        raise as_store_error(error, address.shown) from error
    finally:
        await close(connection)
    return Checkup(address.shown, version, durability, clock, missing)


async def _version_and_clock(connection: Connection) -> tuple[str, Instant]:
    row = await connection.fetchrow(_VERSION_AND_CLOCK)
    assert row is not None
    return row[0].partition(" ")[0], row[1]
