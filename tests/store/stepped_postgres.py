"""PostgreSQL whose projection is made step by step, by projectors that do not run by themselves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rota.core.model import Instant
from rota.store.limits import LOG_BYTES_PER_EXECUTION, STORE_LIMITS
from rota.store.postgres.connect import Connection, parse_address
from rota.store.postgres.journal_store import PostgresJournalStore
from rota.store.postgres.load import read_journal
from rota.store.postgres.partitions import drop_old
from rota.store.postgres.plan_cache import PlanCache
from rota.store.postgres.projection import SHARDS, WindowProjection
from rota.store.postgres.projector import Projector, _Lane
from rota.store.postgres.quarantine import read_quarantine
from rota.store.postgres.query_store import PostgresQueryStore
from rota.store.postgres.store import PostgresStore
from rota.store.projection.quarantine import Quarantine
from rota.store.projection.shards import Window, shards_behind
from rota.store.protocol import JournalRecord, ProjectionStatus, Seq, StoreError
from tests.postgres.cell import Cell
from tests.store.poison import PostgresPoison
from tests.store.projection_model import CrashError


class _Failing:
    """Connection that fails after so many statements."""

    def __init__(self, connection: Connection, statements: int) -> None:
        self._connection, self._left = connection, statements

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        if name not in ("fetch", "fetchrow", "fetchval", "execute", "copy_records_to_table"):
            return found
        if self._left == 0:
            raise CrashError
        self._left -= 1
        return found


class SteppedPostgres:
    """Store on PostgreSQL; it is its own projection, which projects when the model says so."""

    def __init__(self, cell: Cell) -> None:
        self._address = parse_address(cell.dsn, STORE_LIMITS)
        self.poison = PostgresPoison(cell)
        self._open(lanes=1)

    def _open(self, lanes: int) -> None:
        self._projector = Projector(self._address, lanes)
        self._store = PostgresStore(self._address, LOG_BYTES_PER_EXECUTION, self)
        self._reader = self._projector._reader

    @property
    def journal(self) -> PostgresJournalStore:
        return self._store.journal

    @property
    def queries(self) -> PostgresQueryStore:
        return self._store.queries

    # Projection, as the store uses it

    @property
    def status(self) -> ProjectionStatus:
        return self._projector.status

    def lead(self, *, leads: bool) -> None:
        """Does nothing."""

    def note_appended(self, seq: Seq, writes: int) -> None:
        """Does nothing."""

    async def reached(self, seq: Seq) -> None:
        await self.project_all()
        assert self._projector._projected >= seq

    def sweep_soon(self) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Closes the store, and projects nothing."""
        await self._projector.close()
        await self._store._readers.close()
        await self.journal.close()
        for one in (
            self._store._key_connection,
            self._store._log_connection,
            self._store._file_connection,
            self._store._token_connection,
        ):
            await one.close()

    # Steps

    async def start(self) -> None:
        """Opens it for the first time."""
        await self.poison.start()
        await self.open()

    async def open(self) -> None:
        """Connects to the database."""
        await self._store.open()
        await self._projector._read_all()
        await self._projector._make_partitions(self._projector._appended, None)

    async def quarantine(self) -> Quarantine:
        return await self._reader.read(read_quarantine)

    async def positions(self) -> list[Seq]:
        await self._projector._read_all()
        return [self._projector._positions[shard].seq for shard in range(SHARDS)]

    async def project_all(self) -> None:
        await self._projector._read_all()
        while self._projector._lags:
            await self._projector._project()

    async def project_some(self, shards: Sequence[int], upto: Seq) -> None:
        lane = _Lane(self._address, shards)
        while found := [one for one in await self._records(shards) if one.seq <= upto]:
            await self._projector._project_lane(lane, found)
        await lane.connection.close()

    async def project_twice(self, rng: random.Random) -> None:
        other = Projector(self._address, rng.randint(1, SHARDS))
        both = (self._projector, other)
        try:
            while True:
                await asyncio.gather(*(one._read_all() for one in both))
                if not self._projector._lags:
                    break
                await asyncio.gather(*(one._project() for one in both))
        finally:
            await other.close()

    async def crash_projecting(self, shards: Sequence[int], statements: int) -> None:
        records = await self._records(shards)
        positions = shards_behind(
            {shard: self._projector._positions[shard] for shard in shards},
            records[-1].seq if records else Seq(0),
        )
        if not positions:
            return
        lowest = min(head.seq for head in positions.values())
        missing = [record for record in records if record.seq > lowest]
        window = Window(positions, missing, SHARDS)
        quarantine = self._projector._quarantine

        async def project(connection: Connection) -> None:
            failing: Any = _Failing(connection, statements)
            async with connection.transaction():
                await WindowProjection(failing, window, quarantine, copies=True).run(PlanCache())

        with suppress(StoreError):
            await self._projector._lanes[0].connection.write(project)

    async def _records(self, shards: Sequence[int]) -> list[JournalRecord]:
        await self._projector._read_all()
        heads = [self._projector._positions[shard] for shard in shards]
        lowest = min(heads, key=lambda head: head.seq)
        return await self._reader.read(lambda c: read_journal(c, lowest))

    async def crash(self, rng: random.Random) -> None:
        await self.close()
        self._open(lanes=rng.randint(1, SHARDS))
        await self.open()

    async def drop_before(self, before: Instant) -> None:
        connection = self._store._file_connection
        while (await connection.write(lambda c: drop_old(c, before))).more:
            pass
