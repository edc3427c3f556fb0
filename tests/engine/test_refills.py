"""Spilled jobs, read back beside the turns: again after a failure, never after a stop."""

from __future__ import annotations

import asyncio

import pytest

from rota.core.commands import Complete, MemoryWindow
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
