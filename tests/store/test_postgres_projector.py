"""Projectors of several servers on one database: who projects, and what slow ones hold up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from rota.core.model import JobState, Life
from rota.core.outcome import AnyWrite, MoveJob
from rota.store.limits import StoreLimits
from rota.store.postgres.load import read_journal, read_positions
from rota.store.postgres.plan_cache import PlanCache
from rota.store.postgres.projection import SHARDS, WindowProjection
from rota.store.postgres.quarantine import set_failed_jobs_aside
from rota.store.postgres.store import PostgresStore
from rota.store.projection.shards import Window
from rota.store.protocol import GENESIS, Snapshot, StoredRecord, TablesBehindError
from rota.store.queries import JobQuery
from tests.example_counts import examples
from tests.postgres.cell import EMPTY, Cell, migrated_cell
from tests.store.conformance import Appender, leading, project_all, put, run_of
from tests.store.naive import NaiveStore, assert_same, histories

pytestmark = pytest.mark.postgres

DONE = Life(JobState.SUCCEEDED, finished_at=9)
ALL = 10_000


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


def the_newest(leader: Appender) -> StoredRecord:
    """The newest record as another server would be told of it, without its body."""
    return StoredRecord(leader.head.seq, leader.epoch, 1, leader.head.hash, b"")


def history(records: int) -> Iterator[list[AnyWrite]]:
    """Jobs that come in each record, and end in the next one."""
    for number in range(1, records + 1):
        before = [MoveJob(put(5 * number - 5 + n).id, DONE) for n in range(5) if number > 1]
        yield [*(put(5 * number + n) for n in range(5)), run_of(number), *before]


async def test_two_projectors_at_once_write_no_row_twice_and_miss_none(cell: Cell) -> None:
    limits = StoreLimits(postgres_projection_idle_s=0.0)
    written: list[AnyWrite] = []
    async with cell.opened(limits=limits) as one, cell.opened(limits=limits) as two:
        leader = await leading(one)
        two.projection.lead(leads=True)  # it believes so, as after a change of leader
        for writes in history(60):
            await leader.append(*writes)
            two.projection.want(leader.seq)
            written += writes
        for store in (one, two):
            await assert_same(store, NaiveStore(written))
            await store.projection.reached(leader.seq)
            status = store.projection.status
            assert (status.projected, status.quarantined, status.trouble) == (60, 0, "")
            assert (await store.journal.load()).totals.submitted == 5 * 60


@cache
def shared_cell() -> Cell:
    """One that every example empties."""
    return Cell(limits=StoreLimits(projection_stand_in_s=60.0, projection_watch_s=60.0))


@settings(max_examples=examples(10, 100), deadline=None)
@given(
    histories,
    st.lists(st.integers(0, 8), min_size=SHARDS, max_size=SHARDS),
    st.integers(1, 3),
)
async def test_shards_that_are_at_different_records_are_loaded_and_projected_as_one(
    history: list[list[AnyWrite]], until: list[int], parts: int
) -> None:
    """In steps: each shard goes on by itself, as when several processes project."""
    cell = shared_cell()
    naive = NaiveStore(write for writes in history for write in writes)
    async with cell.opened() as store, cell.connected() as admin:
        await admin.execute(EMPTY)
        await store._projector.start_over()
        leader = await leading(store)
        store.projection.lead(leads=False)
        for writes in history:
            await leader.append(*writes)
        expected = None
        for part in range(1, parts + 1):
            ends = {shard: seq * part // parts for shard, seq in enumerate(until)}
            await project_shards(cell, ends)
            loaded = await store.journal.load()
            assert expected is None or same(loaded) == expected
            expected = same(loaded)
        await store._projector.start_over()
        store.projection.lead(leads=True)
        await assert_same(store, naive)
        assert same(await store.journal.load()) == expected


def same(snapshot: Snapshot) -> Snapshot:
    """A snapshot without what depends on how far the tables are, and on the order of counts."""
    totals = snapshot.totals
    counted = replace(
        totals,
        finished=tuple(sorted(one for one in totals.finished if one[2])),
        decided=tuple(sorted(totals.decided)),
        reacted=tuple(sorted(totals.reacted)),
    )
    return replace(snapshot, tail=(), totals=counted, spill_counts=sorted(snapshot.spill_counts))


async def project_shards(cell: Cell, ends: dict[int, int]) -> None:
    """Projects each shard up to a record, as far as the journal goes."""
    async with cell.connected() as connection:
        for shard, end in ends.items():
            async with connection.transaction():
                position = (await read_positions(connection))[shard]
                records = await read_journal(connection, position)
                due = [record for record in records if record.seq <= end]
                if due:
                    window = Window({shard: position}, due, SHARDS)
                    projection = WindowProjection(connection, window, {}, copies=True)
                    assert await projection.run(PlanCache()) is not None


async def test_another_server_projects_when_the_leader_is_gone(cell: Cell) -> None:
    async with cell.opened() as two, cell.opened() as one:
        leader = await leading(one)
        await leader.append(put(1))
        await project_all(two)
        await end_projector(one)
        await leader.append(put(2))
        # Sooner than a reader gives up.
        assert len(await two.queries.find_jobs(JobQuery())) == 2


async def end_projector(store: PostgresStore) -> None:
    """Ends the projector as a crash of its process does."""
    task = store._projector._task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_another_server_projects_when_the_leaders_is_frozen_in_a_transaction(
    cell: Cell,
) -> None:
    async with cell.opened() as one, cell.opened() as two:
        leader = await leading(one)
        await leader.append(put(1))
        await project_all(two)
        await end_projector(one)
        async with frozen_projector(cell) as frozen:
            await leader.append(put(2))
            with capture_logs() as logs:
                assert len(await two.queries.find_jobs(JobQuery())) == 2
            assert [entry["event"] for entry in logs] == ["projecting_for_another"]
            assert frozen.is_closed()


@asynccontextmanager
async def frozen_projector(cell: Cell) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection that locked the shards and does nothing more."""
    frozen = await asyncpg.connect(cell.dsn, server_settings={"application_name": "rota project 0"})
    try:
        await frozen.execute("BEGIN")
        await frozen.execute("SELECT folded_seq FROM rota.projection_shards FOR UPDATE")
        yield frozen
    finally:
        await frozen.close(timeout=5)


