"""Failover of PostgreSQL to a replica that had not heard of the newest records."""

from __future__ import annotations

import pytest

from rota.store.postgres.store import PostgresStore
from rota.store.protocol import FENCES_PER_LOSS, DivergedError, Epoch, Head, Loss
from rota.store.queries import JobQuery
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance import Appender, leading, project_all, put

pytestmark = pytest.mark.postgres

ALL = 10_000


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


async def lose(cell: Cell, after: Head) -> None:
    """Makes the database what a replica was that had the journal up to a record, and no more."""
    gone = f"id > '{put(after.seq).id}'"
    await cell.run(
        f"DELETE FROM rota.journal WHERE seq > {after.seq};"
        f" DELETE FROM rota.jobs_live WHERE {gone};"
        f" UPDATE rota.projection_shards SET folded_seq = {after.seq},"
        f" folded_hash = '\\x{after.hash.hex()}', order_next = {after.seq + 1};"
        f" UPDATE rota.projection_shards SET submitted = {after.seq} WHERE shard = 0;"
        " UPDATE rota.leader SET epoch = 1, nonce = 1;"
        " UPDATE rota.meta SET timeline = timeline + 1"
    )


async def appended(store: PostgresStore) -> tuple[Appender, Head, Head]:
    """Appends five records, a job in each; returns the leader, and the second and the last end."""
    leader = await leading(store)
    heads = []
    for number in range(1, 6):
        await leader.append(put(number))
        heads.append(leader.head)
    await project_all(store)
    return leader, heads[1], heads[-1]


async def test_a_leader_and_a_follower_of_lost_records_notice_and_read_what_is_left(
    cell: Cell,
) -> None:
    async with cell.opened() as one, cell.opened() as two:
        leader, left, newest = await appended(one)
        await project_all(two)
        await lose(cell, left)
        await cell.run(f"UPDATE rota.leader SET epoch = {leader.epoch}")
        with pytest.raises(DivergedError, match="ends at 2"):
            await leader.append(put(6))
        for store in (one, two):
            with pytest.raises(DivergedError, match="record 5 that this server read"):
                await store.journal.records_after(newest, ALL)
            snapshot = await store.journal.load()
            assert (snapshot.head, len(snapshot.jobs)) == (left, 2)


async def test_what_is_appended_after_a_failover_is_projected_and_read_at_once(cell: Cell) -> None:
    async with cell.opened() as one, cell.opened() as two:
        _, left, _ = await appended(one)
        await lose(cell, left)
        again = await leading(one)
        assert again.head == left
        for number in range(6, 12):
            await again.append(put(number))
            found = await one.queries.find_jobs(JobQuery(limit=ALL))
            assert len(found) == number - 3
        await project_all(two)
        assert len(await two.queries.find_jobs(JobQuery(limit=ALL))) == 8
        assert (await one.journal.load()).totals.submitted == 8


async def test_a_lost_record_that_was_not_projected_yet_does_not_stop_the_projection(
    cell: Cell,
) -> None:
    async with cell.opened() as one:
        leader = await leading(one)
        for number in (1, 2):
            await leader.append(put(number))
        await project_all(one)
        left = leader.head
        one.projection.lead(leads=False)
        await leader.append(put(3))
        await lose(cell, left)
        one.projection.lead(leads=True)
        await project_all(one)
        assert (await one.journal.load()).head == left
        # Another server leads meanwhile, and this one again after it.
        async with cell.opened() as two:
            other = await leading(two)
            two.projection.lead(leads=False)
            await other.append(put(4))
        again = await leading(one)
        await again.append(put(5))
        found = await one.queries.find_jobs(JobQuery(limit=ALL))
        assert [job.id for job in found] == [put(number).id for number in (5, 4, 2, 1)]


async def test_epochs_and_fences_are_higher_after_a_failover_than_any_that_may_be_lost(
    cell: Cell,
) -> None:
    async with cell.opened() as one, cell.opened() as two:
        leader, left, _ = await appended(one)
        assert (await two.journal.losses()).fence_floor == 0
        await lose(cell, left)
        epoch = await two.journal.claim("two")
        assert epoch > leader.epoch + 100
        assert (await two.journal.losses()).fence_floor == FENCES_PER_LOSS
        # Two servers notice it, one of which had read more.
        await one.journal.note_loss(Loss(1, 2, left.seq))
        await two.journal.note_loss(Loss(1, 3, left.seq))
        losses = await one.journal.losses()
        assert losses.each == (Loss(1, 3, left.seq),)
        assert losses.fence_floor == 2 * FENCES_PER_LOSS
        assert (await one.journal.load()).fence_floor == losses.fence_floor


async def test_an_epoch_that_a_server_has_seen_is_not_given_again(cell: Cell) -> None:
    async with cell.opened() as one:
        for _ in range(7):
            seen = await one.journal.claim("one")
        await cell.run("UPDATE rota.leader SET epoch = 2")
        assert await one.journal.claim("one") == Epoch(seen + 1)
