"""Partitions of finished work in PostgreSQL: made ahead, searched by index and dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

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
from rota.core.outcome import AnyWrite, MoveJob, PutExecution, PutJob, PutKey, PutOccurrence
from rota.core.schedule_model import Occurrence, OccurrenceDecision
from rota.store.limits import StoreLimits
from rota.store.postgres.partitions import DAY_MS
from rota.store.postgres.search import (
    FilterSearch,
    IdRange,
    Route,
    SearchStep,
    Statement,
    execution_search,
    job_bodies,
    job_search,
    matches,
    plain,
    reaches,
)
from rota.store.postgres.store import PostgresStore
from rota.store.protocol import Direction, Dropped, QueryStore, Seq, StoreError
from rota.store.queries import ExecutionQuery, JobQuery, OccurrenceQuery
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance import Appender, leading, project_all
from tests.store.conformance_logs_and_files import stream
from tests.store.naive import QUEUED, spec

pytestmark = pytest.mark.postgres

MONDAY = 20_000 * DAY_MS
TUESDAY = MONDAY + DAY_MS
WEEK_LATER = MONDAY + 7 * DAY_MS


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


def job_id(number: int, at: Instant) -> JobId:
    """As the server mints them: in order of time."""
    return JobId(execution_id(JobId(f"job-{number}"), 0, at))


def run_id(number: int, at: Instant) -> ExecutionId:
    return execution_id(JobId(f"run-{number}"), 1, at)


def life(at: Instant, state: JobState = JobState.SUCCEEDED) -> Life:
    return Life(state, finished_at=at)


def put_at(number: int, at: Instant, now: Life = QUEUED, **given: object) -> PutJob:
    return PutJob(job_id(number, at), spec(number, created_at=at, **given), now)


def run_at(number: int, job: JobId, at: Instant) -> PutExecution:
    run = run_id(number, at)
    return PutExecution(Execution(run, job, WorkerId("worker"), 1, 1, ExecutionState.SUCCEEDED, at))


async def partitions(cell: Cell, table: str) -> list[str]:
    found = await cell.ask(
        "SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_inherits JOIN pg_class c"
        " ON c.oid = inhrelid WHERE inhparent = $1::text::regclass",
        f"rota.{table}",
    )
    assert isinstance(found, list)
    return found


async def place_of(cell: Cell, table: str, id_: str) -> object:
    join = "JOIN pg_class c ON c.oid = t.tableoid"
    sql = f"SELECT c.relname::text FROM rota.{table} t {join} WHERE t.id = $1"
    return await cell.ask(sql, id_)


async def test_finished_work_goes_to_its_day_and_live_work_stays_in_the_small_table(
    cell: Cell,
) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        done, waiting = put_at(1, MONDAY, life(MONDAY)), put_at(2, MONDAY)
        await leader.append(done, run_at(1, done.id, MONDAY), waiting, at=MONDAY)
        await project_all(store)
        assert await place_of(cell, "jobs_done", done.id) == "jobs_done_20241004"
        run = run_id(1, MONDAY)
        assert await place_of(cell, "executions_done", run) == "executions_done_20241004"
        assert await place_of(cell, "jobs_live", waiting.id) == "jobs_live"
        await leader.append(MoveJob(waiting.id, life(MONDAY + 5)), at=MONDAY + 5)
        await project_all(store)
        assert await cell.ask("SELECT count(*) FROM rota.jobs_live") == 0
        assert await place_of(cell, "jobs_done", waiting.id) == "jobs_done_20241004"


async def test_tomorrow_has_its_partition_today(cell: Cell) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(put_at(1, MONDAY), at=MONDAY)
        await project_all(store)
    assert await partitions(cell, "jobs_done") == [
        "jobs_done_20241004",
        "jobs_done_20241005",
        "jobs_done_rest",
    ]


async def test_rows_that_came_before_their_partition_move_into_it(cell: Cell) -> None:
    early = put_at(1, WEEK_LATER, life(MONDAY))
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(early, at=MONDAY)
        await project_all(store)
        assert await place_of(cell, "jobs_done", early.id) == "jobs_done_rest"
        await leader.append(put_at(2, WEEK_LATER), at=WEEK_LATER)
        await project_all(store)
        assert await place_of(cell, "jobs_done", early.id) == "jobs_done_20241011"
        assert [job.id for job in await store.queries.jobs([early.id])] == [early.id]


async def test_a_long_query_holds_up_neither_the_projection_nor_the_move_to_a_new_day(
    cell: Cell,
) -> None:
    async with cell.opened() as store, cell.connected() as report:
        leader = await leading(store)
        await leader.append(put_at(1, MONDAY), at=MONDAY)
        await project_all(store)
        job = put_at(2, WEEK_LATER, life(WEEK_LATER))
        async with report.transaction():
            await report.fetch("SELECT count(*) FROM rota.jobs_done")
            await leader.append(job, at=WEEK_LATER)
            assert len(await store.queries.jobs([job.id])) == 1
            assert await place_of(cell, "jobs_done", job.id) == "jobs_done_rest"
        await leader.append(put_at(3, WEEK_LATER), at=WEEK_LATER)
        await project_all(store)
        assert await place_of(cell, "jobs_done", job.id) == "jobs_done_20241011"


async def monday_of_all_kinds(leader: Appender, store: PostgresStore) -> Sequence[PutJob]:
    """Finished at once, finished a week later, and still waiting; each with all that is its own."""
    labels = (("team", "billing"),)
    parent = Dependency(job_id(0, MONDAY))
    ended, late, waiting = (
        put_at(number, MONDAY, labels=labels, dependencies=(parent,)) for number in (1, 2, 3)
    )
    writes: list[AnyWrite] = [ended, late, waiting]
    writes += [run_at(n, job.id, MONDAY) for n, job in enumerate((ended, late, waiting), 1)]
    await leader.append(*writes, at=MONDAY)
    await project_all(store)  # folded by itself: a window makes the partitions of its last day
    await leader.append(MoveJob(ended.id, life(MONDAY + 9)), at=MONDAY + 9)
    for number in (1, 2, 3):
        await store.logs.append(run_id(number, MONDAY), 0, b"text")
        await store.artifacts.write(run_id(number, MONDAY), "out", stream(b"data"), 10)
    await leader.append(MoveJob(late.id, life(WEEK_LATER)), at=WEEK_LATER)
    await project_all(store)
    return ended, late, waiting


async def test_spilled_jobs_stay_when_their_day_is_dropped(cell: Cell) -> None:
    labels = (("team", "billing"),)
    async with cell.opened() as store:
        leader = await leading(store)
        ended, waiting = (put_at(number, MONDAY, labels=labels) for number in (1, 2))
        shelved = PutJob(waiting.id, waiting.spec, Life(JobState.QUEUED, line=7))
        await leader.append(ended, shelved, at=MONDAY)
        await project_all(store)
        await leader.append(MoveJob(ended.id, life(MONDAY + 9)), at=MONDAY + 9)
        await project_all(store)
        assert (await store.drop_before(TUESDAY)).jobs == 1
        (left,) = await store.queries.find_jobs(JobQuery(labels=labels))
        assert left.id == waiting.id


async def test_a_day_is_dropped_with_all_that_was_finished_then_and_nothing_else(
    cell: Cell,
) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        ended, late, waiting = await monday_of_all_kinds(leader, store)
        before = await store.journal.load()
        assert await store.drop_before(TUESDAY) == Dropped(2, more=True)
        assert await store.drop_before(TUESDAY) == Dropped(0, more=False)
        assert "jobs_done_20241004" not in await partitions(cell, "jobs_done")
        catalog = store.queries
        everybody = [ended.id, late.id, waiting.id]
        kept = sorted([late.id, waiting.id])
        assert sorted(job.id for job in await catalog.jobs(everybody)) == kept
        labelled = await catalog.find_jobs(JobQuery(labels=(("team", "billing"),)))
        assert sorted(job.id for job in labelled) == kept
        edges = await catalog.edges([job_id(0, MONDAY)], Direction.DOWNSTREAM)
        assert sorted(edge.child for edge in edges) == kept
        runs = await catalog.find_executions(ExecutionQuery())
        assert sorted(run.job_id for run in runs) == kept
        sizes = [(await store.logs.read(run_id(n, MONDAY), 0, 9)).size for n in (1, 2, 3)]
        files = [len(await store.artifacts.list(run_id(n, MONDAY))) for n in (1, 2, 3)]
        assert (sizes, files) == ([0, 4, 4], [0, 1, 1])
        assert await store.journal.load() == before
        await leader.append(MoveJob(waiting.id, life(WEEK_LATER)), at=WEEK_LATER)
        await project_all(store)
        while (await store.drop_before(WEEK_LATER + DAY_MS)).more:
            pass
        assert await catalog.find_jobs(JobQuery()) == []
        assert await catalog.find_executions(ExecutionQuery()) == []


async def test_readers_meet_the_row_or_nothing_while_days_are_dropped(cell: Cell) -> None:
    days = 12
    async with cell.opened() as store, cell.opened() as follower:
        leader = await leading(store)
        jobs = [put_at(n, MONDAY + n * DAY_MS, life(MONDAY + n * DAY_MS)) for n in range(days)]
        for job in jobs:
            await leader.append(job, run_at(job.spec.arrival_number, job.id, job.spec.created_at),
                                at=job.spec.created_at)  # fmt: skip
            await project_all(store)
        ids = [job.id for job in jobs]
        done = asyncio.Event()

        async def read(catalog: QueryStore) -> int:
            reads = 0
            while not done.is_set():
                found = await catalog.find_jobs(JobQuery())
                # The oldest go first, so what is left is always the newest without a gap.
                assert [job.id for job in found] == ids[days - len(found) :][::-1]
                assert len(await catalog.jobs(ids)) <= len(found)
                await catalog.find_executions(ExecutionQuery())
                reads += 1
            return reads

        reading = [asyncio.create_task(read(one.queries)) for one in (store, follower, store)]
        dropped = 0
        async with asyncio.timeout(30):
            while dropped < days - 2:
                try:
                    dropped += (await store.drop_before(MONDAY + (days - 2) * DAY_MS)).jobs
                except StoreError as error:
                    if "holds a lock" not in str(error):  # else a reader was there: the next time
                        raise
        done.set()
        assert all(await asyncio.gather(*reading))
        assert len(await store.queries.find_jobs(JobQuery())) == 2


async def test_occurrences_are_dropped_with_their_day(cell: Cell) -> None:
    schedule_id = ScheduleId("schedule-1")
    old, new = (
        Occurrence(schedule_id, at, OccurrenceDecision.FIRED, at) for at in (MONDAY, WEEK_LATER)
    )
    early = Occurrence(schedule_id, MONDAY - 9 * DAY_MS, OccurrenceDecision.SKIPPED, MONDAY)
    query = OccurrenceQuery(schedule_id=schedule_id)
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(PutOccurrence(old), PutOccurrence(early), at=MONDAY)
        await project_all(store)
        await leader.append(PutOccurrence(new), at=WEEK_LATER)
        await project_all(store)
        assert "occurrences_20241004" in await partitions(cell, "occurrences")
        assert await store.queries.find_occurrences(query) == [new, old, early]
        while (await store.drop_before(TUESDAY)).more:
            pass
        assert "occurrences_20241004" not in await partitions(cell, "occurrences")
        assert await store.queries.find_occurrences(query) == [new]


async def test_old_journal_and_keys_are_dropped_by_partition_and_the_newest_stays() -> None:
    # Not a migrated cell: the partitions it has are longer.
    async with Cell(limits=StoreLimits(journal_partition_records=10)).opened() as store:
        leader = await leading(store)
        await leader.append(PutKey(KeyRecord("old", "f", b"", MONDAY)), at=MONDAY)
        for number in range(34):
            await leader.append(put_at(number, MONDAY), at=MONDAY)
            await project_all(store)
        await leader.append(put_at(99, WEEK_LATER), at=WEEK_LATER)
        await project_all(store)
        assert await store.queries.key("old") is None
        assert await store.queries.head() == (31, 36)
        assert len(await store.queries.changes_after(Seq(30), 100)) == 6
        await leader.append(put_at(100, WEEK_LATER), at=WEEK_LATER)
        assert (await store.journal.load()).seq == 37


async def test_ten_thousand_jobs_in_one_record_become_rows(cell: Cell) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(*(put_at(n, MONDAY + n) for n in range(10_000)), at=MONDAY)
        snapshot = await store.journal.load()
        assert [job.spec.arrival_number for job in snapshot.jobs] == list(range(10_000))
        assert (await store.queries.find_jobs(JobQuery(limit=1)))[0].spec.arrival_number == 9_999


async def plan(cell: Cell, page: Statement) -> str:
    """The plan that a page gets, as text, without the branches that touch no row."""
    async with cell.connected() as connection:
        await connection.execute("ANALYZE")
        found = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {page.sql}", *page.args)
    return json.dumps(json.loads(found))


WHOLE = IdRange()
LOST = (ExecutionState.LOST,)


def of_jobs(**given: Any) -> FilterSearch:
    return job_search(JobQuery(**given))


def step(search: FilterSearch, *walked: int) -> Statement:
    """One that walks these of the filters."""
    route = Route(tuple(search.terms[number] for number in walked), 1)
    return matches(search, SearchStep(route, WHOLE, 2_000, 51))


RARE_LABEL = of_jobs(labels=(("team", "billing"),), name="rare")
RARE_PAIR = of_jobs(name="rare", queue="rare")
PAGES = {
    "all": plain(of_jobs(), WHOLE, 51),
    "one queue": plain(of_jobs(queue="rare"), WHOLE, 51),
    "one name": plain(of_jobs(name="rare"), WHOLE, 51),
    "a priority": plain(of_jobs(priority=7), WHOLE, 51),
    "failed": plain(of_jobs(states=(JobState.FAILED,)), WHOLE, 51),
    "label": plain(of_jobs(labels=(("team", "billing"),)), WHOLE, 51),
    "further down": plain(of_jobs(), IdRange(None, "01930000-0000-7000-8000-000000000000"), 51),
    "how far filters reach": reaches(RARE_LABEL, RARE_LABEL.terms, WHOLE, 2_000),
    "a tenant that succeeded": step(of_jobs(tenant="rare", states=(JobState.SUCCEEDED,)), 1),
    "names of a label": step(RARE_LABEL, 0),
    "labels of a name": step(RARE_LABEL, 1),
    "label and name": step(RARE_LABEL, 0, 1),
    "name and queue": step(RARE_PAIR, 0, 1),
    "bodies": job_bodies(["x"], ("life", "spec")),
    "runs of a job": plain(execution_search(ExecutionQuery(job_id=JobId("x"))), WHOLE, 51),
    "runs of a worker": plain(execution_search(ExecutionQuery(worker_id=WorkerId("x"))), WHOLE, 51),
    "lost runs": plain(execution_search(ExecutionQuery(states=LOST)), WHOLE, 51),
}


async def test_every_page_of_a_long_history_is_found_by_an_index(cell: Cell) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        for day in range(2):
            at = MONDAY + day * DAY_MS
            jobs = [put_at(n, at + n, life(at + n), labels=(("n", str(n)),)) for n in range(4_000)]
            await leader.append(*jobs, at=at)
            await leader.append(*(run_at(n, job.id, at + n) for n, job in enumerate(jobs)), at=at)
            await leader.append(*(put_at(n + 5_000, at + n) for n in range(4_000)), at=at)
        await project_all(store)
    for name, page in PAGES.items():
        shown = await plan(cell, page)
        large = ("jobs_live", "jobs_done_2024", "executions_done_2024", "labels_2024")
        scans = [
            node
            for node in _nodes(msgspec.json.decode(shown)[0]["Plan"])
            if node["Node Type"] == "Seq Scan" and node["Relation Name"].startswith(large)
        ]
        # A day that was made ahead is empty, and reading nothing needs no index.
        assert [node for node in scans if not node["Relation Name"].endswith("20241006")] == [], (
            name
        )


def _nodes(node: dict[str, object]) -> list[dict[str, str]]:
    below = node.get("Plans", [])
    assert isinstance(below, list)
    return [node, *(found for child in below for found in _nodes(child))]  # type: ignore[list-item]
