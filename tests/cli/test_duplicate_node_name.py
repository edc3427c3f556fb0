"""Two servers of one name in a cell: the second one is refused, and a restart is not."""

from __future__ import annotations

import asyncio

import click
import pytest

from rota.cli.start import cluster
from rota.cli.start.cluster import refuse_duplicate_name
from rota.engine.leadership import CellMember
from rota.store.documents import Node
from rota.store.sqlite.memory import MemoryStore

TTL_MS = 3_000


def me(address: str) -> CellMember:
    return CellMember(node="a", address=address, ttl_ms=TTL_MS)


async def speak_on(store: MemoryStore) -> None:
    while True:
        await store.nodes.announce(Node(node="a", address="http://one:7070"))
        await asyncio.sleep(0.05)


async def test_a_name_that_another_server_speaks_under_is_refused() -> None:
    store = MemoryStore()
    speaking = asyncio.create_task(speak_on(store))
    await asyncio.sleep(0)
    with pytest.raises(click.ClickException, match="'a' is in this cell already, at http://one"):
        await refuse_duplicate_name(store, me("http://two:7070"))
    speaking.cancel()
    await asyncio.gather(speaking, return_exceptions=True)


async def test_a_server_that_was_killed_starts_again_at_once() -> None:
    store = MemoryStore()
    await store.nodes.announce(Node(node="a", address="http://one:7070"))
    async with asyncio.timeout(cluster.NODES_POLL_S / 2):
        await refuse_duplicate_name(store, me("http://one:7070"))


async def test_a_name_that_nobody_speaks_under_any_more_is_free() -> None:
    store = MemoryStore()
    await store.nodes.announce(Node(node="a", address="http://one:7070"))
    await refuse_duplicate_name(store, me("http://two:7070"), gone_ms=100)
