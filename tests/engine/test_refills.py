"""Spilled jobs, read back beside the turns: again after a failure, never after a stop."""

from __future__ import annotations

import asyncio

import pytest

from rota.core.commands import Cancel, Complete, MemoryWindow, Preloaded
from rota.core.model import JobId
from rota.store.protocol import StoreError
from tests.engine.rig import PATIENCE_S, Rig, running, succeeded

TINY = MemoryWindow(jobs=3, fifo_group=2, refill=2)


async def run_all(rig: Rig, count: int) -> list[str]:
    """Runs so many jobs, one at a time; returns their ids in order."""
    ran: list[str] = []
    while len(ran) < count:
        answer = await asyncio.wait_for(rig.poll(), PATIENCE_S)
        for order in answer.orders:
            ran.append(order.execution.job_id)
            await rig.engine.post(Complete(completion=succeeded(order)))
    return ran


async def test_a_long_queue_runs_in_order_with_few_of_its_jobs_in_memory() -> None:
    async with running(window=TINY) as rig:
        await rig.register()
        for number in range(40):
            await rig.submit(f"j{number:02}", cpu=4)
        assert rig.engine._ready_scheduler().live_jobs() < 8
        assert await run_all(rig, 40) == [f"j{number:02}" for number in range(40)]
        assert rig.journal.refills


async def test_spilled_jobs_that_cannot_be_read_are_read_again() -> None:
    async with running(window=TINY, refill_retry_s=0.0) as rig:
        await rig.register()
        rig.journal.refill_errors = [StoreError("away, as the test asked")] * 3
        for number in range(9):
            await rig.submit(f"j{number}", cpu=4)
        assert await run_all(rig, 9) == [f"j{number}" for number in range(9)]
        assert not rig.journal.refill_errors


async def test_spilled_jobs_are_read_again_after_a_failed_append() -> None:
    async with running(window=TINY) as rig:
        await rig.register()
        for number in range(12):
            await rig.submit(f"j{number:02}", cpu=4)
        ran = await run_all(rig, 4)
        rig.journal.inner.leave_next_append_uncertain(written=True)
        with pytest.raises(Exception, match="not ready"):
            await rig.submit("uncertain", cpu=4)
        await rig.until_ready()
        ran += await run_all(rig, 9)
        assert ran == [*(f"j{number:02}" for number in range(12)), "uncertain"]


async def test_a_server_that_stops_does_not_wait_for_spilled_jobs() -> None:
    async with running(window=TINY) as rig:
        await rig.register()
        for number in range(9):
            await rig.submit(f"j{number}", cpu=4)
        rig.journal.refill_errors = [StoreError("away, as the test asked")] * 1_000_000
        await rig.poll()


async def cancel(rig: Rig, *job_ids: str) -> None:
    """Cancels jobs that may be spilled."""
    for job_id in job_ids:
        record = await rig.record(job_id)
        assert record is not None
        found = Preloaded(at=rig.clock.now(), jobs=(record,))
        await rig.engine.post(Cancel(job_id=JobId(job_id), preloaded=found))


async def test_a_read_that_took_long_does_not_bring_jobs_back_that_had_left_before() -> None:
    async with running(window=TINY) as rig:
        await rig.register()
        for number in range(9):
            await rig.submit(f"j{number}", cpu=4)
        await cancel(rig, "j4", "j3")
        # The tables lack the last record when it is read, and have it when the answer comes.
        rig.journal.refills_pass.clear()
        ran = await run_all(rig, 2)
        assert rig.journal.refills
        await rig.record("j0")
        await rig.submit("j9", cpu=4)
        rig.journal.refills_pass.set()
        ran += await run_all(rig, 6)
        assert ran == ["j0", "j1", "j2", "j5", "j6", "j7", "j8", "j9"]


async def test_jobs_that_had_left_before_a_queue_spilled_again_are_not_read_from_old_tables() -> (
    None
):
    async with running(window=TINY) as rig:
        await rig.register()
        for number in range(5):
            await rig.submit(f"j{number}", cpu=4)
        await rig.record("j0")  # all are in the tables, as they are now
        assert await run_all(rig, 5) == [f"j{number}" for number in range(5)]
        for number in range(5, 12):
            await rig.submit(f"j{number:02}", cpu=4)
        assert await run_all(rig, 7) == [f"j{number:02}" for number in range(5, 12)]
