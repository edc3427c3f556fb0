"""Membership of a cell, the durability of its database, and requests accepted twice."""

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


def test_a_follower_is_behind_since_it_first_saw_a_record_that_it_lacks() -> None:
    meter = LagMeter()
    assert meter.measure(end=10, own=10, now=0) == 0
    assert meter.measure(end=12, own=10, now=1_000) == 0
    assert meter.measure(end=15, own=10, now=2_000) == 1_000
    assert meter.measure(end=15, own=12, now=3_000) == 1_000
    assert meter.measure(end=15, own=15, now=4_000) == 0


async def test_a_follower_announces_how_far_behind_it_is_and_a_leader_that_it_leads() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        second = await it.join("b")
        members = [
            Membership(it.store, rig.engine, Node(node=rig.engine.node, version="1"))
            for rig in (first, second)
        ]
        await first.submit("x")
        seq = first.engine.standing().seq
        second.journal.is_away = True
        for one in members:
            await one.announce()
        behind = members[1].announced.behind_records
        assert (members[0].announced.leads, members[0].announced.behind_records) == (True, 0)
        assert (members[1].announced.leads, members[1].announced.seq + behind) == (False, seq)
        second.journal.is_away = False
        await until(lambda: second.engine.standing().seq == seq)
        await members[1].announce()
        assert members[1].announced.behind_records == 0
        assert [seen.announced.node for seen in await members[0].all_nodes()] == ["a", "b"]


class Database(MemoryStore):
    """Store whose durability a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Durability(DurabilityLevel.SYNC_HA)
        self.is_away = False

    async def durability(self) -> Durability:
        if self.is_away:
            raise StoreError("away")
        return self.found


async def test_a_server_logs_that_durability_drops_and_refuses_jobs_below_the_required_level() -> (
    None
):
    store = Database()
    monitor = DurabilityMonitor(store, DurabilityLevel.SYNC_HA)
    await monitor.look()
    assert (monitor.level, monitor.refusal) == (DurabilityLevel.SYNC_HA, "")
    store.found = Durability(DurabilityLevel.ASYNC_HA, ("one standby is left",))
    with structlog.testing.capture_logs() as logs:
        await monitor.look()
        await monitor.look()
    assert [(one["event"], one["log_level"]) for one in logs] == [
        ("durability_dropped", "warning"),
        ("durability_at_risk", "warning"),
    ]
    assert "durability is async-ha" in monitor.refusal
    store.found = Durability(DurabilityLevel.SYNC_HA)
    await monitor.look()
    assert monitor.refusal == ""


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
async def test_jobs_are_accepted_at_the_required_durability_and_above(
    required: str, level: str, *, is_accepted: bool
) -> None:
    store = Database()
    store.found = Durability(DurabilityLevel(level))
    monitor = DurabilityMonitor(store, DurabilityLevel(required))
    await monitor.look()
    assert (monitor.refusal == "") is is_accepted


@pytest.mark.parametrize("tables_know", [True, False])
async def test_a_request_accepted_twice_runs_once_and_the_promised_ids_say_where_to_look(
    *, tables_know: bool
) -> None:
    """Once by the last leader and once by the next one; the tables may lag behind."""
    async with cell() as it:
        queries, lags = it.store.queries, [not tables_know]

        async def key(key: str) -> KeyRecord | None:
            return None if any(lags) else await queries.key(key)

        it.store.queries = stand_in(queries, key=key)
        first = await leading(await it.join("a"))
        recall = Preloaded(at=it.clock.now())
        await first.engine.post(Submit(jobs=(job("late"),), key=KEY, preloaded=recall))
        promised = Submit(jobs=(job("promised"),), key=KEY)
        await it.store.journal.put_inbox(encode_submission(promised), "k")
        await until(lambda: not it.store.journal.inbox_size)
        record = await first.record("promised")
        assert record is not None
        assert (record.life.state, record.life.reason) == (JobState.SKIPPED, "duplicate")
        assert b"accepted before, as late" in (record.life.error or b"")
        assert await first.state("late") is JobState.QUEUED
        it.clock.pass_by(1)
        with pytest.raises(Conflict, match="duplicate of another job"):
            await first.engine.post(
                Retry(job_id=record.id, preloaded=Preloaded(at=it.clock.now(), jobs=(record,)))
            )
        lags.clear()
        again = await first.engine.post(
            Submit(jobs=(job("z"),), key=KEY, preloaded=await first.recall("k"))
        )
        assert isinstance(again, JobsAccepted)
        assert again.job_ids == ("late",)
