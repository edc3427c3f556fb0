"""SQLite beyond the definition of a store."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from rota.core.model import ExecutionState, Instant, JobId, KeyRecord
from rota.core.outcome import DropJob, PutKey, PutOccurrence
from rota.store.journal import encode_record, next_head
from rota.store.limits import (
    INBOX_SET_ASIDE_MS,
    KEY_AGE_MS,
    OCCURRENCE_AGE_MS,
    STORE_LIMITS,
    StoreLimits,
)
from rota.store.protocol import (
    Epoch,
    SchemaError,
    Store,
    StoreError,
    StoreFullError,
    StoreLockedError,
    UnknownFateError,
)
from rota.store.queries import JobQuery, OccurrenceQuery
from rota.store.sqlite.journal_store import SqliteJournalStore, take_inbox
from rota.store.sqlite.store import SqliteStore, open_sqlite
from tests.store.conformance import (
    Appender,
    JournalConformance,
    ProjectionConformance,
    ReadingConformance,
    StoreMaker,
    leading,
    project_all,
    put,
    run_of,
)
from tests.store.conformance_damage import DamageConformance
from tests.store.conformance_events import EventConformance
from tests.store.conformance_groups import GroupConformance
from tests.store.conformance_leadership import LeadershipConformance
from tests.store.conformance_lists import ListsConformance
from tests.store.conformance_logs_and_files import (
    LOG_CAP,
    RUN,
    ArtifactsConformance,
    LogsConformance,
    eventually,
)
from tests.store.conformance_notes import NotesConformance
from tests.store.conformance_objects import ObjectsConformance
from tests.store.conformance_quarantine import QuarantineConformance
from tests.store.conformance_retention import (
    MONDAY,
    TUESDAY,
    WEDNESDAY,
    RetentionConformance,
    drop_all,
    work,
)
from tests.store.conformance_schedules import SCHEDULES, ScheduleConformance, occurrence
from tests.store.conformance_spill import SpillConformance
from tests.store.conformance_tokens import TokenConformance, token
from tests.store.faulty_disk import FaultyDisk


@asynccontextmanager
async def opened(data_dir: Path, limits: StoreLimits = STORE_LIMITS) -> AsyncIterator[SqliteStore]:
    store = open_sqlite(data_dir, log_bytes_max=LOG_CAP, limits=limits)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def make_store(tmp_path_factory: pytest.TempPathFactory) -> StoreMaker:
    @asynccontextmanager
    async def sqlite_store(limits: StoreLimits = STORE_LIMITS) -> AsyncIterator[Store]:
        async with opened(tmp_path_factory.mktemp("data"), limits) as store:
            yield store

    return sqlite_store


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


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        leader = await leading(store)
        await leader.append(put(1), run_of(1))
        await store.logs.append(RUN, 0, b"text")
        before = await store.journal.load()
    async with opened(tmp_path) as store:
        assert await store.journal.load() == before
        assert (await store.logs.read(RUN, 0, 9)).data == b"text"
        assert (await leading(store)).epoch > leader.epoch


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    data_dir = tmp_path / "new"
    async with opened(data_dir) as store:
        await (await leading(store)).append(put(1))
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data_dir.iterdir()}
    assert {"rota.db", "rota.db-wal", "logs.db", "lock"} <= set(modes)
    assert set(modes.values()) == {0o600}


async def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(StoreLockedError, match=f"process {os.getpid()} is using"):
            open_sqlite(tmp_path)
    async with opened(tmp_path):
        pass


async def test_a_schema_of_a_newer_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await (await leading(store)).append(put(1))
    connection = apsw.Connection(str(tmp_path / "rota.db"))
    connection.execute("INSERT INTO migrations (number, name, checksum) VALUES (9999, 'x', 'y')")
    with pytest.raises(SchemaError, match="schema 9999"):
        open_sqlite(tmp_path)
    connection.execute("DELETE FROM migrations WHERE number = 9999")
    connection.close()
    async with opened(tmp_path) as store:
        assert len(await store.queries.find_jobs(JobQuery())) == 1


async def test_a_file_that_is_no_database_is_refused_and_the_directory_let_go(
    tmp_path: Path,
) -> None:
    (tmp_path / "rota.db").write_bytes(b"not a database, but something somebody wrote " * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"rota\.db"):
            open_sqlite(tmp_path)


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        pass
    with pytest.raises(StoreError, match="closed"):
        await store.journal.claim("late")
    with pytest.raises(StoreError, match="closed"):
        await store.queries.head()


async def test_logs_of_deleted_jobs_are_swept_after_a_crash_in_between(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        leader = await leading(store)
        await leader.append(put(1), run_of(1, ExecutionState.SUCCEEDED))
        await store.logs.append(RUN, 0, b"text")
    # The fold that dropped the job was the last thing the process did.
    writer = SqliteJournalStore(tmp_path / "rota.db")
    epoch = await writer.claim("test")
    head = (await writer.load()).head
    await writer.append(epoch, head, 1, [DropJob(JobId("job-0001"))])
    await writer.close()
    async with opened(tmp_path) as store:

        async def gone() -> bool:
            return (await store.logs.read(RUN, 0, 9)).size == 0

        await eventually(gone)


async def test_what_a_full_log_left_out_stays_out_under_a_larger_cap(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.logs.append(RUN, 0, b"a" * LOG_CAP + b"left out")
    store = open_sqlite(tmp_path, log_bytes_max=2 * LOG_CAP)
    await store.logs.append(RUN, None, b"later")
    page = await store.logs.read(RUN, LOG_CAP - 1, 99)
    await store.close()
    assert (page.data, page.dropped) == (b"a", len(b"left out" + b"later"))


async def test_a_record_that_was_written_after_all_is_found_by_loading(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        leader = await leading(store)
        await leader.append(put(1))
        connection = apsw.Connection(str(tmp_path / "rota.db"))
        body = encode_record([put(2)])
        landed = next_head(leader.head, leader.epoch, 1, body)
        row = (landed.seq, leader.epoch, 1, body, landed.hash)
        connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", row)
        connection.close()
        again = await leading(store)
        assert again.seq == 2
        await again.append(put(3))
        assert len(await store.queries.find_jobs(JobQuery())) == 3


async def test_old_journal_and_keys_are_removed_and_needed_ones_stay(tmp_path: Path) -> None:
    async with opened(tmp_path, StoreLimits(journal_records_max=5)) as store:
        leader = await leading(store)
        await leader.append(PutKey(KeyRecord("old", "f", b"", 1)), at=1)
        later = 2 + KEY_AGE_MS
        for number in range(40):
            await leader.append(put(number), at=later)
            await project_all(store)
        assert await store.queries.key("old") is None
        assert await store.queries.head() == (37, 41)
        assert len(await store.queries.find_jobs(JobQuery(limit=100))) == 40
    async with opened(tmp_path) as store:
        assert (await store.journal.load()).seq == 41


async def test_old_occurrences_are_removed_as_new_ones_come(tmp_path: Path) -> None:
    later = 2 + OCCURRENCE_AGE_MS
    async with opened(tmp_path) as store:
        leader = await leading(store)
        await leader.append(*(PutOccurrence(occurrence(n)) for n in range(1, 10)), at=1)
        await leader.append(PutOccurrence(occurrence(later)), at=later)
        found = await store.queries.find_occurrences(OccurrenceQuery(schedule_id=SCHEDULES[0]))
    assert [one.nominal for one in found] == [later, *range(9, 1, -1)]


@asynccontextmanager
async def on_faulty_disk(tmp_path: Path) -> AsyncIterator[tuple[FaultyDisk, SqliteJournalStore]]:
    disk = FaultyDisk()
    ledger = SqliteJournalStore(tmp_path / "rota.db", vfs=disk.name)
    try:
        yield disk, ledger
    finally:
        await ledger.close()
        disk.unregister()


async def started(ledger: SqliteJournalStore) -> Appender:
    leader = Appender(ledger)
    return await leader.start()


async def test_a_failed_sync_leaves_the_outcome_of_an_append_unknown_until_a_load(
    tmp_path: Path,
) -> None:
    async with on_faulty_disk(tmp_path) as (disk, ledger):
        leader = await started(ledger)
        await leader.append(put(1))
        await ledger.load()
        disk.fail_next_sync()
        with pytest.raises(UnknownFateError):
            await leader.append(put(2))
        snapshot = await ledger.load()
        assert len(snapshot.jobs) == snapshot.seq
        again = await started(ledger)
        await again.append(put(3))
        assert len((await ledger.load()).jobs) == again.seq


async def test_appends_wait_for_the_disk_and_projections_do_not(tmp_path: Path) -> None:
    async with on_faulty_disk(tmp_path) as (disk, ledger):
        leader = await started(ledger)
        for number in range(3):
            before = disk.syncs
            await leader.append(put(number))
            assert disk.syncs == before + 1
            await ledger.caught_up()
            assert disk.syncs == before + 1


async def test_a_full_disk_refuses_the_append_and_it_works_again_later(tmp_path: Path) -> None:
    async with on_faulty_disk(tmp_path) as (disk, ledger):
        leader = await started(ledger)
        await leader.append(put(1))
        await ledger.load()
        with disk.full():
            for _ in range(3):
                with pytest.raises(StoreFullError):
                    await leader.append(put(2))
        await leader.append(put(3))
        assert [job.spec.arrival_number for job in (await ledger.load()).jobs] == [1, 3]


async def test_readers_hear_that_the_tables_cannot_follow_and_later_they_can(
    tmp_path: Path,
) -> None:
    async with on_faulty_disk(tmp_path) as (disk, ledger):
        leader = await started(ledger)
        with disk.full_after_next_write_transaction():
            await leader.append(put(1))
            with pytest.raises(StoreFullError, match="cannot follow"):
                await ledger.caught_up()
        await ledger.caught_up()
        assert len((await ledger.load()).jobs) == 1


async def test_reasons_of_entries_that_are_gone_are_kept_for_days_and_not_too_many(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, StoreLimits(inbox_set_aside_max=3)) as store:
        waits = (await store.journal.put_inbox(b"waits")).id
        await store.journal.set_aside_inbox({waits: "unreadable"}, Instant(1), Epoch(1))
        gone = [(await store.journal.put_inbox(b"x")).id for _ in range(6)]
        for number in gone:
            await store.journal.set_aside_inbox({number: "invalid"}, Instant(2))
            await store.journal.drop_inbox([number])

        async def kept() -> list[int]:
            ids = "SELECT id FROM inbox_set_aside ORDER BY id"
            rows = await store.journal.run_durably(lambda c: c.execute(ids).fetchall())
            return [row[0] for row in rows]

        assert await kept() == [waits, *gone[-3:]]
        last = (await store.journal.put_inbox(b"x")).id
        await store.journal.set_aside_inbox({last: "invalid"}, Instant(INBOX_SET_ASIDE_MS + 3))
        assert await kept() == [waits, last]


async def test_an_entry_that_comes_during_a_poll_is_seen_by_the_next(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for number in range(1, 20):
            looks = asyncio.gather(store.journal.take_inbox(99), store.tokens.revision())
            if number % 2:
                await asyncio.sleep(0)
            comes = asyncio.gather(
                store.journal.put_inbox(b"x"), store.tokens.add_token(token(number))
            )
            await asyncio.sleep(0)
            if number % 3 == 0:
                comes.cancel()  # it may have happened all the same
            await asyncio.gather(looks, comes, return_exceptions=True)
            entries = await store.journal.run_durably(
                lambda c: take_inbox(c, 99, Epoch(0), 1 << 20)
            )
            revision = (await store.tokens.load(b"")).revision
            assert await store.journal.take_inbox(99) == entries
            assert await store.tokens.revision() == revision
        assert len(entries) > 6


def pages(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.pragma("page_count"))
    finally:
        connection.close()


async def test_a_great_many_go_in_small_pieces_past_those_that_stay(tmp_path: Path) -> None:
    async with opened(tmp_path, StoreLimits(old_rows_per_drop=100)) as store:
        leader = await leading(store)
        for number in range(1_000):
            ended = None if number % 10 == 0 else MONDAY + 9
            await leader.append(*work(number, MONDAY + number, ended), at=MONDAY)
        await project_all(store)
        sizes = []
        while (dropped := await store.drop_before(TUESDAY)).more:
            sizes.append(dropped.jobs)
        assert max(sizes) <= 100
        assert sum(sizes) + dropped.jobs == 900
        assert len(await store.queries.find_jobs(JobQuery(limit=1_000))) == 100
        # The next round begins at the beginning, and finds those that ended since.
        await leader.append(*work(0, MONDAY, TUESDAY), at=TUESDAY)
        await project_all(store)
        assert await drop_all(store, WEDNESDAY) == 1


async def test_the_files_shrink_when_much_was_deleted(tmp_path: Path) -> None:
    limits = StoreLimits(free_pages_kept=20, free_pages_per_drop=50)
    async with opened(tmp_path, limits) as store:
        leader = await leading(store)
        for number in range(0, 3_000, 100):
            batch = [write for n in range(number, number + 100)
                     for write in work(n, MONDAY + n, MONDAY + 9)]  # fmt: skip
            await leader.append(*batch, at=MONDAY)
        await project_all(store)
    before = pages(tmp_path / "rota.db")
    async with opened(tmp_path, limits) as store:
        assert await drop_all(store, TUESDAY) == 3_000
    after = pages(tmp_path / "rota.db")
    assert after < before * 0.7, (before, after)
