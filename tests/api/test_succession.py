"""Callers that wait for a leader's answer are told of the next leader; nothing is checked while
none waits."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.api.cluster.succession import Succession
from rota.engine.ports import LeadershipStatus
from tests.engine.rig import until


class Servers:
    """Stub engine that knows who leads, and counts how often it is asked."""

    def __init__(self) -> None:
        self.leader = "a"
        self.epoch = 1
        self.asked = 0

    def elect(self, leader: str) -> None:
        self.leader, self.epoch = leader, self.epoch + 1

    def standing(self) -> LeadershipStatus:
        self.asked += 1
        return LeadershipStatus(*(False, self.leader, f"http://{self.leader}", self.epoch, 0))


def watching(servers: Any, changes: list[int]) -> Succession:
    return Succession(servers, lambda: changes.append(servers.epoch), look_s=0.001)


async def test_waiters_are_told_that_another_leads_and_later_ones_wait_for_the_next() -> None:
    servers, changes = Servers(), []
    it = watching(servers, changes)
    with it.watched():
        waits = it.changed
        servers.elect("b")
        await asyncio.wait_for(waits.wait(), 5)
        assert changes == [2]
        assert not it.changed.is_set()
    await it.stop()


async def test_a_change_of_leader_before_the_first_waiter_does_not_wake_it() -> None:
    servers, changes = Servers(), []
    it = watching(servers, changes)
    servers.elect("b")
    with it.watched():
        assert changes == [2]
        begun = servers.asked
        await until(lambda: servers.asked > begun + 2)
        assert not it.changed.is_set()
    await it.stop()


async def test_the_leader_is_checked_only_while_somebody_waits() -> None:
    servers = Servers()
    it = watching(servers, [])
    await asyncio.sleep(0.02)
    assert servers.asked == 1
    with it.watched():
        with it.watched():
            pass
        await until(lambda: servers.asked > 5)
    await asyncio.sleep(0.01)  # the look that was under way
    asked = servers.asked
    await asyncio.sleep(0.02)
    assert servers.asked == asked
    await it.stop()
