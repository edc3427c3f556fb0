"""Objects in PostgreSQL, where no storage was named for them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota.store.files.blobs import Blobs
from tests.postgres.cell import migrated_cell
from tests.store.conformance_blobs import BlobsConformance

pytestmark = pytest.mark.postgres


class TestPostgres(BlobsConformance):
    @pytest.fixture
    async def blobs(self) -> AsyncIterator[Blobs]:
        async with (await migrated_cell()).opened() as store:
            yield store.blobs

    async def test_one_of_several_servers_that_mark_a_storage_at_once_wins(
        self, blobs: Blobs
    ) -> None:
        assert await blobs.mark("any") == "any", "a database is itself: nothing is marked"
