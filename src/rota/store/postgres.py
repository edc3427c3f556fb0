"""The store in one PostgreSQL, shared by all servers of a cell."""

from __future__ import annotations

from rota.core.model import Instant
from rota.store.limits import LOG_BYTES_PER_EXECUTION, READ_DEADLINE_S
from rota.store.postgres_bulk import PostgresArtifacts, PostgresLogs
from rota.store.postgres_connect import Address, Line, parse_address
from rota.store.postgres_durability import Durability
from rota.store.postgres_events import PostgresHooks
from rota.store.postgres_folder import PostgresFolder
from rota.store.postgres_ledger import PostgresLedger
from rota.store.postgres_migrate import migrate_postgres
from rota.store.postgres_pool import ReaderPool
from rota.store.postgres_reader import PostgresCatalog
from rota.store.protocol import StoreError


async def open_postgres(dsn: str, *, log_bytes_max: int = LOG_BYTES_PER_EXECUTION) -> PostgresStore:
    """Brings the schema up to date if need be, and connects; refuses a replica."""
    address = parse_address(dsn)
    await migrate_postgres(address)
    store = PostgresStore(address, log_bytes_max)
    try:
        await store.open()
    except StoreError:
        await store.close()
        raise
    return store


class PostgresStore:
    """Everything that is remembered, under one roof."""

    def __init__(self, address: Address, log_bytes_max: int) -> None:
        self._folder = PostgresFolder(address)
        self._readers = ReaderPool(address)
        # Workers hold on to what was not acknowledged, and a log is no promise: a crash of the
        # database loses perhaps the last moments.
        self._logs_line = Line(address, "logs", READ_DEADLINE_S, {"synchronous_commit": "off"})
        self._files_line = Line(address, "files", READ_DEADLINE_S, {})
        self.ledger = PostgresLedger(address, self._folder, self._readers)
        self.catalog = PostgresCatalog(self._readers, self._folder)
        self.logs = PostgresLogs(self._logs_line, self._readers, log_bytes_max)
        self._hooks_line = Line(address, "hooks", READ_DEADLINE_S, {})
        self.hooks = PostgresHooks(self._hooks_line)
        self.artifacts = PostgresArtifacts(self._files_line, self._readers)

    async def open(self) -> None:
        """Connects, and asks whether this database takes writes."""
        await self.ledger.durability()
        await self._readers.open()
        await self._folder.start()

    async def durability(self) -> Durability:
        """What a commit is worth: to be asked at start and after every reconnect."""
        return await self.ledger.durability()

    async def drop_before(self, before: Instant) -> int:
        """Drops finished work of the days that ended before `before`; answers how many days."""
        return await self._folder.drop_before(before)

    async def close(self) -> None:
        """Gives everything back."""
        await self._folder.close()
        await self._readers.close()
        await self.ledger.close()
        await self._logs_line.close()
        await self._files_line.close()
        await self._hooks_line.close()
