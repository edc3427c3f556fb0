"""The store in one PostgreSQL, shared by all servers of a cell."""

from __future__ import annotations

from rota.core.model import Instant
from rota.store.cell_name import agreed
from rota.store.limits import (
    LEADER_DEADLINE_S,
    LOG_BYTES_PER_EXECUTION,
    SIDE_DEADLINE_S,
    STORE_LIMITS,
    StoreLimits,
)
from rota.store.postgres.access import PostgresAccess, access_line
from rota.store.postgres.bulk import PostgresArtifacts, PostgresLogs
from rota.store.postgres.connect import Address, Line, parse_address
from rota.store.postgres.ledger import PostgresLedger
from rota.store.postgres.migrate import prepare
from rota.store.postgres.nodes import PostgresNodes
from rota.store.postgres.notes import PostgresNotes
from rota.store.postgres.objects import PostgresBlobs, PostgresObjects
from rota.store.postgres.pool import ReaderPool
from rota.store.postgres.tables.events import PostgresHooks
from rota.store.postgres.tables.folder import PostgresFolder
from rota.store.postgres.tables.reader import PostgresCatalog, keys_line
from rota.store.protocol import StoreError
from rota.store.protocols.dropping import Dropped
from rota.store.protocols.durability import Durability


async def open_postgres(
    dsn: str,
    *,
    log_bytes_max: int = LOG_BYTES_PER_EXECUTION,
    leader_deadline_s: float = LEADER_DEADLINE_S,
    migrate: bool = True,
    limits: StoreLimits = STORE_LIMITS,
) -> PostgresStore:
    """Brings the schema up to date if need be and may be, and connects; refuses a replica."""
    address = parse_address(dsn, limits)
    await prepare(address, migrate=migrate)
    store = PostgresStore(address, log_bytes_max, leader_deadline_s)
    try:
        await store.open()
    except StoreError:
        await store.close()
        raise
    return store


class PostgresStore:
    """Everything that is remembered, under one roof."""

    def __init__(self, address: Address, log_bytes_max: int, leader_deadline_s: float) -> None:
        self._folder = PostgresFolder(address)
        self._readers = ReaderPool(address)
        # Workers hold on to what was not acknowledged, and a log is no promise: a crash of the
        # database loses perhaps the last moments.
        self._logs_line = Line(address, "logs", SIDE_DEADLINE_S, {"synchronous_commit": "off"})
        self._files_line = Line(address, "files", SIDE_DEADLINE_S, {})
        self._access_line = access_line(address)
        self.ledger = PostgresLedger(address, self._folder, self._readers, leader_deadline_s)
        self._keys_line = keys_line(address)
        self.catalog = PostgresCatalog(self._readers, self._keys_line, self._folder)
        self.logs = PostgresLogs(self._logs_line, self._readers, log_bytes_max)
        self.artifacts = PostgresArtifacts(self._files_line, self._readers)
        self.access = PostgresAccess(self._access_line, self._readers, self.ledger.glance)
        self.hooks = PostgresHooks(self._access_line)
        self.objects = PostgresObjects(self._files_line, self._readers)
        self.blobs = PostgresBlobs(self._files_line, self._readers)
        """For bundles, where no object storage is named."""
        self.notes = PostgresNotes(self._access_line)
        self.nodes = PostgresNodes(self._logs_line, self.ledger.glance)

    async def open(self) -> None:
        """Connects, and asks whether this database takes writes."""
        await self.ledger.durability()
        await self._readers.open()
        await self._folder.start()

    async def durability(self) -> Durability:
        """What a commit is worth: to be asked again and again."""
        return await self.ledger.durability()

    async def name_cell(self, name: str) -> str:
        """The cell's name; the first one given stays."""
        return agreed(await self.ledger.name_cell(name), name)

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops the oldest day of finished work that was over before then, or some of the rest."""
        return await self._folder.drop_before(before)

    async def close(self) -> None:
        """Gives everything back."""
        await self._folder.close()
        await self._readers.close()
        await self.ledger.close()
        await self._keys_line.close()
        await self._logs_line.close()
        await self._files_line.close()
        await self._access_line.close()
