"""Spilled jobs that are read while the tables are behind the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from rota.core.commands import Refilled
from rota.core.model import JobId, JobRecord, JobState, Life
from rota.core.outcome import AnyWrite, MoveJob, PutJob, Refill
from rota.engine.limits import ENGINE_LIMITS
from rota.engine.refills import Refills
from rota.store.protocol import JournalStore, ProjectionStatus, Seq, SpilledJobs
from tests.store.naive import spec

QUEUE = 7
WANTED = Refill(spill_queue=QUEUE, after=-1, limit=4, request_id=1, exact=True)


class SlowJournal:
    """Journal whose read of spilled jobs ends when the test says so."""

    def __init__(self) -> None:
        self.projection = ProjectionStatus()
        self.began = asyncio.Event()
        self.answer: asyncio.Future[SpilledJobs] = asyncio.get_running_loop().create_future()

    async def read_spilled(self, wanted: Sequence[Refill]) -> SpilledJobs:
        self.began.set()
        return await self.answer


def spilled(number: int) -> AnyWrite:
    life = Life(JobState.QUEUED, line=QUEUE)
    return PutJob(JobId(f"job-{number}"), spec(number), life)


async def answered(refills: Refills, answers: list[Refilled]) -> list[str]:
    await asyncio.gather(*refills._tasks)
    await refills.close()
    return [job.id for job in answers[0].jobs]


async def test_a_read_gets_what_was_projected_after_it_saw_the_tables() -> None:
    journal, answers = SlowJournal(), list[Refilled]()
    refills = Refills(cast(JournalStore, journal), answers.extend, ENGINE_LIMITS)
    refills.note(Seq(1), [spilled(1)], spills=True)
    refills.fetch([WANTED])
    await journal.began.wait()
    journal.projection = ProjectionStatus(Seq(1))
    refills.note(Seq(2), [spilled(2)], spills=True)
    journal.answer.set_result(SpilledJobs([()], [Seq(0)]))
    assert await answered(refills, answers) == ["job-1", "job-2"]


async def test_a_job_that_left_before_no_job_was_spilled_does_not_come_back() -> None:
    journal, answers = SlowJournal(), list[Refilled]()
    refills = Refills(cast(JournalStore, journal), answers.extend, ENGINE_LIMITS)
    refills.note(Seq(1), [spilled(1)], spills=True)
    refills.note(Seq(2), [MoveJob(JobId("job-1"), Life(JobState.SUCCEEDED))], spills=False)
    refills.note(Seq(3), [spilled(3)], spills=True)
    refills.fetch([WANTED])
    await journal.began.wait()
    stale = JobRecord(JobId("job-1"), spec(1), Life(JobState.QUEUED, line=QUEUE))
    journal.answer.set_result(SpilledJobs([(stale,)], [Seq(1)]))
    assert await answered(refills, answers) == ["job-3"]
