"""Random stories on SQLite and in memory, with random projections, crashes and loads between."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.example_counts import examples
from tests.store.projection_model import ProjectionModel, further_than_a_window
from tests.store.stepped_sqlite import SteppedSqlite

SEEDS = range(examples(6, 150))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shards", [1, 4])
async def test_a_story_in_memory_is_what_the_naive_tables_say(seed: int, shards: int) -> None:
    store = await SteppedSqlite(shards=shards).open()
    await ProjectionModel(seed, store).run()
    store.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_story_on_sqlite_is_what_the_naive_tables_say(seed: int, tmp_path: Path) -> None:
    store = await SteppedSqlite(tmp_path / "rota.db", shards=1 + 3 * (seed % 2)).open()
    await ProjectionModel(seed, store).run()
    store.close()


async def test_a_shard_that_is_further_than_a_window_does_not_move_back() -> None:
    store = SteppedSqlite(shards=4)
    await further_than_a_window(store)
    store.close()
