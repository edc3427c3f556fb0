"""Under load PostgreSQL's tables get what has ended first; nobody who reads or takes over minds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from asyncpg.transaction import Transaction

from rota.core.model import ExecutionState, JobId, JobState, Life
from rota.core.outcome import MoveJob, Refill
from rota.store.limits import PRECEDENCE_ROUNDS, PROJECTION_FEW_WRITES, StoreLimits
from rota.store.postgres.store import PostgresStore
from rota.store.projection.standby_state import StandbyState
from rota.store.protocol import Seq
from rota.store.queries import JobQuery
from tests.postgres.cell import Cell
from tests.store.conformance import Appender, leading, put, run_of
from tests.store.conformance_logs_and_files import eventually
from tests.store.conformance_spill import SPILL_QUEUE, put_spilled

pytestmark = pytest.mark.postgres

JOBS = PROJECTION_FEW_WRITES // 4
LIVE = 20
ENDED = JOBS - 2 * LIVE
RUNNING = Life(JobState.RUNNING, attempt=1)
DONE = Life(JobState.SUCCEEDED, finished_at=9)
PATIENT = StoreLimits(
    projection_begin_writes=PROJECTION_FEW_WRITES,
    postgres_projection_idle_s=60.0,
    projection_lag_s=60.0,
)
"""The fold takes many writes at once, and then waits for more until a reader comes."""
_ROWS = """
SELECT (SELECT count(*) FROM rota.jobs_done), (SELECT count(*) FROM rota.executions_done),
    (SELECT count(*) FROM rota.jobs_live), (SELECT folded_seq FROM rota.meta)
