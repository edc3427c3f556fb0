"""When a server takes the leader's seat: by silence, by an ended connection, by what others see."""

from __future__ import annotations

from msgspec.structs import replace

from rota.engine.leadership import CellMember, LeaderElection
from rota.store.protocol import LeaderRow
from rota.store.sqlite.memory import MemoryJournalStore
from tests.engine.clocks import FakeClock

TTL_MS = 3_000


class Database(MemoryJournalStore):
    """One that knows whose connection is there, as PostgreSQL does."""

    present: bool | None = True

    async def observe(self) -> LeaderRow | None:
        """The row, with what is known of the holder's connection."""
        row = await super().observe()
        return row and replace(row, present=self.present)


class Two:
    """A leader, and a server that watches it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.database = Database()
        self.leader = self._election("leader")
        self.other = self._election("other")

    def _election(self, node: str) -> LeaderElection:
        return LeaderElection(self.database, self.clock, CellMember(node=node, ttl_ms=TTL_MS))

    async def begin(self) -> None:
        """The first one leads, and the other has seen it."""
        await self.leader.take()
        await self.other.look()

    async def is_free_after(self, ms: int) -> bool:
        """What the other one thinks then."""
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


async def test_a_leader_that_has_another_connection_in_time_is_left_alone() -> None:
    two = Two()
    await two.begin()
    two.database.present = False
    assert not await two.is_free_after(150)
    two.database.present = True
    assert not await two.is_free_after(200)
    two.database.present = False
    assert not await two.is_free_after(200)


async def test_a_leader_that_never_showed_a_connection_is_judged_by_its_silence() -> None:
    """An older program, or one behind a pooler."""
    for nothing in (False, None):
        two = Two()
        two.database.present = nothing
        await two.begin()
        assert not await two.is_free_after(TTL_MS - 1)
        assert await two.is_free_after(1)


async def test_a_leader_that_is_silent_to_everybody_is_replaced_in_a_third_of_the_ttl() -> None:
    two = Two()
    await two.begin()
    two.other.suspected = two.leader.epoch
    assert not await two.is_free_after(TTL_MS // 3 - 1)
    assert await two.is_free_after(1)


async def test_a_leader_that_renews_goes_on_leading_though_one_server_cannot_reach_it() -> None:
    two = Two()
    await two.begin()
    two.other.suspected = two.leader.epoch
    for _ in range(8):
        await two.leader.renew()
        assert not await two.is_free_after(TTL_MS // 4)


async def test_a_leader_not_reached_in_another_epoch_is_not_suspected_in_this_one() -> None:
    two = Two()
    await two.begin()
    two.other.suspected = two.leader.epoch - 1
    assert not await two.is_free_after(TTL_MS - 1)


async def test_a_server_that_starts_again_does_not_wait_for_itself() -> None:
    two = Two()
    await two.begin()
    again = LeaderElection(two.database, two.clock, CellMember(node="leader", ttl_ms=TTL_MS))
    await again.look()
    assert again.is_free
    assert not two.other.is_free


async def test_who_stands_aside_lets_others_be_first_but_not_for_ever() -> None:
    two = Two()
    await two.begin()
    await two.leader.step_aside()
    await two.leader.look()
    assert not two.leader.is_free
    assert await two.is_free_after(0)
    two.clock.pass_by(TTL_MS)
    assert two.leader.is_free
