"""Quarantine on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.store.protocol import Store
from rota.store.sqlite.store import open_sqlite
from tests.postgres.cell import migrated_cell
from tests.store.conformance_set_aside import Poison, PoisonedMaker, SetAsideConformance
from tests.store.poison import PostgresPoison, SqlitePoison


class TestSqlite(SetAsideConformance):
    @pytest.fixture
    def make_poisoned(self, tmp_path: Path) -> PoisonedMaker:
        @asynccontextmanager
        async def poisoned() -> AsyncIterator[tuple[Store, Poison]]:
            store = open_sqlite(tmp_path)
            try:
                yield store, await SqlitePoison(store.journal).start()
            finally:
                await store.close()

        return poisoned


@pytest.mark.postgres
class TestPostgres(SetAsideConformance):
    @pytest.fixture
    def make_poisoned(self) -> PoisonedMaker:
        @asynccontextmanager
        async def poisoned() -> AsyncIterator[tuple[Store, Poison]]:
            cell = await migrated_cell()
            poison = await PostgresPoison(cell).start()
            async with cell.opened() as store:
                yield store, poison

        return poisoned
