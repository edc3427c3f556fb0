"""Faults between a server and PostgreSQL, and the state afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import asyncpg
import pytest

from rota.core.model import ExecutionState, JobState, Life
from rota.store.journal import chain_hash, encode_record, next_head
from rota.store.limits import StoreLimits
from rota.store.postgres.store import PostgresStore, open_postgres
from rota.store.protocol import (
    GENESIS,
    Epoch,
    FencedError,
    StoreError,
    StoreFullError,
    UnknownFateError,
)
from rota.store.queries import JobQuery
from tests.postgres.cell import Cell, migrated_cell
from tests.postgres.server import PostgresServer
from tests.store.conformance import Appender, leading, put, run_of
from tests.store.conformance_logs_and_files import eventually

pytestmark = pytest.mark.postgres

_END_APPENDS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1"
_IN_COMMIT = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = $1"
_LOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ $1"

_BREAK_TABLES = "ALTER TABLE rota.jobs_live RENAME TO jobs_away"
_MEND_TABLES = "ALTER TABLE rota.jobs_away RENAME TO jobs_live"


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """One that a test may break, and that waits for its disk as in earnest."""
    server = PostgresServer(quick=False)
    yield server
    server.remove()


async def test_one_of_two_writers_gets_a_position_and_the_other_is_fenced(cell: Cell) -> None:
    async with cell.opened() as one, cell.opened() as two:
        leader = await leading(one)
        tries = [
            store.journal.append(leader.epoch, GENESIS, 1, [put(number)])
            for number, store in enumerate((one, two), 1)
        ]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert [type(one) for one in outcomes if isinstance(one, Exception)] == [FencedError]
        assert len(await two.queries.find_jobs(JobQuery())) == 1


async def test_a_deposed_leader_is_fenced_by_the_claim_of_another_server(cell: Cell) -> None:
    async with cell.opened() as one, cell.opened() as two:
        old = await leading(one)
        await old.append(put(1))
        new = await leading(two)
        with pytest.raises(FencedError):
            await old.append(put(2))
        await new.append(put(3))
        assert new.seq == 2
        assert not await one.journal.renew(old.epoch)


async def test_a_follower_reads_what_the_leader_has_appended(cell: Cell) -> None:
    async with cell.opened() as one, cell.opened() as two:
        leader = await leading(one)
        for number in range(20):
            await leader.append(put(number))
            assert len(await two.queries.find_jobs(JobQuery(limit=100))) == number + 1


async def test_a_follower_projects_when_no_leader_does(cell: Cell) -> None:
    async with cell.opened() as two:
        async with cell.opened() as one:
            leader = await leading(one)
            await one.journal.resign(leader.epoch)
            epoch = await one.journal.claim("again")
            one._projector.lead(leads=False)  # as if it died right after the append
            await one.journal.append(epoch, GENESIS, 1, [put(1)])
        assert len(await two.queries.find_jobs(JobQuery())) == 1


async def test_a_backend_that_dies_during_an_append_leaves_its_outcome_unknown_until_a_load(
    cell: Cell,
) -> None:
    async with cell.opened() as store, cell.connected() as admin:
        leader = await leading(store)
        await leader.append(put(1))
        async with admin.transaction():
            await admin.execute("LOCK TABLE rota.journal IN EXCLUSIVE MODE")
            under_way = asyncio.create_task(leader.append(put(2)))
            await eventually(lambda: _waits_for_lock(cell))
            await admin.fetch(_END_APPENDS, "rota append")
            with pytest.raises(UnknownFateError):
                await under_way
        again = await leading(store)
        assert again.seq == 1
        await again.append(put(3))
        found = await store.queries.find_jobs(JobQuery())
        assert [job.id for job in found] == ["job-0003", "job-0001"]


async def test_a_record_that_was_written_although_its_answer_was_lost_is_found_by_loading(
    cell: Cell,
) -> None:
    async with cell.opened() as store, cell.opened() as other:
        leader = await leading(store)
        await other.journal.append(leader.epoch, GENESIS, 1, [put(1)])
        with pytest.raises(FencedError):
            await leader.append(put(2))
        again = await leading(store)
        assert again.seq == 1
        assert [job.id for job in (await store.journal.load()).jobs] == ["job-0001"]


async def test_a_held_lock_is_reported_and_waited_for_no_longer_than_needed(
    cell: Cell,
) -> None:
    async with cell.opened() as store, cell.connected() as admin:
        leader = await leading(store)
        async with admin.transaction():
            await admin.execute("LOCK TABLE rota.journal IN EXCLUSIVE MODE")
            with pytest.raises(StoreError, match="holds a lock") as refused:
                await leader.append(put(1))
        assert not isinstance(refused.value, UnknownFateError | FencedError)
        await leader.append(put(2))


async def test_an_append_past_its_deadline_is_given_up_without_a_cancel(cell: Cell) -> None:
    short = StoreLimits(append_deadline_s=0.3)
    async with cell.opened(limits=short) as store, cell.connected() as admin:
        leader = await leading(store)
        async with admin.transaction():
            await admin.execute("LOCK TABLE rota.journal IN EXCLUSIVE MODE")
            with pytest.raises(UnknownFateError, match=r"0\.3 s"):
                await leader.append(put(1))
            # The server goes on waiting for the lock: nobody told it to stop.
            assert await _waits_for_lock(cell)
        # It was only given up, so it happens after all, and loading tells the truth.

        async def settled() -> bool:
            return not await _waits_for_lock(cell)

        await eventually(settled)
        again = await leading(store)
        await again.append(put(2))
        assert again.seq == len(await store.queries.find_jobs(JobQuery()))


async def test_a_commit_with_a_warning_is_no_success(cell: Cell) -> None:
    """As PostgreSQL warns when a commit is told not to wait for its standby."""
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(put(1))
        await cell.run(
            "CREATE FUNCTION rota.warn() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE WARNING 'not replicated'; RETURN NEW; END$$;"
            "CREATE TRIGGER warn AFTER INSERT ON rota.journal"
            " FOR EACH ROW EXECUTE FUNCTION rota.warn()"
        )
        with pytest.raises(UnknownFateError, match="not replicated"):
            await leader.append(put(2))
        assert (await store.journal.load()).seq == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("53100", StoreFullError),
        ("53200", StoreError),
        ("53400", StoreError),
        ("25006", StoreError),
        ("40P01", StoreError),
        ("57014", StoreError),
    ],
)
async def test_a_refusal_of_the_database_is_certain_and_says_why(
    cell: Cell, code: str, kind: type[StoreError]
) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        await cell.run(
            "CREATE FUNCTION rota.refuse() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$BEGIN RAISE EXCEPTION 'as on a full disk' USING ERRCODE = '{code}'; END$$;"
            "CREATE TRIGGER refuse BEFORE INSERT ON rota.journal"
            " FOR EACH ROW EXECUTE FUNCTION rota.refuse()"
        )
        with pytest.raises(kind) as refused:
            await leader.append(put(1))
        assert not isinstance(refused.value, UnknownFateError | FencedError)
        await cell.run("DROP TRIGGER refuse ON rota.journal")
        await leader.append(put(2))
        assert [job.spec.arrival_number for job in (await store.journal.load()).jobs] == [2]


async def test_a_projection_that_fails_is_reported_to_readers_and_made_up_for(cell: Cell) -> None:
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(put(1))
        await store.queries.jobs([])
        await cell.run(_BREAK_TABLES)
        await leader.append(put(2))
        with pytest.raises(StoreError, match="cannot follow"):
            await store.queries.jobs([])
        await cell.run(_MEND_TABLES)
        assert len(await store.queries.find_jobs(JobQuery())) == 2


async def test_a_record_that_the_database_lost_is_not_projected_from_memory(cell: Cell) -> None:
    """As after a change-over to a standby that had not heard of the newest record."""
    async with cell.opened() as store:
        leader = await leading(store)
        await cell.run(_BREAK_TABLES)
        await leader.append(put(1))
        with pytest.raises(StoreError, match="cannot follow"):
            await store.queries.jobs([])
        async with cell.connected() as other:
            body = encode_record([put(2)])
            newest = chain_hash(GENESIS.hash, 1, 99, 1, body)
            await other.execute(
                "UPDATE rota.journal SET epoch = 99, body = $1, hash = $2", body, newest
            )
        await cell.run(_MEND_TABLES)
        found = await store.queries.find_jobs(JobQuery())
    assert [job.id for job in found] == ["job-0002"]


@pytest.mark.process
async def test_a_crash_of_postgres_loses_nothing_and_needs_no_restart_of_ours(
    own_server: PostgresServer,
) -> None:
    cell = Cell(own_server)
    async with cell.opened() as store:
        leader = await leading(store)
        await leader.append(put(1))
        dying = asyncio.create_task(asyncio.to_thread(own_server.kill))
        with pytest.raises(StoreError):
            await append_for_ever(leader)
        await dying
        with pytest.raises(StoreError):
            await store.journal.renew(leader.epoch)
        await asyncio.to_thread(own_server.start)
        again = await leading(store)
        assert again.seq in (leader.seq, leader.seq + 1)  # the last one was in doubt
        await again.append(put(again.seq + 1))
        everything = JobQuery(limit=100_000)
        assert len(await store.queries.find_jobs(everything)) == again.seq


@pytest.mark.process
async def test_a_commit_that_waits_for_a_lost_standby_is_never_called_a_success(
    own_server: PostgresServer,
) -> None:
    cell = Cell(own_server, limits=StoreLimits(append_deadline_s=1.0))
    async with cell.opened() as store, cell.connected() as admin:
        leader = await leading(store)
        assert (await store.durability()).level == "single"
        await admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        await admin.execute("SELECT pg_reload_conf()")

        async def waits_for_standby() -> bool:
            return bool(await admin.fetchval(_IN_COMMIT, "SyncRep"))

        async def level_is_sync() -> bool:
            return (await store.durability()).level == "sync-ha"

        await eventually(level_is_sync)
        first = asyncio.create_task(leader.append(put(1)))
        await eventually(waits_for_standby)
        await admin.fetch("SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                          " WHERE wait_event = 'SyncRep'")  # fmt: skip
        with pytest.raises(UnknownFateError, match="warned"):
            await first
        in_doubt = next_head(leader.head, leader.epoch, 1, encode_record([put(1)]))
        with pytest.raises(UnknownFateError, match="no answer"):
            await store.journal.append(leader.epoch, in_doubt, 1, [put(2)])
        await admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await admin.execute("SELECT pg_reload_conf()")

        async def nobody_waits() -> bool:
            return not await waits_for_standby()

        await eventually(nobody_waits)  # a commit in doubt may still take its place
        again = await leading(store)
        await again.append(put(3))
        assert again.seq == len(await store.queries.find_jobs(JobQuery())) == 3


@pytest.mark.process
async def test_a_read_only_database_is_refused_at_the_start(own_server: PostgresServer) -> None:
    cell = Cell(own_server)
    async with cell.opened():
        pass
    await cell.run(f"ALTER DATABASE {cell.database} SET default_transaction_read_only = on")
    with pytest.raises(StoreError, match="takes no writes"):
        await open_postgres(cell.dsn)


async def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/none") as refused:
        await open_postgres("postgresql://rota:secret@127.0.0.1:1/none")
    assert "secret" not in str(refused.value)


async def test_epochs_are_never_used_twice_by_racing_servers(cell: Cell) -> None:
    async with cell.opened() as one, cell.opened() as two, cell.opened() as three:
        await one.journal.claim("first")
        seen = await one.journal.observe()
        claims = [store.journal.claim("x", seen) for store in (one, two, three)]
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [Epoch(2)]
        assert sum(isinstance(outcome, FencedError) for outcome in outcomes) == 2


async def append_for_ever(leader: Appender) -> None:
    while True:
        await leader.append(put(leader.seq + 1))


async def _waits_for_lock(cell: Cell) -> bool:
    return await cell.ask(_LOCKED, "INSERT INTO rota.journal") == 1


JOBS = 50
DONE = Life(JobState.SUCCEEDED, finished_at=9)
_WRITTEN = """
SELECT (SELECT count(*) FROM rota.jobs_done), (SELECT count(*) FROM rota.executions_done),
    (SELECT sum(submitted) FROM rota.projection_shards)