"""
_SHELF = "SELECT (SELECT count(*) FROM rota.jobs_shelved), (SELECT sum(count) FROM rota.lines)"


@pytest.fixture
def cell() -> Cell:
    return Cell(limits=PATIENT)


@asynccontextmanager
async def under_load(cell: Cell) -> AsyncIterator[tuple[PostgresStore, Appender]]:
    """All jobs have ended but the first ones, and are in the tables; those are not."""
    numbers = range(JOBS)
    async with cell.opened() as store, cell.connected() as admin:
        leader = await leading(store)
        began = [MoveJob(JobId(f"job-{one:04}"), RUNNING) for one in numbers]
        ended = [MoveJob(one.id, DONE) for one in began[LIVE:]]
        runs = [run_of(one, ExecutionState.SUCCEEDED) for one in numbers[LIVE:]]
        await leader.append(*map(put, numbers))
        await leader.append(*began, *map(run_of, numbers))
        await leader.append(*ended, *runs)

        async def ahead() -> bool:
            return tuple(await admin.fetchrow(_ROWS)) == (JOBS - LIVE, JOBS - LIVE, 0, 0)

        await eventually(ahead)
        yield store, leader


async def test_the_projection_gives_way_while_a_turn_begins_and_while_its_outcome_is_sent(
    cell: Cell,
) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        going_first = store._projector.precedence
        for _ in range(PRECEDENCE_ROUNDS):
            await asyncio.sleep(0)  # whatever was claimed before has passed
        assert not going_first._is_ours
        store.journal.deciding()
        assert going_first._is_ours
        await leader.append(put(1))
        assert going_first._is_ours


async def states(store: PostgresStore) -> dict[JobState, int]:
    return await store.queries.count_jobs("default")


async def test_a_reader_sees_what_lives_although_only_what_ended_was_written(cell: Cell) -> None:
    async with under_load(cell) as (store, leader):
        ended = JOBS - LIVE
        assert await states(store) == {JobState.RUNNING: LIVE, JobState.SUCCEEDED: ended}
        await leader.append(MoveJob(JobId("job-0000"), DONE))
        assert await states(store) == {JobState.RUNNING: LIVE - 1, JobState.SUCCEEDED: ended + 1}
        assert len(await store.queries.find_jobs(JobQuery(limit=JOBS))) == JOBS
        totals = (await store.journal.load()).totals
    assert totals.submitted == JOBS
    assert totals.finished == (("default", "succeeded", ended + 1),)


async def test_another_server_that_projects_the_same_again_counts_nothing_twice(cell: Cell) -> None:
    async with under_load(cell) as (store, leader), cell.opened() as other:
        store._projector.leads = False  # as if it stood still from here on
        loaded = await other.journal.load()
        assert (loaded.seq, len(loaded.jobs), len(loaded.executions)) == (3, LIVE, LIVE)
        assert loaded.totals.submitted == JOBS
        assert loaded.totals.finished == (("default", "succeeded", JOBS - LIVE),)
        store._projector.leads = True
        await leader.append(MoveJob(JobId("job-0000"), DONE))
        assert (await states(store))[JobState.RUNNING] == LIVE - 1


async def test_a_job_that_is_retried_just_after_its_end_is_found_as_it_goes_on(cell: Cell) -> None:
    async with under_load(cell) as (store, leader):
        job = JobId(f"job-{LIVE:04}")
        await leader.append(put(LIVE, Life(JobState.QUEUED, lives=2)))
        [found] = await store.queries.jobs([job])
        assert found.life.state is JobState.QUEUED
        totals = (await store.journal.load()).totals
    assert (totals.submitted, totals.finished) == (JOBS, (("default", "succeeded", JOBS - LIVE),))


async def test_what_a_crash_of_the_database_takes_back_is_written_again(cell: Cell) -> None:
    """The fold does not wait for the disk; `folded_seq` is no older than before what was lost."""
    async with under_load(cell) as (store, leader), cell.connected() as admin:
        await admin.execute(
            "DELETE FROM rota.jobs_done; DELETE FROM rota.executions_done;"
            " UPDATE rota.meta SET submitted = 0"
        )
        await leader.append(MoveJob(JobId("job-0000"), DONE))
        ended = JOBS - LIVE + 1
        assert await states(store) == {JobState.RUNNING: LIVE - 1, JobState.SUCCEEDED: ended}
        totals = (await store.journal.load()).totals
    assert (totals.submitted, totals.finished) == (JOBS, (("default", "succeeded", ended),))


async def test_a_server_that_projected_before_another_wrote_ahead_trusts_none_of_its_rows() -> None:
    cell = Cell(limits=replace(PATIENT, fold_company_s=0.0))
    numbers, early = range(JOBS), range(JOBS, JOBS + LIVE)
    async with cell.opened() as store, cell.opened() as other, cell.connected() as admin:
        leader = await leading(store)
        await leader.append(*map(put, early))
        assert len(await other.queries.find_jobs(JobQuery(limit=JOBS))) == LIVE  # who folds it
        await leader.append(*(MoveJob(JobId(f"job-{one:04}"), DONE) for one in early))
        assert (await states(store))[JobState.SUCCEEDED] == LIVE
        lives = [MoveJob(JobId(f"job-{one:04}"), RUNNING) for one in numbers]
        ends = [MoveJob(one.id, DONE) for one in lives]
        await leader.append(*map(put, numbers), *lives, *map(run_of, numbers), *ends)

        async def ahead() -> bool:
            return (await admin.fetchrow(_ROWS))[0] == LIVE + JOBS

        await eventually(ahead)
        assert await states(other) == {JobState.SUCCEEDED: LIVE + JOBS}
        assert await states(store) == {JobState.SUCCEEDED: LIVE + JOBS}


async def test_a_follower_that_begins_just_as_the_leader_writes_ahead_counts_nothing_twice(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, loop = range(JOBS), asyncio.get_running_loop()
    start = Transaction.start
    async with cell.opened() as store, cell.opened() as other, cell.connected() as admin:
        leader = await leading(store)
        lives = [MoveJob(JobId(f"job-{one:04}"), RUNNING) for one in numbers]
        ends = [MoveJob(one.id, DONE) for one in lives]

        async def write_ahead() -> None:
            await leader.append(*map(put, numbers), *lives, *map(run_of, numbers), *ends)

            async def ahead() -> bool:
                return (await admin.fetchrow(_ROWS))[0] == JOBS

            await eventually(ahead)

        async def start_late(transaction: Transaction) -> None:
            if "repeatable_read" in str(transaction):  # that of whoever reads all
                monkeypatch.setattr(Transaction, "start", start)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(write_ahead(), loop))
            await start(transaction)

        monkeypatch.setattr(Transaction, "start", start_late)
        mirror = StandbyState(await other.journal.load())
        records = await other.journal.records_after(mirror.seq, 100)
        mirror.apply(records, await other.queries.jobs(mirror.unknown(records)))
        copied = mirror.snapshot()
        loaded = await other.journal.load()
    assert copied.totals.submitted == loaded.totals.submitted == JOBS
    assert copied.totals.finished == loaded.totals.finished == (("default", "succeeded", JOBS),)
    assert not copied.jobs


@asynccontextmanager
async def draining(cell: Cell) -> AsyncIterator[tuple[PostgresStore, Appender]]:
    """The same for jobs that had rows before: one half in memory, the other read from the shelf."""
    numbers, half = range(JOBS), JOBS // 2
    async with cell.opened() as store, cell.connected() as admin:
        leader = await leading(store)
        await leader.append(*map(put, numbers[:half]), *map(put_spilled, numbers[half:]))
        assert len(await store.queries.find_jobs(JobQuery(limit=JOBS))) == JOBS
        await store.journal.read_spilled([Refill(SPILL_QUEUE, -1, JOBS, 1)], Seq(0))
        began = [MoveJob(JobId(f"job-{one:04}"), RUNNING) for one in numbers]
        over = [*numbers[LIVE:half], *numbers[half + LIVE :]]
        ended = [MoveJob(began[one].id, DONE) for one in over]
        await leader.append(*began, *map(run_of, numbers))
        await leader.append(*ended, *(run_of(one, ExecutionState.SUCCEEDED) for one in over))
        await leader.append(*(put(JOBS + one, DONE) for one in range(4 * LIVE)))

        async def ahead() -> bool:
            rows = await admin.fetchrow(_ROWS)
            on_shelf = await admin.fetchrow(_SHELF)
            return (*rows, *on_shelf) == (ENDED + 4 * LIVE, ENDED, LIVE, 1, LIVE, LIVE)

        await eventually(ahead)
        yield store, leader


async def test_jobs_of_a_backlog_are_written_once_and_those_that_run_wait(cell: Cell) -> None:
    async with draining(cell) as (store, leader):
        ended = ENDED + 4 * LIVE
        assert await states(store) == {JobState.RUNNING: 2 * LIVE, JobState.SUCCEEDED: ended}
        await leader.append(MoveJob(JobId("job-0000"), DONE))
        assert (await states(store))[JobState.SUCCEEDED] == ended + 1
        loaded = await store.journal.load()
    assert (loaded.totals.submitted, dict(loaded.spill_counts)) == (JOBS + 4 * LIVE, {})
    assert loaded.totals.finished == (("default", "succeeded", ended + 1),)


async def test_another_server_that_projects_the_tail_of_a_backlog_again_counts_nothing_twice(
    cell: Cell,
) -> None:
    async with draining(cell) as (store, leader), cell.opened() as other:
        store._projector.leads = False  # as if it stood still from here on
        loaded = await other.journal.load()
        assert (len(loaded.jobs), len(loaded.executions), dict(loaded.spill_counts)) == (
            2 * LIVE, 2 * LIVE, {},
        )  # fmt: skip
        assert loaded.totals.submitted == JOBS + 4 * LIVE
        assert loaded.totals.finished == (("default", "succeeded", ENDED + 4 * LIVE),)
        store._projector.leads = True
        await leader.append(MoveJob(JobId("job-0000"), DONE))
        assert (await states(store))[JobState.RUNNING] == 2 * LIVE - 1
