"""Servers of two versions on one store: the older one follows as far as it can, and does not lead
while it cannot read the journal."""

from __future__ import annotations

import msgspec
import pytest

from rota.core.model import JobState
from rota.engine.ports import UnavailableError
from rota.store.protocol import Epoch
from rota.store.sqlite.memory import MemoryStore
from tests.engine.rig import Rig, settle, until
from tests.engine.test_leadership import Cell, cell, leading

NEWER = bytes([1]) + msgspec.msgpack.encode([["from tomorrow", 1]])


def write_newer(store: MemoryStore, epoch: Epoch) -> None:
    """Appends a record of a newer leader, which this program cannot read."""
    store.journal.land_late(epoch, 1, NEWER)


async def overtaken(it: Cell) -> tuple[Rig, Rig]:
    """Makes a leader of a newer program, and a follower that cannot read its record."""
    newer = await leading(await it.join("newer"))
    older = await it.join("older")
    write_newer(it.store, newer.engine.epoch)
    await until(lambda: "upgrade this one" in older.engine.trouble)
    return newer, older


async def test_an_older_follower_says_so_and_still_knows_who_leads() -> None:
    async with cell() as it:
        _, older = await overtaken(it)
        standing = older.engine.standing()
        assert (standing.leads, standing.leader) == (False, "newer")
        with pytest.raises(UnavailableError, match="upgrade this one"):
            await older.submit("job")


async def test_an_older_server_leaves_leadership_to_servers_that_can_read_the_journal() -> None:
    async with cell() as it:
        newer, older = await overtaken(it)
        newer.journal.is_away = True
        before = await it.store.journal.observe()
        for _ in range(5):
            await it.silence()
            await settle()
        assert await it.store.journal.observe() == before
        assert not older.engine.ready


async def test_a_server_that_is_started_behind_a_newer_one_runs_all_the_same() -> None:
    async with cell() as it:
        newer = await leading(await it.join("newer"))
        write_newer(it.store, newer.engine.epoch)
        older = await it.join("older")
        await until(lambda: "upgrade this one" in older.engine.trouble)
        assert older.engine.standing().leader == "newer"


async def test_an_older_server_can_lead_once_the_newer_ones_records_are_projected() -> None:
    async with cell() as it:
        newer, older = await overtaken(it)
        # The newer program has projected its record: what it says is in the tables.
        head = it.store.journal.head()
        it.store.journal.connection.execute(
            "UPDATE projection_shards SET folded_seq = ?, folded_hash = ?", (head.seq, head.hash)
        )
        it.store.journal.start_over()
        newer.journal.is_away = True
        await it.silence()
        await until(lambda: older.engine.ready)
        await older.submit("later")
        assert await older.state("later") is JobState.QUEUED
