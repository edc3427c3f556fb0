"""Definition of a store: a job that cannot be projected is set aside, and all others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest
from msgspec.structs import replace

from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    JobId,
    JobState,
    KeyRecord,
    Life,
    WorkerId,
)
from rota.core.outcome import DropJob, MoveJob, PutExecution, PutKey, Refill
from rota.store.projection.quarantine import QUARANTINED_JOBS_MAX, REASON
from rota.store.protocol import Outline, Store, StoreError
from rota.store.queries import ExecutionQuery, JobQuery
from tests.store.conformance import leading, project_all, put, run_of
from tests.store.conformance_logs_and_files import eventually
from tests.store.conformance_spill import SPILL_QUEUE, ids, put_spilled

POISONED = JobId("job-0002")
RUNNING = Life(JobState.RUNNING, attempt=1)
DONE = Life(JobState.SUCCEEDED, finished_at=9)


class Poison(Protocol):
    """Refuses rows of some jobs, as a constraint of the database would."""

    async def refuse(self, *names: str) -> None:
        """Refuses rows of these jobs, keys and workers from now on."""
        ...

    async def relent(self) -> None:
        """Refuses nothing more."""
        ...

    async def repair(self) -> None:
        """Projects what was set aside."""
        ...


PoisonedMaker = Callable[[], AbstractAsyncContextManager[tuple[Store, Poison]]]


def run_named(name: str, state: ExecutionState = ExecutionState.RUNNING) -> PutExecution:
    return PutExecution(Execution(ExecutionId(name), POISONED, WorkerId("w"), 1, 1, state, 1))


async def executions_of(store: Store, **asked: object) -> list[str]:
    query = ExecutionQuery(job_id=POISONED, **asked)  # type: ignore[arg-type]
    return [x.id for x in await store.queries.find_executions(query)]


class SetAsideConformance:
    """Poisoned jobs."""

    async def test_a_poisoned_job_is_set_aside_and_all_others_are_projected(
        self, make_poisoned: PoisonedMaker
    ) -> None:
        async with make_poisoned() as (store, poison):
            await poison.refuse(POISONED)
            leader = await leading(store)
            await leader.append(put(1), put(2), put(3), run_of(2))
            await leader.append(*(MoveJob(JobId(f"job-000{n}"), RUNNING) for n in (1, 2, 3)))
            await project_all(store)
            found = await store.queries.find_jobs(JobQuery())
            assert [(job.id, job.life) for job in found] == [
                ("job-0003", RUNNING),
                ("job-0001", RUNNING),
            ]
            status = store.journal.projection
            assert (status.projected, status.quarantined, status.trouble) == (2, 1, "")
            snapshot = await store.journal.load()
            assert [(job.id, job.life) for job in snapshot.jobs] == [
                (f"job-000{n}", RUNNING) for n in (1, 2, 3)
            ]
            assert [x.id for x in snapshot.executions] == ["execution-0002"]
            assert snapshot.totals.submitted == 3

    async def test_a_job_in_quarantine_is_shown_by_its_id_as_the_journal_has_it(
        self, make_poisoned: PoisonedMaker
    ) -> None:
        async with make_poisoned() as (store, poison):
            leader = await leading(store)
            await leader.append(put(1), put(2), run_named("x1"))
            await project_all(store)
            await poison.refuse(POISONED)
            lost = run_named("x1", ExecutionState.LOST)
            await leader.append(MoveJob(POISONED, RUNNING), lost, run_named("x2"))
            queries = store.queries
            (job,) = await queries.jobs([POISONED])
            assert job.life == replace(RUNNING, reason=REASON)
            assert {one.id for one in await queries.jobs([POISONED, JobId("job-0001")])} == {
                "job-0001",
                POISONED,
            }
            outlines = await queries.outlines([JobId("job-0001"), POISONED])
            assert sorted(one.state for one in outlines) == ["queued", "running"]
            assert Outline(POISONED, JobState.RUNNING, "default", "default", "invoice") in outlines
            found = await queries.executions([ExecutionId("x1"), ExecutionId("x2")])
            assert {x.id: x.state for x in found} == {"x1": "lost", "x2": "running"}
            assert await executions_of(store) == ["x2", "x1"]
            assert await executions_of(store, limit=1) == ["x2"]
            assert await executions_of(store, limit=1, before="x2") == ["x1"]
            assert await executions_of(store, states=(ExecutionState.RUNNING,)) == ["x2"]

    async def test_a_job_in_quarantine_that_is_deleted_is_not_shown(
        self, make_poisoned: PoisonedMaker
    ) -> None:
        async with make_poisoned() as (store, poison):
            leader = await leading(store)
            await leader.append(put(1), put(2), run_named("x1"))
            await project_all(store)
            await poison.refuse(POISONED)
            await leader.append(MoveJob(POISONED, DONE))
            await leader.append(DropJob(POISONED))
            assert await store.queries.jobs([POISONED]) == []
            assert await store.queries.outlines([POISONED]) == []
            assert await executions_of(store) == []
            assert await store.queries.executions([ExecutionId("x1")]) == []
            assert [job.id for job in (await store.journal.load()).jobs] == ["job-0001"]
            await poison.relent()
            await poison.repair()
            await project_all(store)
            assert [job.id for job in await store.queries.find_jobs(JobQuery())] == ["job-0001"]
            assert (await store.journal.load()).totals.finished == (("default", "succeeded", 1),)

    async def test_a_repaired_job_has_all_that_was_written_meanwhile(
        self, make_poisoned: PoisonedMaker
    ) -> None:
        async with make_poisoned() as (store, poison):
            await poison.refuse(POISONED)
            leader = await leading(store)
            labels = (("team", "billing"),)
            await leader.append(put(1), put(2, labels=labels), run_named("x1"))
            await project_all(store)
            await leader.append(MoveJob(POISONED, RUNNING))
            await project_all(store)
            await poison.relent()
            await poison.repair()
            assert [job.life for job in await store.queries.jobs([POISONED])] == [RUNNING]
            await leader.append(MoveJob(POISONED, DONE))
            found = await store.queries.find_jobs(JobQuery(labels=labels))
            assert [(job.id, job.life) for job in found] == [(POISONED, DONE)]
            assert await executions_of(store) == ["x1"]
            assert store.journal.projection.quarantined == 0
            totals = (await store.journal.load()).totals
            assert (totals.submitted, totals.finished) == (2, (("default", "succeeded", 1),))

    async def test_a_job_that_is_refused_again_stays_in_quarantine(
        self, make_poisoned: PoisonedMaker
    ) -> None:
        async with make_poisoned() as (store, poison):
            await poison.refuse(POISONED)
            leader = await leading(store)
            await leader.append(put(1), put(2))
            await project_all(store)
            with pytest.raises(Exception, match="refused"):
                await poison.repair()
            await leader.append(MoveJob(POISONED, RUNNING))
            (job,) = await store.queries.jobs([POISONED])
            assert job.life == replace(RUNNING, reason=REASON)
            assert store.journal.projection.quarantined == 1

    async def test_spilled_jobs_in_quarantine_are_read_as_the_journal_has_them(
        self, make_poisoned: PoisonedMaker
    ) -> None:
        async with make_poisoned() as (store, poison):
            leader = await leading(store)
            await leader.append(*(put_spilled(number) for number in (1, 2, 4, 5, 6)))
            await project_all(store)
            await poison.refuse("job-0002", "job-0003", "job-0004")
            await leader.append(
                MoveJob(JobId("job-0002"), RUNNING),
                put_spilled(3),
                MoveJob(JobId("job-0004"), DONE),
            )
            await project_all(store)
            assert store.journal.projection.quarantined == 3
            for after, limit in ((-1, 9), (0, 2), (1, 2), (3, 1), (3, 2), (6, 1)):
                expected = [number for number in (1, 3, 5, 6) if number > after][:limit]
                one = Refill(SPILL_QUEUE, after, limit, 1)
                for wanted in ([one], [one, Refill(7, -1, 1, 2)]):
                    found = await store.journal.read_spilled(wanted)
                    assert ids(found.jobs[0]) == expected
            snapshot = await store.journal.load(2)
            assert ids(snapshot.jobs) == [1, 2, 3]
            assert dict(snapshot.spill_counts) == {SPILL_QUEUE: 4}

    async def test_a_write_of_no_job_that_is_refused_stops_the_projection_and_loses_nothing(
        self, make_poisoned: PoisonedMaker
    ) -> None:
        async with make_poisoned() as (store, poison):
            await poison.refuse("key")
            leader = await leading(store)
            await leader.append(put(1), PutKey(KeyRecord("key", "print", b"", 1)))
            with pytest.raises(StoreError, match="refused"):
                await store.queries.jobs([JobId("job-0001")])
            status = store.journal.projection
            assert (status.projected, status.quarantined) == (0, 0)
            assert "refused" in status.trouble
            assert [job.id for job in (await store.journal.load()).jobs] == ["job-0001"]
            await poison.relent()
            await leader.append(put(2))
            await eventually_projected(store)
            assert [job.id for job in await store.queries.find_jobs(JobQuery())] == [
                "job-0002",
                "job-0001",
            ]
            assert store.journal.projection.trouble == ""

    async def test_more_poisoned_jobs_than_are_set_aside_stop_the_projection(
        self, make_poisoned: PoisonedMaker
    ) -> None:
        names = [f"job-{number:04}" for number in range(QUARANTINED_JOBS_MAX + 1)]
        async with make_poisoned() as (store, poison):
            await poison.refuse(*names)
            leader = await leading(store)
            await leader.append(put(0), put(900))
            await project_all(store)
            assert store.journal.projection.quarantined == 1
            await leader.append(*(put(number) for number in range(1, len(names))), put(901))
            with pytest.raises(StoreError, match="more than 100 jobs cannot be projected"):
                await project_all(store)
            status = store.journal.projection
            assert (status.projected, status.quarantined) == (1, 1)
            assert "more than 100 jobs" in status.trouble
            assert len((await store.journal.load()).jobs) == len(names) + 2
            await poison.relent()
            await leader.append(put(902))
            await eventually_projected(store)
            await poison.repair()
            assert len(await store.queries.find_jobs(JobQuery(limit=999))) == len(names) + 3


async def eventually_projected(store: Store) -> None:
    """Waits until the projection, which tries again by itself, has gone on."""
    await eventually(_has_gone_on(store))


def _has_gone_on(store: Store) -> Callable[[], Awaitable[bool]]:
    async def has_gone_on() -> bool:
        try:
            await project_all(store)
        except StoreError:
            return False
        return True

    return has_gone_on
