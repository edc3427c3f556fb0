"""Standby: what a server that does not lead notices of a failover of the database."""

from __future__ import annotations

from rota.engine.limits import ENGINE_LIMITS
from rota.engine.standby import Standby
from rota.store.protocol import Loss, Seq
from rota.store.sqlite.memory import MemoryStore
from tests.engine.clocks import FakeClock
from tests.store.conformance import leading, put

KEPT = 10


async def test_a_server_that_led_says_which_of_its_records_are_lost_though_another_leads() -> None:
    store, clock = MemoryStore(), FakeClock()
    leader = await leading(store)
    await leader.append(put(1))
    dumped = store.journal.dump()
    standby = Standby(store, clock, KEPT, ENGINE_LIMITS)
    standby.lineage.note(store.journal.head())
    await leader.append(put(2))
    standby.lineage.note(store.journal.head())
    store.journal.restore(dumped)
    await (await leading(store)).append(put(3))
    await standby.keep_up(insist=False)
    assert (await store.journal.losses()).each == (Loss(clock.now(), 1, Seq(1)),)


async def test_a_follower_says_which_records_it_has_read_are_lost() -> None:
    store, clock = MemoryStore(), FakeClock()
    leader = await leading(store)
    standby = Standby(store, clock, KEPT, ENGINE_LIMITS)
    await standby.keep_up(insist=False)
    await leader.append(put(1))
    await standby.keep_up(insist=False)
    dumped = store.journal.dump()
    await leader.append(put(2))
    await standby.keep_up(insist=False)
    store.journal.restore(dumped)
    assert await standby.keep_up(insist=False) == 1
    assert (await store.journal.losses()).each == (Loss(clock.now(), 1, Seq(1)),)
