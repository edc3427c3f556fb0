"""Servers on PostgreSQL that end, break or stand still, and how the others get to know."""

from __future__ import annotations

import asyncpg
import pytest

from rota.store.limits import StoreLimits
from rota.store.postgres.store import PostgresStore
from rota.store.protocol import LeaderRow, TablesBehindError
from rota.store.queries import JobQuery
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance import leading, put
from tests.store.conformance_logs_and_files import eventually

pytestmark = pytest.mark.postgres

_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1"


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


async def test_a_leader_is_seen_to_be_there_for_as_long_as_its_process_is(cell: Cell) -> None:
    async with cell.opened() as two:
        async with cell.opened() as one:
            await one.journal.claim("one")
            assert (await seen(two)).present
            # Its connection breaks while it lives: it shows itself again, without being asked.
            await cell.ask(_END, "rota leader")

            async def is_back() -> bool:
                return (await seen(two)).present is True

            await eventually(is_back)
        row = await seen(two)
        assert (row.holder, row.present) == ("one", False)
        epoch = await two.journal.claim("two", row)
        await two.journal.resign(epoch)
        assert not (await seen(two)).present


async def test_a_server_that_is_frozen_in_a_projection_does_not_block_the_others(
    cell: Cell,
) -> None:
    async with cell.opened(limits=StoreLimits(projection_stalled_s=0.2)) as store:
        frozen = await asyncpg.connect(
            cell.dsn, server_settings={"application_name": "rota project 0"}
        )
        holding = frozen.transaction()
        await holding.start()
        await frozen.execute("SELECT folded_seq FROM rota.projection_shards FOR UPDATE")
        leader = await leading(store)
        await leader.append(put(1))
        assert len(await store.queries.find_jobs(JobQuery())) == 1

        async def is_ended() -> bool:
            return frozen.is_closed()

        await eventually(is_ended)


async def test_a_session_of_another_application_that_waits_for_its_client_is_left_alone(
    cell: Cell,
) -> None:
    async with cell.opened(limits=StoreLimits(projection_stalled_s=0.0)) as store:
        somebody = await asyncpg.connect(cell.dsn)
        async with somebody.transaction():
            await somebody.execute("SELECT folded_seq FROM rota.projection_shards FOR UPDATE")
            leader = await leading(store)
            await leader.append(put(1))
            with pytest.raises(TablesBehindError, match="behind the journal"):
                await store.queries.find_jobs(JobQuery())
        await somebody.close()


async def seen(store: PostgresStore) -> LeaderRow:
    """The leader's row."""
    row = await store.journal.observe()
    assert row is not None
    return row
