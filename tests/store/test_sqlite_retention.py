"""Retention on SQLite: in small steps, and with disk space given back."""

from __future__ import annotations

from pathlib import Path

import apsw

from rota.store.limits import StoreLimits
from rota.store.queries import JobQuery
from tests.store.conformance import leading
from tests.store.conformance_retention import MONDAY, TUESDAY, WEDNESDAY, drop_all, work
from tests.store.test_sqlite import opened


def pages(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.pragma("page_count"))
    finally:
        connection.close()


async def test_a_great_many_go_in_small_pieces_past_those_that_stay(tmp_path: Path) -> None:
    async with opened(tmp_path, StoreLimits(old_rows_per_drop=100)) as store:
        leader = await leading(store)
        for number in range(1_000):
            ended = None if number % 10 == 0 else MONDAY + 9
            await leader.append(*work(number, MONDAY + number, ended), at=MONDAY)
        await store.journal.load()
        sizes = []
        while (dropped := await store.drop_before(TUESDAY)).more:
            sizes.append(dropped.jobs)
        assert max(sizes) <= 100
        assert sum(sizes) + dropped.jobs == 900
        assert len(await store.queries.find_jobs(JobQuery(limit=1_000))) == 100
        # The next round begins at the beginning, and finds those that ended since.
        await leader.append(*work(0, MONDAY, TUESDAY), at=TUESDAY)
        await store.journal.load()
        assert await drop_all(store, WEDNESDAY) == 1


async def test_the_files_shrink_when_much_was_deleted(tmp_path: Path) -> None:
    limits = StoreLimits(free_pages_kept=20, free_pages_per_drop=50)
    async with opened(tmp_path, limits) as store:
        leader = await leading(store)
        for number in range(0, 3_000, 100):
            batch = [write for n in range(number, number + 100)
                     for write in work(n, MONDAY + n, MONDAY + 9)]  # fmt: skip
            await leader.append(*batch, at=MONDAY)
        await store.journal.load()
    before = pages(tmp_path / "rota.db")
    async with opened(tmp_path, limits) as store:
        assert await drop_all(store, TUESDAY) == 3_000
    after = pages(tmp_path / "rota.db")
    assert after < before * 0.7, (before, after)
