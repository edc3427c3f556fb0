"""Store in one PostgreSQL database, shared by all servers of a cell."""

from __future__ import annotations

from rota.core.model import Instant
from rota.store.limits import (
    LOG_BYTES_PER_EXECUTION,
    SIDE_DEADLINE_S,
    STORE_LIMITS,
    StoreLimits,
)
from rota.store.postgres.connect import Address, DedicatedConnection, ReaderPool, parse_address
from rota.store.postgres.documents import PostgresHooks, PostgresNodes, PostgresNotes
from rota.store.postgres.journal_store import PostgresJournalStore
from rota.store.postgres.logs_and_files import (
    PostgresArtifacts,
    PostgresBlobs,
    PostgresLogs,
    PostgresObjectIndex,
)
from rota.store.postgres.migrate import prepare
from rota.store.postgres.partitions import drop_old
from rota.store.postgres.projector import Projector
from rota.store.postgres.query_store import PostgresQueryStore, key_connection
from rota.store.postgres.tokens import PostgresTokenStore, token_connection
from rota.store.projection.client import Projection
from rota.store.protocol import Dropped, Durability, StoreError, agreed_cell_name


async def open_postgres(
    dsn: str,
    *,
    log_bytes_max: int = LOG_BYTES_PER_EXECUTION,
    migrate: bool = True,
    projection: Projection | None = None,
    limits: StoreLimits = STORE_LIMITS,
) -> PostgresStore:
    """Opens the store; migrates the schema if it must and may; refuses a replica.

    `projection` is that of another process; without one this process projects.
    """
    address = parse_address(dsn, limits)
    await prepare(address, migrate=migrate)
    store = PostgresStore(address, log_bytes_max, projection)
    try:
        await store.open()
    except StoreError:
        await store.close()
        raise
    return store


class PostgresStore:
    """Store of a cell in PostgreSQL."""

    def __init__(
        self,
        address: Address,
        log_bytes_max: int,
        projection: Projection | None = None,
    ) -> None:
        self._projector: Projector | None = None
        """The one of this process, if no other process projects for it."""
        if projection is None:
            projection = self._projector = Projector(address)
        self.projection = projection
        self._readers = ReaderPool(address)
        # Workers send again what was not acknowledged, and logs need not be durable: a crash of the
        # database perhaps loses the last moments.
        self._log_connection = DedicatedConnection(
            address, "logs", SIDE_DEADLINE_S, {"synchronous_commit": "off"}
        )
        self._file_connection = DedicatedConnection(address, "files", SIDE_DEADLINE_S, {})
        self._token_connection = token_connection(address)
        self.journal = PostgresJournalStore(address, self.projection, self._readers)
        self._key_connection = key_connection(address)
        self.queries = PostgresQueryStore(self._readers, self._key_connection, self.projection)
        self.logs = PostgresLogs(self._log_connection, self._readers, log_bytes_max)
        self.artifacts = PostgresArtifacts(self._file_connection, self._readers)
        self.tokens = PostgresTokenStore(self._token_connection, self._readers, self.journal.glance)
        self.hooks = PostgresHooks(self._token_connection)
        self.objects = PostgresObjectIndex(self._file_connection, self._readers)
        self.blobs = PostgresBlobs(self._file_connection, self._readers)
        """For bundles, if no object storage is named."""
        self.notes = PostgresNotes(self._token_connection)
        self.nodes = PostgresNodes(self._log_connection, self.journal.glance)

    async def open(self) -> None:
        """Connects, and checks that this database takes writes."""
        await self.journal.durability()
        await self._readers.open()
        await self.journal.make_partitions()
        if self._projector is not None:
            await self._projector.start()

    async def durability(self) -> Durability:
        return await self.journal.durability()

    async def name_cell(self, name: str) -> str:
        return agreed_cell_name(await self.journal.name_cell(name), name)

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops the oldest day of finished work that was over before then, or some of the rest."""
        dropped = await self._file_connection.write(lambda c: drop_old(c, before))
        self.projection.sweep_soon()
        return dropped

    async def close(self) -> None:
        await self.projection.close()
        await self._readers.close()
        await self.journal.close()
        await self._key_connection.close()
        await self._log_connection.close()
        await self._file_connection.close()
        await self._token_connection.close()
