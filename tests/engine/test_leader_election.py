"""Leader election: take-over after silence, a lost connection or reports of other servers."""

from __future__ import annotations

from msgspec.structs import replace

from rota.engine.leadership import CellMember, LeaderElection
from rota.store.protocol import LeaderRow
from rota.store.sqlite.memory import MemoryJournalStore
from tests.engine.clocks import FakeClock

TTL_MS = 3_000


class Database(MemoryJournalStore):
    """Journal store that knows whether the leader is connected, as PostgreSQL does."""

    present: bool | None = True

    async def observe(self) -> LeaderRow | None:
        row = await super().observe()
        return row and replace(row, present=self.present)


class Two:
    """Leader, and a second server that watches it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.database = Database()
        self.leader = self._election("leader")
        self.other = self._election("other")

    def _election(self, node: str) -> LeaderElection:
        return LeaderElection(self.database, self.clock, CellMember(node=node, ttl_ms=TTL_MS))

    async def begin(self) -> None:
        """Makes the first server lead, and the other one see it."""
        await self.leader.take()
        await self.other.look()

    async def is_free_after(self, ms: int) -> bool:
        """Whether the other server would take over after so long."""
        self.clock.pass_by(ms)
        await self.other.look()
        return self.other.is_free


async def test_a_leader_whose_connection_has_ended_is_replaced_long_before_the_ttl() -> None:
    two = Two()
    await two.begin()
    two.database.present = False
    assert not await two.is_free_after(150)
    assert not await two.is_free_after(TTL_MS // 10)
    assert await two.is_free_after(50)
    assert two.other.leader is None
    await two.other.take()
    assert two.other.trusted


async def test_a_leader_that_connects_again_in_time_keeps_leading() -> None:
    two = Two()
    await two.begin()
    two.database.present = False
    assert not await two.is_free_after(150)
    two.database.present = True
    assert not await two.is_free_after(200)
    two.database.present = False
    assert not await two.is_free_after(200)


async def test_a_leader_that_never_showed_a_connection_is_judged_by_its_silence() -> None:
    """So it is with an older program, and with one behind a connection pooler."""
    for nothing in (False, None):
        two = Two()
        two.database.present = nothing
        await two.begin()
        assert not await two.is_free_after(TTL_MS - 1)
        assert await two.is_free_after(1)


async def test_a_leader_that_no_server_reaches_is_replaced_in_a_third_of_the_ttl() -> None:
    two = Two()
    await two.begin()
    two.other.suspected = two.leader.epoch
    assert not await two.is_free_after(TTL_MS // 3 - 1)
    assert await two.is_free_after(1)


async def test_a_leader_that_renews_keeps_leading_though_one_server_cannot_reach_it() -> None:
    two = Two()
    await two.begin()
    two.other.suspected = two.leader.epoch
    for _ in range(8):
        await two.leader.renew()
        assert not await two.is_free_after(TTL_MS // 4)


async def test_a_leader_not_reached_in_an_earlier_epoch_is_not_suspected_in_this_one() -> None:
    two = Two()
    await two.begin()
    two.other.suspected = two.leader.epoch - 1
    assert not await two.is_free_after(TTL_MS - 1)


async def test_a_server_that_starts_again_claims_its_own_leadership_at_once() -> None:
    two = Two()
    await two.begin()
    again = LeaderElection(two.database, two.clock, CellMember(node="leader", ttl_ms=TTL_MS))
    await again.look()
    assert again.is_free
    assert not two.other.is_free


async def test_a_leader_that_steps_aside_lets_others_be_first_for_one_ttl() -> None:
    two = Two()
    await two.begin()
    await two.leader.step_aside()
    await two.leader.look()
    assert not two.leader.is_free
    assert await two.is_free_after(0)
    two.clock.pass_by(TTL_MS)
    assert two.leader.is_free
