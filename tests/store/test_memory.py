from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rota.core.model import JobId, JobState, Life
from rota.core.outcome import MoveJob, Refill
from rota.store.limits import STORE_LIMITS, StoreLimits
from rota.store.protocol import Seq, Store, StoreFullError, UnknownFateError
from rota.store.queries import JobQuery
from rota.store.sqlite.memory import MemoryStore
from rota.store.sqlite.projection import read_positions
from rota.store.sqlite.quarantine import repair
from rota.store.sqlite.set_aside import read_quarantine
from tests.store.conformance import (
    JournalConformance,
    ProjectionConformance,
    ReadingConformance,
    StoreMaker,
    leading,
    put,
)
from tests.store.conformance_damage import DamageConformance
from tests.store.conformance_events import EventConformance
from tests.store.conformance_groups import GroupConformance
from tests.store.conformance_leadership import LeadershipConformance
from tests.store.conformance_lists import ListsConformance
from tests.store.conformance_logs_and_files import LOG_CAP, ArtifactsConformance, LogsConformance
from tests.store.conformance_notes import NotesConformance
from tests.store.conformance_objects import ObjectsConformance
from tests.store.conformance_quarantine import QuarantineConformance
from tests.store.conformance_retention import RetentionConformance
from tests.store.conformance_schedules import ScheduleConformance
from tests.store.conformance_spill import SpillConformance
from tests.store.conformance_tokens import TokenConformance


@asynccontextmanager
async def memory_store(limits: StoreLimits = STORE_LIMITS) -> AsyncIterator[Store]:
    store = MemoryStore(log_bytes_max=LOG_CAP, limits=limits)
    yield store
    await store.close()


@pytest.fixture
def make_store() -> StoreMaker:
    return memory_store


class TestJournal(JournalConformance):
    pass


class TestLeadership(LeadershipConformance):
    pass


class TestProjection(ProjectionConformance):
    pass


class TestDamage(DamageConformance):
    pass


class TestGroups(GroupConformance):
    pass


class TestQuarantine(QuarantineConformance):
    pass


class TestSpill(SpillConformance):
    pass


class TestReading(ReadingConformance):
    pass


class TestLists(ListsConformance):
    pass


class TestSchedules(ScheduleConformance):
    pass


class TestEvents(EventConformance):
    pass


class TestLogs(LogsConformance):
    pass


class TestArtifacts(ArtifactsConformance):
    pass


class TestObjects(ObjectsConformance):
    pass


class TestAccess(TokenConformance, NotesConformance):
    pass


class TestRetention(RetentionConformance):
    pass


async def test_a_refused_append_writes_nothing_and_the_next_one_goes_on() -> None:
    store = MemoryStore()
    leader = await leading(store)
    store.journal.refuse_next_append()
    with pytest.raises(StoreFullError):
        await leader.append(put(1))
    await leader.append(put(2))
    assert [job.id for job in await store.queries.find_jobs(JobQuery())] == ["job-0002"]


@pytest.mark.parametrize("written", [True, False])
async def test_a_load_after_an_append_of_unknown_outcome_shows_what_happened(
    *, written: bool
) -> None:
    store = MemoryStore()
    leader = await leading(store)
    store.journal.leave_next_append_uncertain(written=written)
    with pytest.raises(UnknownFateError):
        await leader.append(put(1))
    snapshot = await store.journal.load()
    assert (snapshot.seq, len(snapshot.jobs)) == (int(written), int(written))
    await (await leading(store)).append(put(2))


async def _never(seq: Seq) -> None:
    raise AssertionError(f"nothing reads record {seq} from the tables here")


async def sharded(jobs: int) -> MemoryStore:
    """Makes a store with four shards and so many jobs, each in a record; nobody projects them."""
    store = MemoryStore(shards=4, reached=_never)
    leader = await leading(store)
    for number in range(jobs):
        await leader.append(put(number))
    return store


def submitted(store: MemoryStore) -> int:
    return int(store.journal.connection.execute("SELECT sum(submitted) FROM projection_shards").get)


async def test_a_shard_that_is_ahead_of_a_window_stays_where_it_is() -> None:
    store = await sharded(20)
    journal = store.journal
    there = read_positions(journal.connection)
    assert journal.project_some({0: there[0], 1: there[1]}, 20)
    ahead = read_positions(journal.connection)
    assert journal.project_some(ahead, 5)
    after = read_positions(journal.connection)
    assert [after[shard].seq for shard in range(4)] == [20, 20, 5, 5]
    assert journal.project_some(after, 20)
    assert submitted(store) == 20


async def test_a_window_for_shards_that_others_have_projected_changes_nothing() -> None:
    store = await sharded(3)
    journal = store.journal
    believed = read_positions(journal.connection)
    assert journal.project_some(believed, 2)
    assert not journal.project_some(believed, 3)
    assert journal.projection.projected == 2
    assert submitted(store) == 2


async def test_a_database_that_was_restored_is_as_it_was_and_takes_records_again() -> None:
    store = await sharded(2)
    journal = store.journal
    dumped, head = journal.dump(), journal.head()
    leader = await leading(store)
    await leader.append(put(7))
    journal.restore(dumped)
    assert journal.head() == head
    await (await leading(store)).append(put(8))
    assert [job.id for job in (await journal.load()).jobs] == ["job-0000", "job-0001", "job-0008"]


_POISON = """
CREATE TRIGGER poison BEFORE INSERT ON jobs WHEN NEW.id = 'job-0001'
BEGIN SELECT RAISE(ABORT, 'poisoned'); END
"""


async def test_a_job_in_quarantine_is_read_as_it_is_and_comes_back_when_it_is_repaired() -> None:
    store = MemoryStore()
    leader = await leading(store)
    connection = store.journal.connection
    connection.execute(_POISON)
    await leader.append(put(0), put(1, on_spill_queue(7)), put(2, on_spill_queue(7)))
    wanted = [Refill(spill_queue=7, after=-1, limit=1, request_id=1)]
    jobs = [JobId("job-0000"), JobId("job-0001")]
    read = await store.queries.jobs(jobs)
    assert sorted(job.id for job in read) == jobs
    assert store.journal.projection.quarantined == 1
    assert [job.id for job in (await store.journal.read_spilled(wanted)).jobs[0]] == jobs[1:]
    await leader.append(MoveJob(jobs[1], Life(JobState.RUNNING)))
    assert {job.life.state for job in await store.queries.jobs(jobs[1:])} == {JobState.RUNNING}
    assert [job.id for job in (await store.journal.read_spilled(wanted)).jobs[0]] == ["job-0002"]
    connection.execute("DROP TRIGGER poison")
    repair(connection, read_quarantine(connection)[jobs[1]])
    assert {job.life.state for job in await store.queries.jobs(jobs[1:])} == {JobState.RUNNING}
    assert not read_quarantine(connection)


def on_spill_queue(queue: int) -> Life:
    return Life(JobState.QUEUED, line=queue)
