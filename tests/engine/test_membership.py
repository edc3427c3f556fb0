"""What a server knows of the others and of the database, and what becomes of promises."""

from __future__ import annotations

import pytest
import structlog

from rota.core.commands import Key, Preloaded, Retry, Submit
from rota.core.errors import Conflict
from rota.core.model import JobState, KeyRecord
from rota.core.outcome import JobsAccepted
from rota.engine.durability import DurabilityMonitor
from rota.engine.inbox import encode_submission
from rota.engine.membership import LagMeter, Membership
from rota.store.documents import Node
from rota.store.protocol import Durability, DurabilityLevel, StoreError
from rota.store.sqlite.memory import MemoryStore
from tests.core.asking import job
from tests.engine.rig import until
from tests.engine.test_leadership import cell, leading
from tests.stand_in import stand_in

KEY = Key(key="k", fingerprint="f")


def test_a_follower_is_behind_since_the_end_it_lacks_was_first_seen() -> None:
    meter = LagMeter()
    assert meter.measure(end=10, own=10, now=0) == 0
    assert meter.measure(end=12, own=10, now=1_000) == 0
    assert meter.measure(end=15, own=10, now=2_000) == 1_000
    assert meter.measure(end=15, own=12, now=3_000) == 1_000
    assert meter.measure(end=15, own=15, now=4_000) == 0


async def test_a_follower_says_how_far_behind_it_is_and_a_leader_that_it_leads() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        second = await it.join("b")
        told = [
            Membership(it.store, rig.engine, Node(node=rig.engine.node, version="1"))
            for rig in (first, second)
        ]
        await first.submit("x")
        seq = first.engine.standing().seq
        second.ledger.is_away = True
        for one in told:
            await one.announce()
        behind = told[1].announced.behind_records
        assert (told[0].announced.leads, told[0].announced.behind_records) == (True, 0)
        assert (told[1].announced.leads, told[1].announced.seq + behind) == (False, seq)
        second.ledger.is_away = False
        await until(lambda: second.engine.standing().seq == seq)
        await told[1].announce()
        assert told[1].announced.behind_records == 0
        assert [seen.announced.node for seen in await told[0].all_nodes()] == ["a", "b"]


class Database(MemoryStore):
    """Its worth is what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.worth = Durability(DurabilityLevel.SYNC_HA)
        self.is_away = False

    async def durability(self) -> Durability:
        if self.is_away:
            raise StoreError("away")
        return self.worth


async def test_a_durability_that_drops_is_said_and_refuses_what_asked_for_more() -> None:
    store = Database()
    assurance = DurabilityMonitor(store, DurabilityLevel.SYNC_HA)
    await assurance.look()
    assert (assurance.level, assurance.refusal) == (DurabilityLevel.SYNC_HA, "")
    store.worth = Durability(DurabilityLevel.ASYNC_HA, ("one standby is left",))
    with structlog.testing.capture_logs() as logs:
        await assurance.look()
        await assurance.look()
    assert [(one["event"], one["log_level"]) for one in logs] == [
        ("durability_dropped", "warning"),
        ("durability_at_risk", "warning"),
    ]
    assert "durability is async-ha" in assurance.refusal
    store.worth = Durability(DurabilityLevel.SYNC_HA)
    await assurance.look()
    assert assurance.refusal == ""


@pytest.mark.parametrize(
    ("required", "level", "is_accepted"),
    [
        ("single", "single", True),
        ("single", "sync-ha", True),
        ("async-ha", "single", False),
        ("async-ha", "async-ha", True),
        ("sync-ha", "async-ha", False),
    ],
)
async def test_what_is_accepted_at_which_level(
    required: str, level: str, *, is_accepted: bool
) -> None:
    store = Database()
    store.worth = Durability(DurabilityLevel(level))
    assurance = DurabilityMonitor(store, DurabilityLevel(required))
    await assurance.look()
    assert (assurance.refusal == "") is is_accepted


@pytest.mark.parametrize("tables_know", [True, False])
async def test_a_request_accepted_twice_runs_once_and_the_promised_ids_say_where_to_look(
    *, tables_know: bool
) -> None:
    """Once by a leader that was going, and once for the next one; the tables may lag behind."""
    async with cell() as it:
        catalog, lags = it.store.catalog, [not tables_know]

        async def key(key: str) -> KeyRecord | None:
            return None if any(lags) else await catalog.key(key)

        it.store.catalog = stand_in(catalog, key=key)
        first = await leading(await it.join("a"))
        recall = Preloaded(at=it.clock.now())
        await first.engine.post(Submit(jobs=(job("late"),), key=KEY, preloaded=recall))
        promised = Submit(jobs=(job("promised"),), key=KEY)
        await it.store.ledger.put_inbox(encode_submission(promised), "k")
        await until(lambda: not it.store.ledger.inbox_size)
        record = await first.record("promised")
        assert record is not None
        assert (record.life.state, record.life.reason) == (JobState.SKIPPED, "duplicate")
        assert b"accepted before, as late" in (record.life.error or b"")
        assert await first.state("late") is JobState.QUEUED
        it.clock.pass_by(1)
        with pytest.raises(Conflict, match="second id"):
            await first.engine.post(
                Retry(job_id=record.id, preloaded=Preloaded(at=it.clock.now(), jobs=(record,)))
            )
        lags.clear()
        again = await first.engine.post(
            Submit(jobs=(job("z"),), key=KEY, preloaded=await first.recall("k"))
        )
        assert isinstance(again, JobsAccepted)
        assert again.job_ids == ("late",)


async def test_a_leader_tells_of_itself_without_asking_where_its_own_journal_ends() -> None:
    async with cell() as it:
        leader = await leading(await it.join("a"))
        follower = await it.join("b")
        asked: list[bool] = []

        async def head() -> tuple[int, int]:
            asked.append(True)
            return await it.store.catalog.head()

        noted = stand_in(it.store, catalog=stand_in(it.store.catalog, head=head))
        presences = [
            Membership(noted, rig.engine, Node(node=rig.engine.node)) for rig in (leader, follower)
        ]
        await presences[0].announce()
        assert (asked, presences[0].announced.leads) == ([], True)
        await presences[1].announce()
        assert (asked, presences[1].announced.leads) == ([True], False)
