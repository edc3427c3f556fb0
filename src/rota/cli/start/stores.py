"""Opens the store that was asked for, and says what this server is among those who share it."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import click

from rota.cli.start.listening import is_everywhere
from rota.cli.start.up import ServerOptions, UpOptions
from rota.core.inputs import Timing
from rota.engine.seat import Member
from rota.store.sqlite.store import SqliteStore, open_sqlite
from rota.wire.limits import LOG_BYTES_PER_EXECUTION_MAX

if TYPE_CHECKING:
    from rota.store.postgres.store import PostgresStore


async def open_store(options: UpOptions | ServerOptions) -> SqliteStore | PostgresStore:
    """A PostgreSQL if one is named, else SQLite in the data folder."""
    if options.store is not None:
        from rota.store.postgres.store import open_postgres  # only who uses it loads its driver

        return await open_postgres(
            options.store,
            log_bytes_max=LOG_BYTES_PER_EXECUTION_MAX,
            leader_deadline_s=options.leader_ttl_ms / 2000,
            migrate=options.migrate,
        )
    return open_sqlite(options.data, log_bytes_max=LOG_BYTES_PER_EXECUTION_MAX)


def shown(store: str) -> str:
    """The address of a PostgreSQL, for people: without its password."""
    from rota.store.postgres.connect import parse_address

    return parse_address(store).shown


def refuse_nowhere(options: UpOptions | ServerOptions) -> None:
    """A server that shares its store must be found by those it shares it with."""
    said = options.address is not None or bool(options.names)
    if options.store is not None and not said and is_everywhere(options.host):
        raise click.ClickException(
            f"{options.host} is no address that other servers could go to: say where they reach"
            " this one with --public-name HOST, or --address URL"
        )


def member_of(options: UpOptions | ServerOptions, url: str) -> Member:
    """Alone on SQLite; on PostgreSQL one of many, so its name must be its own."""
    if options.store is None:
        return Member(node=options.node or socket.gethostname())
    return Member(
        node=options.node or f"{socket.gethostname()}-{os.getpid()}",
        address=options.address or url,
        ttl_ms=options.leader_ttl_ms,
    )


def timing_of(options: UpOptions | ServerOptions) -> Timing:
    """A new leader waits for as long as the one before it may have gone on."""
    handover_ms = 0 if options.store is None else options.leader_ttl_ms
    return Timing(lease_ttl_ms=options.lease_ttl_ms, handover_ms=handover_ms)
