"""Spilled jobs, read back beside the turns: again after a failure, never after a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from rota.core.commands import Complete, MemoryWindow, Refilled
from rota.core.model import JobRecord, JobState, Life
from rota.core.outcome import MoveJob, Refill
from rota.engine.limits import ENGINE_LIMITS
from rota.engine.refills import Refills
from rota.store.protocol import JournalStore, ProjectionStatus, Seq, SpilledJobs, StoreError
from tests.engine.rig import PATIENCE_S, Rig, running, succeeded
from tests.store.conformance_spill import SPILL_QUEUE, put_spilled

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


class HeldJournal:
    """Journal whose tables are read only when the test lets them be."""

    def __init__(self, jobs: Sequence[JobRecord]) -> None:
        self.projection = ProjectionStatus(projected=Seq(8))
        self.read, self.answer = asyncio.Event(), asyncio.Event()
        self._found = SpilledJobs([tuple(jobs)], [Seq(8)])

    async def read_spilled(self, wanted: Sequence[Refill]) -> SpilledJobs:
        self.read.set()
        await self.answer.wait()
        return self._found


async def test_a_job_that_left_while_its_spill_queue_was_read_is_not_answered() -> None:
    spilled = [put_spilled(number) for number in (1, 2)]
    journal = HeldJournal([JobRecord(one.id, one.spec, one.life) for one in spilled])
    answers: asyncio.Queue[Sequence[Refilled]] = asyncio.Queue()
    refills = Refills(cast("JournalStore", journal), answers.put_nowait, ENGINE_LIMITS)
    cancelled = Life(JobState.CANCELLED, finished_at=9)
    refills.note(Seq(9), [MoveJob(spilled[0].id, cancelled)], spills=True)
    refills.fetch([Refill(SPILL_QUEUE, -1, 2, 1)])
    await journal.read.wait()
    # The tables have the record by now, but the read began before.
    journal.projection = ProjectionStatus(projected=Seq(9))
    refills.note(Seq(10), [put_spilled(3)], spills=True)
    journal.answer.set()
    (answer,) = await answers.get()
    assert [job.id for job in answer.jobs] == [spilled[1].id]
    await refills.close()
