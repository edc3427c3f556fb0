"""Reads from the database itself what its commits are worth."""

from __future__ import annotations

from rota.store.postgres.connect import Connection
from rota.store.postgres.glance import Part, Row
from rota.store.protocol import StoreError
from rota.store.protocols.durability import Durability, DurabilityLevel

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
    """The same by a connection of one's own, which has to be as durable as those that append."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS}")
    assert row is not None
    return judged(tuple(row), where)


def judged(row: Row, where: str) -> Durability:
    """Refuses a database that takes no writes, and one that is too old."""
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
