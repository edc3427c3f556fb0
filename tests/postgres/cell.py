"""Database of a test, and the stores that servers would open on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from rota.store.limits import LOG_BYTES_PER_EXECUTION, STORE_LIMITS, StoreLimits
from rota.store.postgres.connect import parse_address
from rota.store.postgres.migrate import migrate_postgres
from rota.store.postgres.store import PostgresStore, open_postgres
from tests.postgres.server import PostgresServer, shared_server

EMPTY = """
DELETE FROM rota.journal; DELETE FROM rota.totals; DELETE FROM rota.jobs_live;
DELETE FROM rota.jobs_done; DELETE FROM rota.labels; DELETE FROM rota.edges;
DELETE FROM rota.executions_live; DELETE FROM rota.executions_done; DELETE FROM rota.workers;
DELETE FROM rota.jobs_shelved; DELETE FROM rota.lines; DELETE FROM rota.queues;
DELETE FROM rota.settings; DELETE FROM rota.objects; DELETE FROM rota.bundles;
DELETE FROM rota.doomed; DELETE FROM rota.storage; DELETE FROM rota.object_pieces;
DELETE FROM rota.keys; DELETE FROM rota.leftovers;
DELETE FROM rota.inbox; DELETE FROM rota.inbox_set_aside;
DELETE FROM rota.logs; DELETE FROM rota.log_pieces;
DELETE FROM rota.artifacts; DELETE FROM rota.artifact_pieces; DELETE FROM rota.schedules;
DELETE FROM rota.occurrences; DELETE FROM rota.decided; DELETE FROM rota.calendars;
DELETE FROM rota.triggers; DELETE FROM rota.events; DELETE FROM rota.arrivals;
DELETE FROM rota.held; DELETE FROM rota.reacted; DELETE FROM rota.hooks;
DELETE FROM rota.tokens; DELETE FROM rota.audit; DELETE FROM rota.nodes;
UPDATE rota.access SET revision = 0, secret = NULL;
UPDATE rota.leader SET holder = '', epoch = 0, nonce = 0, address = '';
UPDATE rota.meta SET cell = '', failovers = 0; DELETE FROM rota.losses;
DELETE FROM rota.quarantine; DELETE FROM rota.quarantined_writes;
UPDATE rota.projection_shards SET folded_seq = DEFAULT, folded_hash = DEFAULT, order_next = 0,
    submitted = 0;
"""
"""Empties a store, which costs less than making one."""


class Cell:
    """A database of its own on the tests' PostgreSQL."""

    def __init__(
        self,
        server: PostgresServer | None = None,
        like: str = "template1",
        limits: StoreLimits = STORE_LIMITS,
    ) -> None:
        """`limits` are those of all stores that are opened on it."""
        self.server = server or shared_server()
        self.database = self.server.new_database(like)
        self.dsn = self.server.dsn(self.database)
        self.limits = limits

    @asynccontextmanager
    async def opened(
        self,
        *,
        options: str = "",
        log_bytes_max: int = LOG_BYTES_PER_EXECUTION,
        limits: StoreLimits | None = None,
    ) -> AsyncIterator[PostgresStore]:
        """A store as a server has it; several may be open at once."""
        store = await open_postgres(
            self.dsn + options, log_bytes_max=log_bytes_max, limits=limits or self.limits
        )
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """A connection beside the stores: an administrator's, or an application's."""
        connection = await asyncpg.connect(self.dsn)
        try:
            yield connection
        finally:
            await connection.close(timeout=5)

    async def run(self, sql: str) -> None:
        async with self.connected() as connection:
            await connection.execute(sql)

    async def ask(self, sql: str, *args: object) -> object:
        async with self.connected() as connection:
            return await connection.fetchval(sql, *args)


async def migrated_cell(limits: StoreLimits = STORE_LIMITS) -> Cell:
    """One that has its tables already: a copy is cheaper than running every migration."""
    server = shared_server()
    if server.migrated is None:
        first = Cell(server)
        await migrate_postgres(parse_address(first.dsn))
        server.migrated = first.database
    return Cell(server, server.migrated, limits)
