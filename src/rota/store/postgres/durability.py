"""Durability of PostgreSQL's commits (fsync, standbys), also for `rota doctor`."""

from __future__ import annotations

import msgspec

from rota.core.model import Instant
from rota.store.checksums import opened, row_key
from rota.store.errors import DamagedRowError
from rota.store.limits import (
    CHECKUP_S,
    DAMAGE_FOUND_MAX,
    DAMAGE_ROWS_LOOKED,
    SEALED_ROWS_AT_ONCE,
)
from rota.store.postgres.connect import Connection, close, connect, parse_address
from rota.store.postgres.errors import DATABASE_ERRORS, as_store_error
from rota.store.postgres.glance import Part, Row
from rota.store.postgres.migrate import missing_steps
from rota.store.postgres.quarantine import read_quarantined_work
from rota.store.protocol import (
    FENCES_PER_LOSS,
    Durability,
    DurabilityLevel,
    Loss,
    Losses,
    QuarantinedWork,
    Seq,
    StoreError,
)
from rota.store.stored_bodies import BODIES

_COLUMNS = """
       pg_is_in_recovery() OR current_setting('transaction_read_only')::bool,
       current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'),
       current_setting('fsync')::bool,
       (SELECT count(*) FROM pg_stat_replication),
       (SELECT system_identifier::text FROM pg_control_system()),
       current_setting('server_version_num')::int
"""
DURABILITY = Part(2, _COLUMNS, 7)
_VERSION_MIN = 140_000
_WAITS_FOR_STANDBY = ("on", "remote_apply")


async def read_durability(connection: Connection, where: str) -> Durability:
    """Reads the durability on a connection that has the same settings as those that append."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS}")
    assert row is not None
    return judged(tuple(row), where)


def judged(row: Row, where: str) -> Durability:
    """Judges what was read; refuses a database that takes no writes, or that is too old."""
    read_only, commit, standbys, fsync, replicas, system, version = row
    if version < _VERSION_MIN:
        raise StoreError(
            f"{where} is version {version // 10_000}: Rota needs PostgreSQL 14 or newer"
        )
    if read_only:
        raise StoreError(f"{where} takes no writes: it is a replica, name the primary")
    warnings = []
    if not fsync:
        warnings.append("fsync is off: a crash of the machine can destroy the database")
    if commit == "off":
        warnings.append("synchronous_commit is off: a crash can lose what was just accepted")
    if standbys and commit not in _WAITS_FOR_STANDBY:
        warnings.append(f"synchronous_commit is {commit}: commits do not wait for the standby")
    if standbys and commit in _WAITS_FOR_STANDBY:
        level = DurabilityLevel.SYNC_HA
    else:
        level = DurabilityLevel.ASYNC_HA if replicas else DurabilityLevel.SINGLE
    return Durability(level, tuple(warnings), system)


_LOSSES = """
SELECT m.failovers, l.at, l.records, l.after FROM rota.meta m LEFT JOIN rota.losses l ON true
ORDER BY l.at
"""


async def read_losses(connection: Connection) -> Losses:
    """Returns all recorded losses."""
    found = await connection.fetch(_LOSSES)
    each = [Loss(row[1], row[2], Seq(row[3])) for row in found if row[1] is not None]
    return Losses((found[0][0] + len(each)) * FENCES_PER_LOSS, tuple(each))


_SET_ASIDE = """
SELECT count(*) OVER (), reason FROM rota.inbox_set_aside a
WHERE epoch IS NULL OR EXISTS (SELECT FROM rota.inbox i WHERE i.id = a.id)
ORDER BY at DESC, id DESC LIMIT 1
"""
"""One that an earlier leader left may have been accepted since: it is not in the inbox any more."""
_VERSION_AND_CLOCK = """
SELECT current_setting('server_version'), (extract(epoch FROM clock_timestamp()) * 1000)::bigint
"""


class Checkup(msgspec.Struct, frozen=True):
    """Findings of a check of the database."""

    shown: str
    """The address without its password."""
    version: str
    durability: Durability
    clock: Instant
    """The database's time."""
    missing: tuple[str, ...]
    """Steps of the schema that `rota migrate` would take."""
    set_aside: int = 0
    """Submissions that could not be accepted, of those whose reason is still kept."""
    set_aside_reason: str = ""
    """The reason of the newest of them."""
    damaged: tuple[str, ...] = ()
    """Damaged rows among those that servers load or read most, a few of them."""
    quarantine: tuple[QuarantinedWork, ...] = ()
    losses: Losses = Losses()


async def check_up(dsn: str, *, rows: bool = False) -> Checkup:
    """Checks a database, with its `rows` if asked, and changes nothing; raises StoreError if it
    cannot be reached."""
    address = parse_address(dsn)
    # As on the servers' own connections: the level is read from the session.
    settings = {"synchronous_commit": "on"}
    connection = await connect(address, "checkup", settings, statement_s=CHECKUP_S)
    try:
        durability = await read_durability(connection, address.shown)
        missing = tuple(step.name for step in await missing_steps(connection, address))
        version, clock = await _version_and_clock(connection)
        damaged = () if missing or not rows else tuple(await _damaged_rows(connection))
        found = Checkup(address.shown, version, durability, clock, missing, damaged=damaged)
        return found if missing else await _with_findings(connection, found)
    except DATABASE_ERRORS as error:
        raise as_store_error(error, address.shown) from error
    finally:
        await close(connection)


async def _with_findings(connection: Connection, found: Checkup) -> Checkup:
    """Adds what a schema that is up to date tells of submissions, tables and journal."""
    aside = await connection.fetchrow(_SET_ASIDE) or (0, "")
    return msgspec.structs.replace(
        found,
        set_aside=aside[0],
        set_aside_reason=aside[1],
        quarantine=tuple(await read_quarantined_work(connection)),
        losses=await read_losses(connection),
    )


async def _version_and_clock(connection: Connection) -> tuple[str, Instant]:
    row = await connection.fetchrow(_VERSION_AND_CLOCK)
    assert row is not None
    return row[0].partition(" ")[0], row[1]


async def _damaged_rows(connection: Connection) -> list[str]:
    """Compares checksums of everything that is not finished, up to a number of rows per table."""
    found: list[str] = []
    for stored in BODIES["postgres"]:
        if stored.table.endswith("_done") or stored.table == "log_pieces":
            continue  # these can be thousands of times as large
        keys = len(stored.keys)
        sql = f"SELECT {', '.join((*stored.keys, *stored.bodies))} FROM rota.{stored.table}"
        async with connection.transaction(readonly=True):
            cursor = await connection.cursor(f"{sql} LIMIT {DAMAGE_ROWS_LOOKED}")
            while page := await cursor.fetch(SEALED_ROWS_AT_ONCE):
                for row in page:
                    try:
                        for body in row[keys:]:
                            opened(stored.what, row_key(*row[:keys]), body)
                    except DamagedRowError as error:
                        found.append(str(error))
                if len(found) >= DAMAGE_FOUND_MAX:
                    return found[:DAMAGE_FOUND_MAX]
    return found
