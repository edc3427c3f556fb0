"""Random stories on PostgreSQL, with random projections, crashes and loads between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.example_counts import examples
from tests.postgres.cell import migrated_cell
from tests.store.projection_model import ProjectionModel, further_than_a_window
from tests.store.stepped_postgres import SteppedPostgres

pytestmark = pytest.mark.postgres


TURNS = examples(30, 120)


@asynccontextmanager
async def stepped() -> AsyncIterator[SteppedPostgres]:
    store = SteppedPostgres(await migrated_cell())
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("seed", range(examples(2, 60)))
async def test_a_story_on_postgres_is_what_the_naive_tables_say(seed: int) -> None:
    async with stepped() as store:
        await ProjectionModel(seed, store).run(TURNS)


async def test_a_shard_that_is_further_than_a_window_does_not_move_back() -> None:
    async with stepped() as store:
        await further_than_a_window(store)
