"""Looks whether others left something new in PostgreSQL: few, and never too old."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota.core.model import Instant
from rota.store.postgres import ledger as postgres_ledger
from rota.store.postgres.store import PostgresStore
from rota.store.protocol import StoreError
from rota.store.protocols.nodes import Node
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance_access import token

pytestmark = pytest.mark.postgres

_SUBMIT = "SELECT rota.submit($1::jsonb)"


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


def counted(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One for each time that the connection is used which looks are made on."""
    reads: list[bool] = []
    line = store.ledger.glance._line
    read = line.read

    async def noted(work: Callable[[Any], Awaitable[Any]]) -> Any:
        reads.append(True)
        return await read(work)

    monkeypatch.setattr(line, "read", noted)
    return reads


async def test_who_looks_at_the_same_moment_shares_one_read(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cell.opened() as store:
        reads = counted(store, monkeypatch)
        revisions_and_entries = await asyncio.gather(
            store.access.revision(), store.ledger.take_inbox(9), store.access.revision()
        )
        assert revisions_and_entries == [0, [], 0]
        assert len(reads) == 1


async def test_a_look_shows_all_that_was_there_when_it_was_asked_for(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cell.opened() as store, cell.connected() as application:
        line, may_answer, has_read = store.ledger.glance._line, asyncio.Event(), asyncio.Event()
        read = line.read

        async def late(work: Callable[[Any], Awaitable[Any]]) -> Any:
            found = await read(work)
            has_read.set()
            await may_answer.wait()
            return found

        monkeypatch.setattr(line, "read", late)
        before = asyncio.create_task(store.access.revision())
        await has_read.wait()
        await store.access.add_token(token(1))
        await application.fetchval(_SUBMIT, json.dumps({"name": "n"}))
        after = asyncio.gather(store.access.revision(), store.ledger.take_inbox(9))
        await asyncio.sleep(0)
        may_answer.set()
        revision, entries = await after
        assert (await before, revision, len(entries)) == (0, 1, 1)


async def test_who_goes_away_does_not_take_the_answer_from_the_others(cell: Cell) -> None:
    async with cell.opened() as store:
        gone, stays = (asyncio.create_task(store.access.revision()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == 0
        assert gone.cancelled()


async def test_a_look_that_fails_is_told_to_all_and_the_next_one_is_a_new_one(cell: Cell) -> None:
    async with cell.opened() as store:
        async with cell.connected() as other, other.transaction():
            await other.execute("LOCK TABLE rota.access")
            looks = await asyncio.gather(
                store.access.revision(), store.access.revision(), return_exceptions=True
            )
        assert [isinstance(one, StoreError) for one in looks] == [True, True]
        assert await store.access.revision() == 0


async def _all_that_a_server_does_by_itself(store: PostgresStore) -> list[Any]:
    """The tokens' number, the inbox, an announcement, the others, what a commit is worth."""
    return await asyncio.gather(
        store.access.revision(),
        store.ledger.take_inbox(9),
        store.nodes.announce(Node(node="here")),
        store.nodes.everyone(),
        store.durability(),
        return_exceptions=True,
    )


async def test_all_that_a_server_does_by_itself_is_one_transaction(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cell.opened() as store:
        await store.nodes.announce(Node(node="here"))
        alone = await store.durability()
        reads = counted(store, monkeypatch)
        revision, entries, _, everyone, durability = await _all_that_a_server_does_by_itself(store)
        assert len(reads) == 1
        assert (revision, entries) == (0, [])
        assert [seen.told.node for seen in everyone] == ["here"]
        # That an announcement does not wait for the disk says nothing of what is accepted.
        assert durability == alone
        assert await cell.ask("SELECT count(*) FROM rota.nodes") == 1


async def test_the_connection_for_appends_is_there_from_the_start_and_never_silent_for_long(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_asked = "SELECT query_start FROM pg_stat_activity WHERE application_name = 'rota append'"
    last_asked += " AND datname = current_database()"
    async with cell.opened() as store:
        at_start = await cell.ask(last_asked)
        assert at_start is not None
        await store.durability()
        assert await cell.ask(last_asked) == at_start
        monkeypatch.setattr(postgres_ledger, "APPEND_IDLE_S", 0.0)
        await store.durability()
        assert await cell.ask(last_asked) > at_start  # type: ignore[operator]  # both are times


@pytest.mark.parametrize(("table", "locked"), [("inbox", [1]), ("nodes", [2, 3]), ("access", [0])])
async def test_a_locked_table_is_in_nobody_elses_way(
    cell: Cell, table: str, locked: list[int]
) -> None:
    async with cell.opened() as store:
        await store.nodes.announce(Node(node="here"))
        async with cell.connected() as vacuum, vacuum.transaction():
            await vacuum.execute(f"LOCK TABLE rota.{table} IN ACCESS EXCLUSIVE MODE")
            found = await _all_that_a_server_does_by_itself(store)
        refused = [place for place, one in enumerate(found) if isinstance(one, StoreError)]
        assert refused == locked
        assert not any(
            isinstance(one, Exception) for one in await _all_that_a_server_does_by_itself(store)
        )


async def test_a_revoked_token_is_heard_of_while_the_inbox_is_being_rewritten(cell: Cell) -> None:
    async with cell.opened() as store:
        await store.access.add_token(token(1))
        before = await store.access.revision()
        async with cell.connected() as vacuum, vacuum.transaction():
            await vacuum.execute("LOCK TABLE rota.inbox IN ACCESS EXCLUSIVE MODE")
            await store.access.revoke_token(token(1).id, Instant(5))
            inbox = asyncio.create_task(store.ledger.take_inbox(9))
            assert await store.access.revision() > before
            with pytest.raises(StoreError):
                await inbox


async def test_a_server_that_was_gone_for_long_is_shown_to_nobody_and_forgotten_at_a_start(
    cell: Cell,
) -> None:
    names = "SELECT array_agg(node ORDER BY node) FROM rota.nodes"
    async with cell.opened() as one, cell.connected() as person:
        await one.nodes.announce(Node(node="here"))
        await one.nodes.announce(Node(node="gone"))
        long_ago = "UPDATE rota.nodes SET seen_at = now() - interval '25 h' WHERE node = 'gone'"
        await person.execute(long_ago)
        await one.nodes.announce(Node(node="here"))
        assert [seen.told.node for seen in await one.nodes.everyone()] == ["here"]
        assert await person.fetchval(names) == ["gone", "here"]
        async with cell.opened() as two:
            await two.nodes.announce(Node(node="new"))
        assert await person.fetchval(names) == ["here", "new"]
