"""Retention: the leader deletes old work by itself, and never because a clock was set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rota.core.model import Instant, JobState
from rota.engine.limits import EngineLimits
from rota.engine.retention import Retention
from rota.store.protocol import Dropped, StoreError
from rota.store.sqlite.memory import MemoryStore
from tests.engine.rig import Rig, running, succeeded, until

DAY_MS = 24 * 3600 * 1000
DONE = "00000000-0000-done"
"""Ids begin with the time of creation, by which old work is found."""


class FailsOnce(MemoryStore):
    """Store whose first deletion fails."""

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner
        self.calls = 0

    async def drop_before(self, before: Instant) -> Dropped:
        self.calls += 1
        if self.calls == 1:
            raise StoreError("away, as the test asked")
        return await self._inner.drop_before(before)


@asynccontextmanager
async def kept_for(
    rig: Rig, days: int | None, store: MemoryStore | None = None
) -> AsyncIterator[None]:
    age_ms = None if days is None else days * DAY_MS
    often = EngineLimits(retention_every_s=0.005)
    retention = Retention(
        store or rig.store, rig.clock, lambda: rig.engine.standing().leads, age_ms, often
    )
    retention.start()
    try:
        yield
    finally:
        await retention.stop()


async def one_done_one_waiting(rig: Rig) -> None:
    await rig.register()
    await rig.submit(DONE)
    answer = await rig.poll()
    report = rig.poll(completed=tuple(succeeded(order) for order in answer.orders), wait_ms=0)
    await report
    assert await rig.state(DONE) is JobState.SUCCEEDED
    await rig.submit("waiting", cpu=400)


async def gone(rig: Rig, job_id: str) -> None:
    async with asyncio.timeout(10):
        while await rig.state(job_id) is not None:  # noqa: ASYNC110  (nobody announces it)
            await asyncio.sleep(0.002)


async def rounds(rig: Rig) -> None:
    """Waits for several rounds."""
    seen = FailsOnce(rig.store)
    async with kept_for(rig, 36_500, seen):
        await until(lambda: seen.calls > 3)


async def test_finished_work_is_deleted_when_it_is_old_enough_and_live_work_stays() -> None:
    async with running() as rig:
        await one_done_one_waiting(rig)
        async with kept_for(rig, 30):
            rig.fake_clock.pass_by(29 * DAY_MS)
            await rounds(rig)
            assert await rig.state(DONE) is JobState.SUCCEEDED
            rig.fake_clock.pass_by(2 * DAY_MS)
            await gone(rig, DONE)
            assert await rig.state("waiting") is not None


async def test_finished_work_without_an_age_is_kept_for_ever() -> None:
    async with running() as rig:
        await one_done_one_waiting(rig)
        async with kept_for(rig, None):
            rig.fake_clock.pass_by(3_650 * DAY_MS)
            await rounds(rig)
            assert await rig.state(DONE) is JobState.SUCCEEDED


async def test_a_clock_that_is_set_a_year_ahead_deletes_nothing() -> None:
    async with running() as rig:
        await one_done_one_waiting(rig)
        async with kept_for(rig, 30):
            rig.fake_clock.set_by(365 * DAY_MS)
            await rounds(rig)
            assert await rig.state(DONE) is JobState.SUCCEEDED


async def test_a_server_that_does_not_lead_deletes_nothing() -> None:
    async with running() as rig:
        await one_done_one_waiting(rig)
    retention = Retention(rig.store, rig.clock, lambda: rig.engine.standing().leads, 30 * DAY_MS)
    assert await retention.forget(rig.clock.now() + DAY_MS) == 0
    assert await rig.state(DONE) is JobState.SUCCEEDED


async def test_a_deletion_that_failed_is_done_in_a_later_round() -> None:
    async with running() as rig:
        await one_done_one_waiting(rig)
        troubled = FailsOnce(rig.store)
        async with kept_for(rig, 30, troubled):
            rig.fake_clock.pass_by(31 * DAY_MS)
            await gone(rig, DONE)
        assert troubled.calls >= 2
