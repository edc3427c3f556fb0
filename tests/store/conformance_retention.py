"""Definition of a store: retention drops old finished work, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.ids import execution_id
from rota.core.model import (
    Dependency,
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    JobState,
    KeyRecord,
    Life,
    ScheduleId,
    WorkerId,
)
from rota.core.outcome import AnyWrite, PutExecution, PutJob, PutKey, PutOccurrence
from rota.core.schedule_model import Occurrence, OccurrenceDecision
from rota.store.protocol import Direction, Store
from rota.store.queries import ExecutionQuery, JobQuery, OccurrenceQuery
from tests.store.conformance import Appender, StoreMaker, leading, project_all
from tests.store.conformance_logs_and_files import eventually, stream
from tests.store.conformance_objects import index_of, kept
from tests.store.naive import QUEUED, spec

DAY = 24 * 3600 * 1000
MONDAY = 20_000 * DAY
TUESDAY, WEDNESDAY = MONDAY + DAY, MONDAY + 2 * DAY
LABEL = (("team", "billing"),)
PARENT = JobId(execution_id(JobId("parent"), 0, MONDAY))


def job_id(number: int, id_at: Instant) -> JobId:
    """As the server mints them: in order of time."""
    return JobId(execution_id(JobId(f"job-{number}"), 0, id_at))


def run_id(number: int, id_at: Instant) -> ExecutionId:
    return execution_id(JobId(f"run-{number}"), 1, id_at)


def work(number: int, id_at: Instant, ended: Instant | None) -> list[AnyWrite]:
    """A job and its execution, with a label and a parent."""
    life = QUEUED if ended is None else Life(JobState.SUCCEEDED, finished_at=ended)
    job = spec(number, created_at=id_at, labels=LABEL, dependencies=(Dependency(PARENT),))
    state = ExecutionState.RUNNING if ended is None else ExecutionState.SUCCEEDED
    id_, run = job_id(number, id_at), run_id(number, id_at)
    return [
        PutJob(id_, job, life),
        PutExecution(Execution(run, id_, WorkerId("worker"), 1, 1, state, id_at)),
    ]


async def drop_all(store: Store, before: Instant) -> int:
    jobs = 0
    while (dropped := await store.drop_before(before)).more:
        jobs += dropped.jobs
    return jobs + dropped.jobs


class RetentionConformance:
    """Forgetting by age."""

    async def filled(self, store: Store) -> tuple[Appender, Sequence[JobId]]:
        """Ended on Monday; begun on Monday and ended on Wednesday; begun then and waiting still;
        ended on Wednesday."""
        leader = await leading(store)
        put_ended = ((MONDAY, MONDAY + 9), (MONDAY, WEDNESDAY), (MONDAY, None),
                      (WEDNESDAY, WEDNESDAY + 9))  # fmt: skip
        for number, (id_at, ended) in enumerate(put_ended):
            await leader.append(*work(number, id_at, ended), at=id_at)
            await store.logs.append(run_id(number, id_at), 0, b"text")
            await store.artifacts.write(run_id(number, id_at), "out", stream(b"data"), 10)
            await index_of(store).keep(kept(run_id(number, id_at), key=f"outputs/{number}"))
        await project_all(store)  # what is not in the tables yet is not old either
        return leader, [job_id(number, id_at) for number, (id_at, _) in enumerate(put_ended)]

    async def test_a_job_that_ended_before_is_dropped_with_all_that_belongs_to_it(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            _, ids = await self.filled(store)
            live = await store.journal.load()
            assert await drop_all(store, TUESDAY) >= 1
            catalog, kept = store.queries, sorted(ids[1:])
            assert sorted(job.id for job in await catalog.jobs(ids)) == kept
            labelled = await catalog.find_jobs(JobQuery(labels=LABEL))
            assert sorted(job.id for job in labelled) == kept
            edges = await catalog.edges([PARENT], Direction.DOWNSTREAM)
            assert sorted(edge.child for edge in edges) == kept
            runs = await catalog.find_executions(ExecutionQuery())
            assert sorted(run.job_id for run in runs) == kept
            assert await store.journal.load() == live

    async def test_logs_and_files_of_a_dropped_job_are_removed_and_others_stay(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            await self.filled(store)
            await drop_all(store, TUESDAY)

            async def gone() -> bool:
                run = run_id(0, MONDAY)
                log, files = await store.logs.read(run, 0, 9), await store.artifacts.list(run)
                to_delete = list(await index_of(store).deletions_due(0, 9))
                return not log.size and not files and to_delete == ["outputs/0"]

            await eventually(gone)
            for number in (1, 2):
                run = run_id(number, MONDAY)
                assert (await store.logs.read(run, 0, 9)).data == b"text"
                assert len(await store.artifacts.list(run)) == 1
                assert len(await index_of(store).large_outputs([run])) == 1

    async def test_live_work_stays_however_old_it_is(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            _, ids = await self.filled(store)
            await drop_all(store, MONDAY + 365 * DAY)
            assert [job.id for job in await store.queries.find_jobs(JobQuery())] == [ids[2]]
            assert [job.id for job in (await store.journal.load()).jobs] == [ids[2]]
            assert (await store.logs.read(run_id(2, MONDAY), 0, 9)).data == b"text"

    async def test_a_job_that_was_dropped_between_can_still_be_started_over(
        self, make_store: StoreMaker
    ) -> None:
        """Its record was read before, as a retry does it; the whole job is written again."""
        async with make_store() as store:
            leader, ids = await self.filled(store)
            (record,) = await store.queries.jobs(ids[:1])
            await drop_all(store, TUESDAY)
            assert await store.queries.jobs(ids[:1]) == []
            again = Life(JobState.QUEUED, lives=2)
            await leader.append(PutJob(record.id, record.spec, again), at=WEDNESDAY)
            assert [job.life for job in await store.queries.jobs(ids[:1])] == [again]
            assert (await store.journal.load()).totals.submitted == 4
            labelled = await store.queries.find_jobs(JobQuery(labels=LABEL))
            assert ids[0] in [job.id for job in labelled]

    async def test_totals_do_not_change_when_jobs_are_dropped(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader, _ = await self.filled(store)
            await leader.append(PutKey(KeyRecord("key", "print", b"", WEDNESDAY)), at=WEDNESDAY)
            before = (await store.journal.load()).totals
            await drop_all(store, WEDNESDAY)
            assert (await store.journal.load()).totals == before
            assert await store.queries.key("key") is not None

    async def test_old_occurrences_are_dropped_too(self, make_store: StoreMaker) -> None:
        schedule_id = ScheduleId("schedule")
        monday, wednesday = (
            Occurrence(schedule_id, at, OccurrenceDecision.SKIPPED, at)
            for at in (MONDAY, WEDNESDAY)
        )
        query = OccurrenceQuery(schedule_id=schedule_id)
        async with make_store() as store:
            leader = await leading(store)
            for one in (monday, wednesday):
                await leader.append(PutOccurrence(one), at=one.nominal)
                await project_all(store)
            assert await store.queries.find_occurrences(query) == [wednesday, monday]
            await drop_all(store, TUESDAY)
            assert await store.queries.find_occurrences(query) == [wednesday]

    async def test_nothing_to_drop_is_no_error(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            assert await drop_all(store, TUESDAY) == 0
            _, ids = await self.filled(store)
            assert await drop_all(store, MONDAY) == 0
            assert len(await store.queries.jobs(ids)) == 4
