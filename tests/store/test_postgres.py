"""PostgreSQL passes the definition of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import pytest

from rota.core.model import Instant, Queue
from rota.core.outcome import PutQueue
from rota.store.limits import INBOX_SET_ASIDE_MS, STORE_LIMITS, StoreLimits
from rota.store.postgres.durability import check_up
from rota.store.protocol import Epoch, Store
from tests.postgres.cell import EMPTY, Cell, migrated_cell
from tests.store.conformance import (
    JournalConformance,
    ProjectionConformance,
    ReadingConformance,
    StoreMaker,
    leading,
    put,
)
from tests.store.conformance_damage import DamageConformance, damage
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

pytestmark = pytest.mark.postgres


@cache
def _shared_cell() -> Cell:
    return Cell()


@pytest.fixture
async def make_store() -> AsyncIterator[StoreMaker]:
    """One database for all, one store a test; every example finds it emptied.

    A new database for every test, and new connections for every example, would take most of the
    time.
    """
    cell = _shared_cell()
    async with cell.opened(log_bytes_max=LOG_CAP) as store, cell.connected() as admin:

        @asynccontextmanager
        async def postgres_store(limits: StoreLimits = STORE_LIMITS) -> AsyncIterator[Store]:
            await admin.execute(EMPTY)
            await store._projector.start_over()  # what it remembers is no longer true
            if limits == STORE_LIMITS:
                yield store
                return
            async with cell.opened(log_bytes_max=LOG_CAP, limits=limits) as other:
                yield other

        yield postgres_store


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


async def test_reasons_of_entries_that_are_gone_are_kept_for_days_and_not_too_many() -> None:
    cell = await migrated_cell()
    async with cell.opened(limits=StoreLimits(inbox_set_aside_max=3)) as store:
        waits = (await store.journal.put_inbox(b"waits")).id
        await store.journal.set_aside_inbox({waits: "unreadable"}, Instant(1), Epoch(1))
        gone = [(await store.journal.put_inbox(b"x")).id for _ in range(6)]
        for number in gone:
            await store.journal.set_aside_inbox({number: "invalid"}, Instant(2))
            await store.journal.drop_inbox([number])
        kept = "SELECT array_agg(id ORDER BY id) FROM rota.inbox_set_aside"
        assert await cell.ask(kept) == [waits, *gone[-3:]]
        last = (await store.journal.put_inbox(b"x")).id
        await store.journal.set_aside_inbox({last: "invalid"}, Instant(INBOX_SET_ASIDE_MS + 3))
        assert await cell.ask(kept) == [waits, last]


async def test_a_checkup_names_damaged_rows_if_asked() -> None:
    cell = await migrated_cell()
    async with cell.opened() as store:
        await (await leading(store)).append(put(1), put(2), PutQueue(Queue("default")))
        await damage(store, "jobs_live", "id = 'job-0002'", "spec")
        await damage(store, "queues", "name = 'default'")
    assert (await check_up(cell.dsn)).damaged == ()
    found = (await check_up(cell.dsn, rows=True)).damaged
    assert [line.partition(" is damaged")[0] for line in found] == [
        "the stored job job-0002", "the stored queue default",
    ]  # fmt: skip


async def test_a_key_that_is_nowhere_does_not_wait_in_the_inbox(make_store: StoreMaker) -> None:
    async with make_store() as store:
        assert not (await store.queries.key_at_once("nowhere")).may_wait


async def test_keys_are_looked_up_though_their_connection_was_ended(
    make_store: StoreMaker,
) -> None:
    async with make_store() as store, _shared_cell().connected() as admin:
        await store.queries.key_at_once("before")
        ended = await admin.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'rota keys' AND datname = current_database()"
        )
        assert ended
        for key in ("at once", "and again"):
            assert (await store.queries.key_at_once(key)).record is None