async def test_a_leader_that_comes_back_projects_again_and_the_other_stops(cell: Cell) -> None:
    async with cell.opened() as one, cell.opened() as two:
        leader = await leading(one)
        one.projection.lead(leads=False)
        await leader.append(put(1))
        assert len(await two.queries.find_jobs(JobQuery())) == 1
        one.projection.lead(leads=True)
        with capture_logs() as logs:
            for number in range(2, 9):
                await leader.append(put(number))
                assert len(await two.queries.find_jobs(JobQuery(limit=ALL))) == number
        assert logs == []


async def test_a_slow_projection_delays_no_append_and_no_load(cell: Cell) -> None:
    limits = StoreLimits(projection_wait_s=0.2)
    async with cell.opened(limits=limits) as store:
        leader = await leading(store)
        await leader.append(put(1))
        await project_all(store)
        async with cell.connected() as report, report.transaction():
            await report.execute("LOCK TABLE rota.jobs_done IN EXCLUSIVE MODE")
            await leader.append(MoveJob(put(1).id, DONE), put(2))
            async with asyncio.timeout(1.0):
                for number in range(3, 12):
                    await leader.append(put(number))
                    live = (await store.journal.load()).jobs
                    assert [job.id for job in live] == [put(n).id for n in range(2, number + 1)]
            with pytest.raises(TablesBehindError, match="record 11 is not in them yet"):
                await store.queries.find_jobs(JobQuery())
        assert len(await wait_for_jobs(store)) == 11


async def wait_for_jobs(store: PostgresStore) -> list[str]:
    """Reads all jobs as soon as the tables have them."""
    async with asyncio.timeout(10):
        while True:
            try:
                return [job.id for job in await store.queries.find_jobs(JobQuery(limit=ALL))]
            except TablesBehindError:
                continue


async def test_readers_do_not_wait_at_all_for_tables_that_are_far_behind(cell: Cell) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        async with cell.connected() as report, report.transaction():
            await report.execute("LOCK TABLE rota.jobs_live IN EXCLUSIVE MODE")
            await leader.append(put(1))
            store.projection.note_appended(the_newest(leader), 300_000)
            async with asyncio.timeout(0.5):
                with pytest.raises(TablesBehindError, match="writes behind the journal"):
                    await store.queries.find_jobs(JobQuery())


BREAK_ONE_JOB = f"""
ALTER TABLE rota.jobs_live ADD CONSTRAINT broken CHECK (id <> '{put(1).id}') NOT VALID
"""
MEND = "ALTER TABLE rota.jobs_live DROP CONSTRAINT broken"


async def test_a_projector_that_missed_another_ones_quarantine_reads_it_before_it_projects(
    cell: Cell,
) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        await cell.run(BREAK_ONE_JOB)
        await leader.append(put(1), put(2))
        await project_all(store)
        assert store.projection.status.quarantined == 1
        # Another server repaired that job and set another one aside: there are as many as before.
        await cell.run(
            f"{MEND}; DELETE FROM rota.quarantined_writes;"
            f" UPDATE rota.quarantine SET job_id = '{put(3).id}'"
        )
        await leader.append(put(3), put(4))
        await project_all(store)
        aside = await cell.ask("SELECT array_agg(job_id) FROM rota.quarantined_writes")
        live = await cell.ask("SELECT array_agg(id ORDER BY id) FROM rota.jobs_live")
    assert (aside, live) == ([put(3).id], [put(2).id, put(4).id])


async def test_no_job_is_set_aside_because_another_server_has_projected_it_meanwhile(
    cell: Cell,
) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(put(1), put(2))
        await project_all(store)
        records = await store.journal.records_after(GENESIS, ALL)
    before = Window(dict.fromkeys(range(SHARDS), GENESIS), records, SHARDS)
    async with cell.connected() as connection:
        assert await set_failed_jobs_aside(connection, before, {}, PlanCache(), copies=True) is None
    assert await cell.ask("SELECT count(*) FROM rota.quarantine") == 0
