"""Definition of a store: spilled jobs of long queues, read back part by part."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.model import JobId, JobRecord, JobState, Life
from rota.core.outcome import AnyWrite, DropJob, MoveJob, PutJob, Refill
from rota.store.protocol import Seq
from rota.store.queries import JobQuery
from tests.example_counts import examples
from tests.store.conformance import StoreMaker, leading, put, thorough
from tests.store.naive import JOB_IDS, NaiveStore, assert_same, histories, spec, terms

SPILL_QUEUE = (1 << 63) - 25
"""As large as they come."""


def put_spilled(number: int, line: int = SPILL_QUEUE, **given: object) -> PutJob:
    return put(number, Life(JobState.QUEUED, reason="ready", line=line), **given)


def ids(jobs: Sequence[JobRecord]) -> list[int]:
    return [int(job.id.removeprefix("job-")) for job in jobs]


class SpillConformance:
    """Jobs on the shelf."""

    async def test_a_load_has_the_first_jobs_of_each_spill_queue_and_counts_the_rest(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1), *(put_spilled(number) for number in range(2, 12)))
            await leader.append(*(put_spilled(number, line=5) for number in range(12, 14)), put(14))
            snapshot = await store.journal.load(3)
            assert ids(snapshot.jobs) == [1, 2, 3, 4, 12, 13, 14]
            assert dict(snapshot.spill_counts) == {SPILL_QUEUE: 10, 5: 2}
            assert snapshot.next_arrival_number == 15

    async def test_a_spill_queue_is_read_on_in_order_of_arrival(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            for number in (4, 2, 9, 7):
                await leader.append(
                    put_spilled(number), put_spilled(number + 20, line=5), put(number + 50)
                )
            first, other, none = await store.journal.read_spilled(
                [Refill(SPILL_QUEUE, 2, 2, 1), Refill(5, -1, 9, 2), Refill(6, -1, 9, 3)], leader.seq
            )
            numbers = [ids(one.jobs) for one in (first, other, none)]
            assert numbers == [[4, 7], [22, 24, 27, 29], []]
            assert first.jobs[0] == JobRecord(
                put_spilled(4).id, put_spilled(4).spec, put_spilled(4).life
            )

    async def test_a_job_that_moves_is_spilled_no_longer(self, make_store: StoreMaker) -> None:
        running, done = Life(JobState.RUNNING), Life(JobState.CANCELLED, finished_at=5)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*(put_spilled(number) for number in range(1, 7)))
            await store.journal.load()
            await leader.append(
                MoveJob(JobId("job-0001"), running),
                MoveJob(JobId("job-0003"), done),
                put(4, terms=terms(priority=3)),
                DropJob(JobId("job-0005")),
            )
            (left,) = await store.journal.read_spilled([Refill(SPILL_QUEUE, -1, 9, 1)], leader.seq)
            assert ids(left.jobs) == [2, 6]
            snapshot = await store.journal.load()
            assert dict(snapshot.spill_counts) == {SPILL_QUEUE: 2}
            assert ids(snapshot.jobs) == [1, 2, 4, 6]
            found = await store.queries.jobs([JobId("job-0001"), JobId("job-0003")])
            assert {job.life.state for job in found} == {JobState.RUNNING, JobState.CANCELLED}
            assert snapshot.totals.finished == (("default", "cancelled", 1),)

    async def test_readers_see_a_spilled_job_as_any_other_that_is_queued(
        self, make_store: StoreMaker
    ) -> None:
        labels = (("team", "billing"),)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1), put_spilled(2, labels=labels), put(3), put_spilled(4))
            catalog = store.queries
            for query in (
                JobQuery(),
                JobQuery(states=(JobState.QUEUED,)),
                JobQuery(states=(JobState.QUEUED, JobState.RUNNING), queue="default"),
                JobQuery(name="invoice"),
            ):
                assert ids(await catalog.find_jobs(query)) == [4, 3, 2, 1]
            assert ids(await catalog.find_jobs(JobQuery(labels=labels))) == [2]
            running = JobQuery(states=(JobState.RUNNING,))
            assert await catalog.find_jobs(running) == []
            (found,) = await catalog.jobs([JobId("job-0004")])
            assert found.life == put_spilled(4).life

    async def test_an_empty_spill_queue_is_forgotten(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put_spilled(1))
            await store.journal.load()
            await leader.append(MoveJob(JobId("job-0001"), Life(JobState.RUNNING)))
            assert list((await store.journal.load()).spill_counts) == []

    @settings(thorough, max_examples=examples(8, 60))
    @given(history=histories, after=st.integers(-1, 50), limit=st.integers(1, 4))
    async def test_the_spill_queues_are_what_the_writes_come_to(
        self,
        make_store: StoreMaker,
        history: Sequence[Sequence[AnyWrite]],
        after: int,
        limit: int,
    ) -> None:
        naive = NaiveStore(write for record in history for write in record)
        spill_queues = naive.spill_queues()
        async with make_store() as store:
            leader = await leading(store)
            for record in history:
                await leader.append(*record)
            wanted = [Refill(line, after, limit, 0) for line in (7, 1 << 62)]
            found = await store.journal.read_spilled(wanted, leader.seq)
        for refill, spilled in zip(wanted, found, strict=True):
            jobs = spilled.jobs
            orders = [job.spec.arrival_number for job in spill_queues.get(refill.spill_queue, [])]
            expected = [order for order in orders if order > after][:limit]
            assert [job.spec.arrival_number for job in jobs] == expected
            assert all(job in spill_queues[refill.spill_queue] for job in jobs)

    @settings(thorough, max_examples=examples(8, 100))
    @given(history=histories, waits=st.lists(st.none() | st.booleans(), min_size=8, max_size=8))
    async def test_reading_a_spill_queue_at_any_time_changes_no_outcome(
        self,
        make_store: StoreMaker,
        history: Sequence[Sequence[AnyWrite]],
        waits: Sequence[bool | None],
    ) -> None:
        queued = Life(JobState.QUEUED, line=7)
        spilled = [PutJob(job_id, spec(order), queued) for order, job_id in enumerate(JOB_IDS)]
        records = [spilled, *history]
        naive = NaiveStore(write for record in records for write in record)
        async with make_store() as store:
            leader = await leading(store)
            wanted = [Refill(line, -1, 99, 0) for line in (7, 1 << 62)]
            for record, wait in zip(records, [True, *waits], strict=False):
                await leader.append(*record)
                if wait is not None:
                    await store.journal.read_spilled(wanted, leader.seq if wait else Seq(0))
            await assert_same(store, naive)
