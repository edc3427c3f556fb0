from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rota.store.limits import STORE_LIMITS, StoreLimits
from rota.store.protocol import Store, StoreFullError, UnknownFateError
from rota.store.queries import JobQuery
from rota.store.sqlite.memory import MemoryStore
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
