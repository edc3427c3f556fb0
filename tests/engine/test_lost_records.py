"""Records that a failover of the database lost or replaced: servers notice, and go on from what is
left."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rota.core.model import Execution, JobState
from rota.core.outcome import PutExecution
from rota.engine.ports import UnavailableError
from rota.store.journal import encode_record, next_head
from rota.store.protocol import FENCES_PER_LOSS, GENESIS, Epoch, Head, JournalRecord
from rota.store.sqlite.memory import MemoryStore
from tests.engine.rig import Rig, succeeded, until
from tests.engine.test_leadership import Cell, cell, leading

ALL = 10_000


async def records(store: MemoryStore) -> list[JournalRecord]:
    return await store.journal.records_after(GENESIS, ALL)


class Backup:
    """The database as it was: a failover to a replica brings it back."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._image = store.journal.connection.serialize("main")

    def restore(self) -> None:
        """Loses all that was written since, but for the row of the leader and the inbox."""
        connection = self._store.journal.connection
        connection.execute("ATTACH ':memory:' AS lost")
        connection.deserialize("lost", self._image)
        kept = "('leader', 'inbox', 'sqlite_sequence')"
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN " + kept
        for (table,) in connection.execute(tables).fetchall():
            connection.execute(f"DELETE FROM main.{table}")
            connection.execute(f"INSERT INTO main.{table} SELECT * FROM lost.{table}")
        connection.execute("DETACH lost")
        self._store.journal.start_over()


async def run_one(rig: Rig) -> Execution:
    """Runs the next job on a worker."""
    (order,) = (await rig.poll(executions=(), max_orders=1)).orders
    await rig.poll(completed=(succeeded(order),), wait_ms=0, executions=(), max_orders=0)
    return order.execution


def fences(of: Sequence[JournalRecord]) -> list[int]:
    """Fences of all executions in these records."""
    return sorted(
        {
            write.execution.fence
            for record in of
            for write in record.writes
            if isinstance(write, PutExecution)
        }
    )


async def a_loss(it: Cell) -> tuple[Rig, list[JournalRecord]]:
    """Makes a leader whose newest records were lost, after another server had read them.

    Returns that server, and the records that were lost.
    """
    first = await leading(await it.join("a"))
    second = await it.join("b")
    await first.submit("kept")
    await first.register()
    backup = Backup(it.store)
    for job_id in ("lost 1", "lost 2"):
        await first.submit(job_id)
        await run_one(first)
    newest = it.store.journal.head()
    await until(lambda: second.engine.standing().seq == newest.seq)
    there = await records(it.store)
    backup.restore()
    return second, there[it.store.journal.head().seq :]


async def test_a_follower_that_read_lost_records_drops_them_and_reads_again() -> None:
    async with cell() as it:
        second, lost = await a_loss(it)
        left = it.store.journal.head()
        await until(lambda: second.engine.standing().seq == left.seq)
        (loss,) = (await it.store.journal.losses()).each
        assert (loss.after, loss.records) == (left.seq, len(lost))


async def test_a_follower_that_had_only_loaded_lost_records_notices_too() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.submit("kept")
        backup = Backup(it.store)
        for number in range(3):
            await first.submit(f"lost {number}")
        second = await it.join("b")
        assert second.engine.standing().seq == it.store.journal.head().seq
        first.journal.is_away = True
        backup.restore()
        left = it.store.journal.head()
        await until(lambda: second.engine.standing().seq == left.seq)
        (loss,) = (await it.store.journal.losses()).each
        assert (loss.after, loss.records) == (left.seq, 3)


async def test_the_next_leader_runs_the_jobs_that_are_left_with_fences_that_repeat_none() -> None:
    async with cell() as it:
        second, lost = await a_loss(it)
        it.rigs[0].journal.is_away = True
        await it.silence()
        await leading(second)
        assert second.engine.epoch > max(record.epoch for record in lost)
        await second.register("w2", "s2")
        for job_id in ("new 1", "new 2"):
            await second.submit(job_id)
        executions = [await run_as(second, "w2") for _ in range(3)]
        assert [one.job_id for one in executions] == ["kept", "new 1", "new 2"]
        assert min(one.fence for one in executions) > max(fences(lost))
        assert min(one.fence for one in executions) > FENCES_PER_LOSS
        for job_id in ("kept", "new 1", "new 2"):
            assert await second.state(job_id) is JobState.SUCCEEDED
        assert await second.state("lost 2") is None


async def run_as(rig: Rig, worker_id: str) -> Execution:
    (order,) = (await rig.poll(worker_id, executions=(), max_orders=1)).orders
    done = (succeeded(order),)
    await rig.poll(worker_id, completed=done, wait_ms=0, executions=(), max_orders=0)
    return order.execution


async def test_a_leader_whose_newest_records_were_lost_notices_at_its_next_append() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.submit("kept")
        backup = Backup(it.store)
        await first.submit("lost")
        backup.restore()
        with pytest.raises(UnavailableError):
            await first.submit("new")
        await first.until_ready()
        (loss,) = (await it.store.journal.losses()).each
        assert loss.records == 1
        await first.submit("newer")
        await first.register()
        executions = [await run_one(first) for _ in range(2)]
        assert [one.job_id for one in executions] == ["kept", "newer"]
        assert all(one.fence > FENCES_PER_LOSS for one in executions)
        epochs = [record.epoch for record in await records(it.store)]
        assert epochs == sorted(epochs)


async def test_a_leader_whose_newest_record_was_replaced_goes_on_from_the_other_one() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.submit("kept")
        replaced = replace_newest(it.store, first.engine.epoch)
        with pytest.raises(UnavailableError):
            await first.submit("new")
        await first.until_ready()
        there = await records(it.store)
        assert replaced in [record.head for record in there]
        (loss,) = (await it.store.journal.losses()).each
        assert (loss.records, loss.after) == (1, replaced.seq - 1)
        await first.submit("new")
        assert await first.state("new") is JobState.QUEUED
        assert await first.state("kept") is None


def replace_newest(store: MemoryStore, epoch: int) -> Head:
    """Puts an empty record in place of the newest one, which no table has yet."""
    connection = store.journal.connection
    (seq, newest, at) = connection.execute(
        "SELECT seq, hash, at FROM journal ORDER BY seq DESC LIMIT 1 OFFSET 1"
    ).fetchall()[0]
    body = encode_record(())
    head = next_head(Head(seq, newest), Epoch(epoch), at, body)
    connection.execute(
        "UPDATE journal SET epoch = ?, at = ?, body = ?, hash = ? WHERE seq = ?",
        (epoch, at, body, head.hash, head.seq),
    )
    store.journal.start_over()
    return head


async def test_a_server_that_was_away_until_its_records_were_dropped_reports_no_loss() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        second = await it.join("b")
        await first.submit("one")
        newest = it.store.journal.head().seq
        await until(lambda: second.engine.standing().seq == newest)
        second.journal.is_away = True
        for number in range(5):
            await first.submit(f"later {number}")
        await it.store.queries.jobs([])  # all of it is in the tables
        it.store.journal.connection.execute("DELETE FROM journal WHERE seq <= ?", (newest + 2,))
        second.journal.is_away = False
        head = it.store.journal.head()
        await until(lambda: second.engine.standing().seq == head.seq)
        assert (await it.store.journal.losses()).each == ()