"""


async def end_all(leader: Appender) -> None:
    """Jobs that came and went well, and a run of each."""
    runs = [run_of(number, ExecutionState.SUCCEEDED) for number in range(JOBS)]
    await leader.append(*(put(number, DONE) for number in range(JOBS)), *runs)


async def read(store: PostgresStore) -> None:
    """Whoever reads waits for the fold."""
    await store.queries.jobs([])
    await store.queries.count_jobs("default")


async def written(cell: Cell) -> tuple[int, ...]:
    async with cell.connected() as admin:
        found = await admin.fetchrow(_WRITTEN)
    assert found is not None
    return tuple(found)


@pytest.mark.parametrize("broken", ["jobs_done", "executions_done"])
async def test_a_projection_that_breaks_among_its_rows_leaves_nothing_and_is_repeated(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, breaks = asyncpg.Connection.copy_records_to_table, iter([True])

    def half_of(records: Iterable[Any]) -> Iterator[Any]:
        yield from islice(records, JOBS // 2)
        raise ValueError("no such row")

    async def copy_half(connection: Any, table: str, *, records: Iterable[Any], **how: Any) -> str:
        if table == broken and next(breaks, False):
            records = half_of(records)
        return await copy(connection, table, records=records, **how)

    monkeypatch.setattr(asyncpg.Connection, "copy_records_to_table", copy_half)
    cell = await migrated_cell()
    async with cell.opened() as store:
        await end_all(await leading(store))
        with pytest.raises(StoreError, match="no such row"):
            await read(store)
        assert await written(cell) == (0, 0, 0)
        await read(store)
    assert await written(cell) == (JOBS, JOBS, JOBS)
