"""Definition of a store: arrays and gangs of the real scheduler, projected after every record."""

from __future__ import annotations

import pytest

from rota.core.commands import Retry
from rota.core.model import JobId, JobState
from rota.store.protocol import Store
from rota.store.queries import JobQuery
from tests.core.asking import SECOND, retries
from tests.core.world import run
from tests.store.conformance import Appender, StoreMaker, leading, project_all
from tests.store.full_story import RecordedWorld
from tests.store.naive_tables import NaiveTables, assert_loaded, assert_tables

RED, BLUE = ("team", "red"), ("team", "blue")


class ProjectedWorld:
    """World whose records go into a store, with a projection after each or only at the end."""

    def __init__(self, store: Store, leader: Appender, *, each: bool) -> None:
        self.world = RecordedWorld()
        self.world.register("w1", cpu=2)
        self._store, self._leader, self._each = store, leader, each
        self._naive = NaiveTables()

    async def check(self) -> None:
        """Appends the new records, and compares tables and a load with the naive ones."""
        for at, writes in self.world.records[self._naive.seq :]:
            await self._leader.append(*writes, at=at)
            self._naive.take(at, writes)
            if self._each:
                await project_all(self._store)
            assert_loaded(await self._store.journal.load(), self._naive, kept=99)
        await assert_tables(self._store.queries, self._naive)

    async def submitted(self) -> int:
        await self.check()
        return (await self._store.journal.load()).totals.submitted


@pytest.mark.parametrize("each", [True, False])
class GroupConformance:
    """Arrays and gangs, whose members are written again in later attempts and lives."""

    async def test_a_retried_array_puts_its_failed_member_again(
        self, make_store: StoreMaker, *, each: bool
    ) -> None:
        async with make_store() as store:
            projected = ProjectedWorld(store, await leading(store), each=each)
            world = projected.world
            parent = world.submit("array", count=2)
            first, second = world.take()
            world.complete(first, "succeeded")
            world.complete(second, "failed")
            assert world.state(parent) is JobState.FAILED
            await projected.check()
            world.step(Retry(job_id=parent, failed=(1,), preloaded=world.recall()))
            await projected.check()
            assert world.take() == [second]
            world.complete(second, "succeeded")
            assert world.state(parent) is JobState.SUCCEEDED
            assert await projected.submitted() == 3

    async def test_a_gang_that_tries_again_puts_the_member_again_that_had_succeeded(
        self, make_store: StoreMaker, *, each: bool
    ) -> None:
        async with make_store() as store:
            projected = ProjectedWorld(store, await leading(store), each=each)
            world = projected.world
            parent = world.submit("gang", gang=2, retry=retries(2))
            first, second = world.take()
            world.complete(first, "succeeded")
            await projected.check()
            world.complete(second, "failed")
            assert world.state(parent) is JobState.PENDING
            world.advance(SECOND)
            assert world.take() == [first, second]
            await projected.check()
            for member in (first, second):
                world.complete(member, "succeeded")
            assert world.state(parent) is JobState.SUCCEEDED
            assert await projected.submitted() == 3

    async def test_an_array_with_new_labels_is_listed_under_these_and_counted_once(
        self, make_store: StoreMaker, *, each: bool
    ) -> None:
        async with make_store() as store:
            projected = ProjectedWorld(store, await leading(store), each=each)
            world = projected.world
            parent = world.submit("array", count=2, labels=[RED])
            await projected.check()
            world.update(parent, count=2, labels=[BLUE])
            assert await projected.submitted() == 1
            find = store.queries.find_jobs
            assert [job.id for job in await find(JobQuery(labels=(RED,)))] == []
            assert [job.id for job in await find(JobQuery(labels=(BLUE,)))] == [parent]

    async def test_a_plain_job_that_is_retried_is_one_row(
        self, make_store: StoreMaker, *, each: bool
    ) -> None:
        async with make_store() as store:
            projected = ProjectedWorld(store, await leading(store), each=each)
            world = projected.world
            job_id = world.submit("a", labels=[RED])
            run(world, job_id)
            world.complete(job_id, "failed")
            await projected.check()
            world.retry(job_id)
            assert await projected.submitted() == 1
            assert [job.id for job in await store.queries.jobs([JobId("a")])] == [job_id]
