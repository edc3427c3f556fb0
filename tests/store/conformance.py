"""Definition of a store: an implementation that passes this is one. A store bug gets its test
here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.core.model import (
    Array,
    Dependency,
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    JobState,
    KeyRecord,
    Life,
    WorkerId,
)
from rota.core.outcome import AnyWrite, DropJob, MoveJob, PutExecution, PutGroup, PutJob, PutKey
from rota.store.batched_lookup import KeyStatus
from rota.store.limits import STORE_LIMITS, StoreLimits
from rota.store.protocol import (
    GENESIS,
    Direction,
    DivergedError,
    Epoch,
    FencedError,
    Head,
    JournalStore,
    Seq,
    Store,
)
from rota.store.queries import ExecutionQuery, JobQuery
from tests.example_counts import examples
from tests.store.naive import (
    QUEUED,
    NaiveStore,
    assert_same,
    execution_queries,
    histories,
    job_queries,
    spec,
    terms,
)


class StoreMaker(Protocol):
    """Opens an empty store."""

    def __call__(
        self, limits: StoreLimits = STORE_LIMITS
    ) -> AbstractAsyncContextManager[Store]: ...


thorough = settings(
    max_examples=examples(12, 100),
    deadline=None,
    # The maker is the same for all examples by design: each makes its own store with it.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


class Appender:
    """A leader that only appends."""

    def __init__(self, ledger: JournalStore) -> None:
        self._journal = ledger
        self.epoch = Epoch(0)
        self.head = GENESIS

    @property
    def seq(self) -> Seq:
        """The newest record that it appended or found."""
        return self.head.seq

    async def start(self) -> Appender:
        self.head = (await self._journal.load()).head
        self.epoch = await self._journal.claim("test")
        return self

    async def append(self, *writes: AnyWrite, at: Instant = 1) -> None:
        self.head = await self._journal.append(self.epoch, self.head, at, writes)


async def leading(store: Store) -> Appender:
    return await Appender(store.journal).start()


async def project_all(store: Store) -> None:
    """Returns when the tables have all that was appended: a reader waits for that."""
    await store.queries.jobs([JobId("none")])


def put(number: int, life: Life = QUEUED, **given: object) -> PutJob:
    return PutJob(JobId(f"job-{number:04}"), spec(number, **given), life)


def run_of(number: int, state: ExecutionState = ExecutionState.RUNNING) -> PutExecution:
    name = f"execution-{number:04}"
    job_id, worker_id = JobId(f"job-{number:04}"), WorkerId("worker")
    return PutExecution(Execution(ExecutionId(name), job_id, worker_id, 1, 1, state, 1))


class JournalConformance:
    """Appending, loading, fencing."""

    async def test_a_load_brings_what_was_appended(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1), put(2), run_of(1))
            snapshot = await store.journal.load()
        assert snapshot.seq == 1
        assert [job.id for job in snapshot.jobs] == ["job-0001", "job-0002"]
        assert [execution.id for execution in snapshot.executions] == ["execution-0001"]

    async def test_an_empty_store_begins_at_nothing(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            snapshot = await store.journal.load()
            assert (snapshot.seq, snapshot.next_arrival_number, list(snapshot.jobs)) == (0, 0, [])
            assert await store.queries.head() == (0, 0)

    async def test_an_append_at_a_taken_position_is_refused_and_changes_nothing(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1))
            with pytest.raises(FencedError):
                await store.journal.append(leader.epoch, GENESIS, 1, [put(2)])
            assert [job.id for job in await store.queries.find_jobs(JobQuery())] == ["job-0001"]
            await leader.append(put(3))

    async def test_an_old_epoch_is_refused_after_a_claim(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            old = await leading(store)
            await old.append(put(1))
            new = await leading(store)
            with pytest.raises(FencedError):
                await old.append(put(2))
            await new.append(put(3))
            found = await store.queries.find_jobs(JobQuery())
        assert new.epoch > old.epoch
        assert [job.id for job in found] == ["job-0003", "job-0001"]

    async def test_a_gap_in_the_journal_is_refused(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            nobody_has = Head(Seq(1), bytes(16))
            with pytest.raises(DivergedError, match="gap"):
                await store.journal.append(leader.epoch, nobody_has, 1, [put(1)])

    async def test_an_append_after_a_record_that_the_journal_does_not_have_is_refused(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1))
            replaced = Head(leader.head.seq, bytes(16))
            with pytest.raises(DivergedError):
                await store.journal.append(leader.epoch, replaced, 1, [put(2)])
            with pytest.raises(DivergedError):
                await store.journal.records_after(replaced, 9)
            with pytest.raises(DivergedError):
                await store.journal.records_after(Head(Seq(7), bytes(16)), 9)
            await leader.append(put(3))
            records = await store.journal.records_after(GENESIS, 9)
            assert [record.head for record in records][-1] == leader.head
            assert await store.journal.heads([Seq(1), Seq(2), Seq(3)]) == {
                record.seq: record.hash for record in records
            }

    async def test_the_next_arrival_number_survives_the_newest_job(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1), put(7))
            await leader.append(DropJob(JobId("job-0007")))
            assert (await store.journal.load()).next_arrival_number == 8

    async def test_changes_can_be_resumed_after_any_record(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            for number in range(1, 6):
                await leader.append(put(number), run_of(number), at=number)
            whole = await store.queries.changes_after(Seq(0), 100)
            assert [(c.seq, c.index, c.at) for c in whole] == [
                (seq, index, seq) for seq in range(1, 6) for index in (0, 1)
            ]
            assert whole[0].write == put(1)
            for seen in range(6):
                page = await store.queries.changes_after(Seq(seen), 2)
                assert page == [c for c in whole if seen < c.seq <= seen + 2]
            assert await store.queries.head() == (1, 5)


class ProjectionConformance:
    """The tables equal the projection of the journal."""

    @thorough
    @given(history=histories)
    async def test_the_tables_equal_the_projection_of_the_journal(
        self, make_store: StoreMaker, history: Sequence[Sequence[AnyWrite]]
    ) -> None:
        naive = NaiveStore(write for record in history for write in record)
        async with make_store() as store:
            leader = await leading(store)
            for record in history:
                await leader.append(*record)
            await assert_same(store, naive)
            await assert_same(store, naive)

    @thorough
    @given(history=histories)
    async def test_projecting_records_one_by_one_equals_projecting_a_window(
        self, make_store: StoreMaker, history: Sequence[Sequence[AnyWrite]]
    ) -> None:
        naive = NaiveStore()
        async with make_store() as store:
            leader = await leading(store)
            for record in history:
                await leader.append(*record)
                for write in record:
                    naive.apply(write)
                await project_all(store)
            await assert_same(store, naive)

    async def test_an_array_that_is_put_again_stays_one_job(self, make_store: StoreMaker) -> None:
        def put_array(count: int) -> PutGroup:
            array = spec(1, labels=(("size", str(count)),), group=Array(count))
            return PutGroup(JobId("job-0001"), array, QUEUED)

        async with make_store() as store:
            leader = await leading(store)
            for count in (3, 5):
                await leader.append(put_array(count))
                snapshot = await store.journal.load()
            assert snapshot.totals.submitted == 1
            assert [job.spec.group for job in snapshot.jobs] == [Array(5)]
            old = await store.queries.find_jobs(JobQuery(labels=(("size", "3"),)))
            assert list(old) == []

    async def test_an_ending_is_counted_once_a_life(self, make_store: StoreMaker) -> None:
        failed = Life(JobState.FAILED, lives=1, finished_at=5)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1))
            await leader.append(MoveJob(JobId("job-0001"), failed))
            await project_all(store)
            await leader.append(MoveJob(JobId("job-0001"), failed))
            await project_all(store)
            await leader.append(put(1, Life(JobState.QUEUED, lives=2)))
            await leader.append(MoveJob(JobId("job-0001"), Life(JobState.FAILED, lives=2)))
            totals = (await store.journal.load()).totals
        assert totals.submitted == 1
        assert totals.finished == (("default", "failed", 2),)

    async def test_a_deleted_job_takes_everything_of_its_own_along(
        self, make_store: StoreMaker
    ) -> None:
        first, second = JobId("job-0001"), JobId("job-0002")
        labels = (("team", "billing"),)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1, labels=labels), run_of(1, ExecutionState.SUCCEEDED))
            await leader.append(put(2, labels=labels, dependencies=(Dependency(first),)))
            await project_all(store)
            await leader.append(DropJob(second), DropJob(first))
            catalog = store.queries
            assert await catalog.jobs([first, second]) == []
            assert await catalog.find_executions(ExecutionQuery()) == []
            assert await catalog.find_jobs(JobQuery(labels=labels)) == []
            for direction in Direction:
                assert await catalog.edges([first, second], direction) == []

    async def test_a_child_keeps_its_dependency_on_a_deleted_parent(
        self, make_store: StoreMaker
    ) -> None:
        parent, child = JobId("job-0001"), JobId("job-0002")
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1), put(2, dependencies=(Dependency(parent),)))
            await leader.append(DropJob(parent))
            edges = await store.queries.edges([child], Direction.UPSTREAM)
            assert [(edge.parent, edge.child) for edge in edges] == [(parent, child)]


class ReadingConformance:
    """Lists, keys, and reading what was just written."""

    async def test_readers_see_their_own_writes_while_others_write(
        self, make_store: StoreMaker
    ) -> None:
        newest = 0
        async with make_store() as store:
            leader = await leading(store)

            async def write() -> None:
                nonlocal newest
                for number in range(1, 101):
                    await leader.append(put(number))
                    newest = number
                    await asyncio.sleep(0)

            async def read() -> None:
                while newest < 100:
                    written = newest
                    wanted = [JobId(f"job-{number:04}") for number in range(1, written + 1)]
                    assert len(await store.queries.jobs(wanted)) == written
                    await asyncio.sleep(0)

            await asyncio.gather(write(), read(), read(), read())
            assert len(await store.queries.find_jobs(JobQuery(limit=1000))) == 100

    async def test_many_callers_that_ask_for_one_job_each_get_their_own(
        self, make_store: StoreMaker
    ) -> None:
        first = Dependency(JobId("job-0001"))
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1), *(put(n, dependencies=(first,)) for n in range(2, 9)))
            ids = [JobId(f"job-{number:04}") for number in range(1, 11)]
            found = await asyncio.gather(*(store.queries.jobs([one]) for one in ids))
            assert [[job.id for job in one] for one in found] == [[one] for one in ids[:8]] + [
                []
            ] * 2
            down = Direction.DOWNSTREAM
            below = await asyncio.gather(*(store.queries.edges([one], down) for one in ids))
            assert [len(edges) for edges in below] == [7] + [0] * 9

    @thorough
    @given(history=histories, query=job_queries)
    async def test_pages_of_jobs_are_what_a_plain_filter_finds(
        self, make_store: StoreMaker, history: Sequence[Sequence[AnyWrite]], query: JobQuery
    ) -> None:
        naive = NaiveStore(write for record in history for write in record)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*(write for record in history for write in record))
            for before in (None, "job-3", "job-0"):
                page = _with_before(query, before)
                assert await store.queries.find_jobs(page) == naive.find_jobs(page)

    @thorough
    @given(history=histories, query=execution_queries)
    async def test_pages_of_executions_are_what_a_plain_filter_finds(
        self, make_store: StoreMaker, history: Sequence[Sequence[AnyWrite]], query: ExecutionQuery
    ) -> None:
        naive = NaiveStore(write for record in history for write in record)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*(write for record in history for write in record))
            assert await store.queries.find_executions(query) == naive.find_executions(query)

    @settings(thorough, max_examples=examples(4, 20))
    @given(size=st.integers(1, 9), wanted=st.sampled_from([(), ("bulk",)]))
    async def test_paging_to_the_end_shows_every_match_once(
        self, make_store: StoreMaker, size: int, wanted: tuple[str, ...]
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            queues = [terms(queue="bulk" if n % 3 == 0 else "default") for n in range(40)]
            await leader.append(*(put(n, terms=queues[n]) for n in range(40)))
            seen: list[str] = []
            queue = wanted[0] if wanted else None
            while page := await store.queries.find_jobs(
                JobQuery(queue=queue, before=seen[-1] if seen else None, limit=size)
            ):
                seen += [job.id for job in page]
        expected = [n for n in range(40) if not wanted or n % 3 == 0]
        assert seen == [f"job-{n:04}" for n in reversed(expected)]

    async def test_a_match_far_down_the_list_is_found(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            urgent = (3, 150)
            jobs = (put(n, terms=terms(priority=int(n in urgent))) for n in range(300))
            await leader.append(*jobs)
            for queue in (None, "default"):
                found = await store.queries.find_jobs(JobQuery(priority=1, queue=queue, limit=5))
                assert [job.id for job in found] == ["job-0150", "job-0003"]

    async def test_a_key_answers_with_its_newest_record(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            assert await store.queries.key("k") is None
            await leader.append(PutKey(KeyRecord("k", "print", b"receipt", 1)))
            assert await store.queries.key("k") == KeyRecord("k", "print", b"receipt", 1)

    async def test_a_key_that_is_not_projected_yet_is_reported_as_behind(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            for number in range(1, 40):
                key = f"key-{number}"
                record = KeyRecord(key, "print", b"receipt", number)
                await leader.append(PutKey(record), at=number)
                look = await store.queries.key_at_once(key)
                if look.record is None:
                    assert look.behind_since is not None
                    assert look.behind_since <= number
            written = await store.queries.key("key-39")
            look = await store.queries.key_at_once("key-39")
            assert (look.record, look.behind_since) == (written, None)
            look = await store.queries.key_at_once("no such key")
            assert (look.record, look.behind_since) == (None, None)

    async def test_all_keys_are_read_a_few_at_a_time(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            read, keys = store.queries.keys_after, ("b", "A", "a · k", "c", "a")
            await (await leading(store)).append(*(PutKey(KeyRecord(k, "f", b"r", 1)) for k in keys))
            first = await read("", 3)
            every = first + await read(first[-1], 3)
            assert (len(first), sorted(every)) == (3, sorted(keys))

    async def test_a_key_that_waits_in_the_inbox_is_not_taken_for_unused(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await store.journal.put_inbox(b"body", "waits")
            assert (await store.queries.key_at_once("waits")).may_wait
            record = KeyRecord("both", "print", b"receipt", 1)
            await leader.append(PutKey(record))
            await store.journal.put_inbox(b"body", "both")
            assert await store.queries.key("both") == record
            assert await store.queries.key_at_once("both") == KeyStatus(record, None, may_wait=True)


def _with_before(query: JobQuery, before: str | None) -> JobQuery:
    given = {field: getattr(query, field) for field in query.__struct_fields__}
    return JobQuery(**(given | {"before": before}))
