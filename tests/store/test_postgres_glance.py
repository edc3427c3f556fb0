"""Looks whether others left something new in PostgreSQL: few, and never too old."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from rota.core.model import Instant
from rota.store.documents import Node
from rota.store.limits import StoreLimits
from rota.store.postgres.connect import DedicatedConnection, parse_address
from rota.store.postgres.glance import HAS_INBOX, REVISION, Glance
from rota.store.postgres.store import PostgresStore
from rota.store.protocol import StoreError
from tests.postgres.cell import Cell, migrated_cell
from tests.store.conformance_tokens import token

pytestmark = pytest.mark.postgres

T = TypeVar("T")

_LAST_ASKED = """
SELECT query, query_start FROM pg_stat_activity
WHERE application_name = $1 AND datname = current_database()
"""
_SUBMIT = "SELECT rota.submit($1::jsonb)"


@pytest.fixture
async def cell() -> Cell:
    return await migrated_cell()


class NotedLine(DedicatedConnection):
    """One that knows how often it was read from, and whose answers can be held back."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(parse_address(cell.dsn), "look", 5.0, {})
        self.reads = 0
        self.has_read, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()

    async def read(self, work: Callable[[Any], Awaitable[T]]) -> T:
        self.reads += 1
        found = await super().read(work)
        self.has_read.set()
        await self.may_answer.wait()
        return found


@asynccontextmanager
async def looking(cell: Cell) -> AsyncIterator[tuple[NotedLine, Glance]]:
    """Looks at a database, over a connection of the test."""
    line = NotedLine(cell)
    glance = Glance(line)
    try:
        yield line, glance
    finally:
        await glance.close()


async def test_who_looks_at_the_same_moment_shares_one_read(cell: Cell) -> None:
    async with looking(cell) as (line, glance):
        found = await asyncio.gather(*map(glance.see, (REVISION, HAS_INBOX, REVISION)))
        assert found == [(0,), (False,), (0,)]
        assert line.reads == 1


async def test_a_look_shows_all_that_was_there_when_it_was_asked_for(cell: Cell) -> None:
    async with (
        cell.opened() as store,
        cell.connected() as application,
        looking(cell) as (line, glance),
    ):
        line.may_answer.clear()
        before = asyncio.create_task(glance.see(REVISION))
        await line.has_read.wait()
        await store.tokens.add_token(token(1))
        await application.fetchval(_SUBMIT, json.dumps({"name": "n"}))
        after = asyncio.gather(glance.see(REVISION), glance.see(HAS_INBOX))
        await asyncio.sleep(0)
        line.may_answer.set()
        assert await before == (0,)
        assert await after == [(1,), (True,)]


async def test_who_goes_away_does_not_take_the_answer_from_the_others(cell: Cell) -> None:
    async with cell.opened() as store:
        gone, stays = (asyncio.create_task(store.tokens.revision()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == 0
        assert gone.cancelled()


async def test_a_look_that_fails_is_told_to_all_and_the_next_one_is_a_new_one(cell: Cell) -> None:
    async with cell.opened() as store:
        async with cell.connected() as other, other.transaction():
            await other.execute("LOCK TABLE rota.access")
            looks = await asyncio.gather(
                store.tokens.revision(), store.tokens.revision(), return_exceptions=True
            )
        assert [isinstance(one, StoreError) for one in looks] == [True, True]
        assert await store.tokens.revision() == 0


async def _all_that_a_server_does_by_itself(store: PostgresStore) -> list[Any]:
    """The tokens' number, the inbox, an announcement, the others, what a commit is worth."""
    return await asyncio.gather(
        store.tokens.revision(),
        store.journal.take_inbox(9),
        store.nodes.announce(Node(node="here")),
        store.nodes.everyone(),
        store.durability(),
        return_exceptions=True,
    )


async def test_all_that_a_server_does_by_itself_is_one_statement(cell: Cell) -> None:
    async with cell.opened() as store, cell.connected() as admin:
        await store.nodes.announce(Node(node="here"))
        alone = await store.durability()
        revision, entries, _, everyone, durability = await _all_that_a_server_does_by_itself(store)
        # The last statement of the connection for looks has all of it.
        (asked,) = await admin.fetch(_LAST_ASKED, "rota look")
        assert all(word in asked["query"] for word in ("access", "inbox", "nodes", "synchronous"))
        assert (revision, entries) == (0, [])
        assert [seen.announced.node for seen in everyone] == ["here"]
        # That an announcement does not wait for the disk says nothing of what is accepted.
        assert durability == alone
        assert await cell.ask("SELECT count(*) FROM rota.nodes") == 1


@pytest.mark.parametrize(("idle_s", "is_asked"), [(30.0, False), (0.0, True)])
async def test_the_connection_for_appends_is_there_from_the_start_and_never_silent_for_long(
    cell: Cell, idle_s: float, *, is_asked: bool
) -> None:
    limits = StoreLimits(append_idle_s=idle_s)
    async with cell.opened(limits=limits) as store, cell.connected() as admin:
        (at_start,) = await admin.fetch(_LAST_ASKED, "rota append")
        await store.durability()
        (after,) = await admin.fetch(_LAST_ASKED, "rota append")
        assert (after["query_start"] > at_start["query_start"]) is is_asked


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
        await store.tokens.add_token(token(1))
        before = await store.tokens.revision()
        async with cell.connected() as vacuum, vacuum.transaction():
            await vacuum.execute("LOCK TABLE rota.inbox IN ACCESS EXCLUSIVE MODE")
            await store.tokens.revoke_token(token(1).id, Instant(5))
            inbox = asyncio.create_task(store.journal.take_inbox(9))
            assert await store.tokens.revision() > before
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
        assert [seen.announced.node for seen in await one.nodes.everyone()] == ["here"]
        assert await person.fetchval(names) == ["gone", "here"]
        async with cell.opened() as two:
            await two.nodes.announce(Node(node="new"))
        assert await person.fetchval(names) == ["here", "new"]
