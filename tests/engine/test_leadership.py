"""Leadership among several servers on one store: take-over, standby, and a leader that lost it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rota.core.commands import Key, MemoryWindow, NewJob, Preloaded, Reject, Submit
from rota.core.model import JobId, JobState, Life
from rota.core.outcome import PutJob
from rota.engine.inbox import encode_submission
from rota.engine.leadership import CellMember
from rota.engine.limits import EngineLimits
from rota.engine.ports import UnavailableError
from rota.engine.standby import build_scheduler
from rota.store.journal import encode_record
from rota.store.protocol import Epoch
from rota.store.sqlite.memory import MemoryStore
from tests.core.asking import job
from tests.engine.clocks import FakeClock
from tests.engine.rig import PATIENCE_S, Rig, settle, succeeded, until
from tests.stand_in import stand_in

TTL_MS = 3_000


def no_specs(body: bytes) -> Submit | Reject:
    """Fails: no test leaves a JSON submission."""
    raise AssertionError(body)


class Cell:
    """Servers that share a store and a clock."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = FakeClock()
        self.rigs: list[Rig] = []

    async def join(self, node: str, window: MemoryWindow | None = None, **limits: Any) -> Rig:
        """Starts one more server."""
        member = CellMember(node=node, address=f"http://{node}", ttl_ms=TTL_MS)
        rig = Rig(self.clock, self.store, member, window, EngineLimits(**limits))
        rig.fake_clock = self.clock
        self.rigs.append(rig)
        await rig.engine.start(no_specs)
        return rig

    async def silence(self, ms: int = TTL_MS) -> None:
        """Lets time pass without a renewal, after a moment in which all servers read the row."""
        await asyncio.sleep(0.01)
        self.clock.pass_by(ms)


@asynccontextmanager
async def cell() -> AsyncIterator[Cell]:
    """Makes a cell, and stops all its servers in the end."""
    it = Cell()
    try:
        yield it
    finally:
        for rig in it.rigs:
            rig.journal.is_away = False
            rig.journal.let_go()
            await asyncio.wait_for(rig.engine.stop(), PATIENCE_S)


async def leading(rig: Rig) -> Rig:
    await until(lambda: rig.engine.ready)
    return rig


async def drain(rig: Rig, count: int) -> list[str]:
    """Runs so many jobs on a worker; returns their ids in the order in which they started."""
    started: list[str] = []
    while len(started) < count:
        orders = (await rig.poll(executions=())).orders
        started += [order.execution.job_id for order in orders]
        done = tuple(succeeded(order) for order in orders)
        await rig.poll(completed=done, wait_ms=0, executions=(), max_orders=0)
    return started


async def test_the_first_server_leads_and_the_next_stands_by() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        second = await it.join("b")
        assert not second.engine.ready
        standing = second.engine.standing()
        assert (standing.leads, standing.leader, standing.address) == (False, "a", "http://a")
        assert first.engine.standing().leader == "a"
        with pytest.raises(UnavailableError):
            await second.submit("x")


async def test_a_leader_that_does_not_renew_for_the_ttl_is_replaced() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.submit("x")
        second = await it.join("b")
        first.journal.is_away = True
        await it.silence()
        await leading(second)
        assert second.engine.epoch > Epoch(1)
        await second.submit("y")
        assert second.engine.why(JobId("x")) is not None
        assert second.metrics.submitted() == 2


async def test_a_leader_that_cannot_renew_stops_answering_before_another_may_lead() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        second = await it.join("b")
        first.journal.is_away = True
        it.clock.pass_by(TTL_MS * 95 // 100)
        assert not first.engine.ready
        with pytest.raises(UnavailableError):
            await first.submit("x")
        with pytest.raises(UnavailableError):
            first.engine.queues()
        assert not second.engine.ready


async def test_a_record_under_way_when_trust_ends_counts_but_its_caller_gets_an_error() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        first.journal.shut()
        asking = asyncio.create_task(first.submit("x"))
        await first.journal.reached()
        it.clock.pass_by(TTL_MS)
        first.journal.let_go()
        with pytest.raises(UnavailableError):
            await asking
        assert await first.state("x") is JobState.QUEUED


def turn_takes(rig: Rig, clock: FakeClock, ms: int) -> None:
    """Makes every turn of this server last so long."""
    scheduler = rig.engine._scheduler
    assert scheduler is not None

    def turn(events: Any, now: Any) -> Any:
        clock.pass_by(ms)
        return scheduler.turn(events, now)

    rig.engine._scheduler = stand_in(scheduler, turn=turn)


async def test_a_turn_that_outlasts_the_trust_is_answered_once_leadership_is_renewed() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        turn_takes(first, it.clock, TTL_MS * 95 // 100)
        await first.submit("x")
        assert first.engine.epoch == Epoch(1)
        assert await first.state("x") is JobState.QUEUED


async def test_a_turn_during_which_another_server_took_over_is_void() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        second = await it.join("b")
        turn_takes(first, it.clock, TTL_MS)
        first.journal.may_claim = False
        row = await it.store.journal.observe()
        await it.store.journal.claim("b", row)
        with pytest.raises(UnavailableError):
            await first.submit("x")
        await leading(second)
        assert await second.store.queries.jobs([JobId("x")]) == []


async def test_a_leader_that_renews_before_another_took_over_goes_on_without_a_reload() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.submit("x")
        loads = first.journal.loads
        it.clock.pass_by(TTL_MS)
        assert not first.engine.ready
        await leading(first)
        assert first.journal.loads == loads
        assert first.engine.epoch == 1
        await first.submit("y")


async def test_leases_are_extended_by_the_time_that_the_store_was_away() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.register()
        await first.submit("x")
        (order,) = (await first.poll()).orders
        first.journal.is_away = True
        it.clock.pass_by(first.engine.timing.lease_ttl_ms)
        await asyncio.sleep(0.02)
        it.clock.pass_by(first.engine.timing.lease_ttl_ms)
        first.journal.is_away = False
        await leading(first)
        answer = await first.poll(completed=(succeeded(order),), wait_ms=0)
        assert answer.lost == ()
        assert await first.state("x") is JobState.SUCCEEDED


async def test_a_leader_that_lost_leadership_commits_nothing_and_follows() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        second = await it.join("b")
        first.journal.shut()
        asking = asyncio.create_task(first.submit("x"))
        await first.journal.reached()
        first.journal.is_away = True
        await it.silence()
        await leading(second)
        await second.submit("y")
        first.journal.is_away = False
        first.journal.let_go()
        with pytest.raises(UnavailableError):
            await asking
        await until(lambda: first.engine.standing().leader == "b")
        assert await second.state("x") is None
        assert await second.state("y") is JobState.QUEUED
        assert not first.engine.ready


async def test_a_new_leader_reads_a_record_that_lands_after_its_claim_before_it_decides() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.submit("x")
        seq = first.engine.standing().seq
        second = await it.join("b")
        first.journal.is_away = True
        second.journal.shut()
        await it.silence()
        await second.journal.reached()
        # The old leader's record takes the sequence number of the new one's first record.
        new = job("late")
        late = PutJob(new.id, new.spec, Life(JobState.QUEUED))
        it.store.journal.land_late(Epoch(1), it.clock.now(), encode_record([late]))
        second.journal.let_go()
        await leading(second)
        assert second.engine.why(JobId("late")) is not None
        assert second.engine.standing().seq == seq + 2


async def test_the_next_server_leads_at_once_when_the_leader_stops_cleanly() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.submit("x")
        second = await it.join("b")
        loads = second.journal.loads
        await first.engine.stop()
        await leading(second)  # the clock has not moved
        assert second.journal.loads == loads
        assert second.engine.why(JobId("x")) is not None


async def test_a_new_leader_runs_a_spilled_backlog_in_its_order() -> None:
    async with cell() as it:
        small = MemoryWindow(jobs=5, fifo_group=2, refill=3)
        first = await leading(await it.join("a", small))
        names = [f"j{number:02}" for number in range(20)]
        for name in names[:10]:
            await first.submit(name)
        second = await it.join("b", small)
        for name in names[10:]:
            await first.submit(name)
        await until(lambda: second.engine.standing().seq == first.engine.standing().seq)
        first.journal.is_away = True
        await it.silence()
        await leading(second)
        await second.register()
        assert await drain(second, len(names)) == names
        assert second.metrics.submitted() == len(names)


async def test_a_follower_keeps_a_copy_again_when_no_job_is_spilled() -> None:
    async with cell() as it:
        small = MemoryWindow(jobs=2, fifo_group=1, refill=2)
        first = await leading(await it.join("a", small, cold_ms=0))
        for number in range(6):
            await first.submit(f"j{number}")
        second = await it.join("b", small, cold_ms=0)
        await first.register()
        await drain(first, 6)
        await first.submit("x")
        await until(lambda: second.engine.standing().seq == first.engine.standing().seq)
        loads = second.journal.loads
        await first.engine.stop()
        await leading(second)
        assert second.journal.loads == loads
        assert second.engine.why(JobId("x")) is not None


async def test_one_of_two_candidates_leads() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        others = [await it.join("b"), await it.join("c")]
        first.journal.is_away = True
        await it.silence()
        await until(lambda: any(rig.engine.ready for rig in others))
        await settle()
        assert sum(rig.engine.ready for rig in others) == 1


async def test_a_worker_keeps_its_executions_after_a_take_over() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.register()
        await first.submit("x")
        (order,) = (await first.poll()).orders
        second = await it.join("b")
        first.journal.is_away = True
        await it.silence()
        await leading(second)
        answer = await second.poll(completed=(succeeded(order),), wait_ms=0)
        assert answer.lost == ()
        assert await second.state("x") is JobState.SUCCEEDED


async def test_jobs_left_while_no_server_led_are_accepted_in_order_before_new_ones() -> None:
    async with cell() as it:
        for name in ("x", "y"):
            await it.store.journal.put_inbox(encode_submission(Submit(jobs=(job(name),))))
        first = await leading(await it.join("a"))
        x, y = await first.record("x"), await first.record("y")
        assert x is not None
        assert y is not None
        assert x.spec.arrival_number < y.spec.arrival_number
        assert await it.store.journal.take_inbox(10) == []


async def test_a_key_used_while_no_server_led_answers_repeats() -> None:
    async with cell() as it:
        key = Key(key="k", fingerprint="f")
        await it.store.journal.put_inbox(encode_submission(Submit(jobs=(job("x"),), key=key)))
        first = await leading(await it.join("a"))
        recall = Preloaded(at=it.clock.now(), key=await it.store.queries.key("k"))
        again = await first.engine.post(Submit(jobs=(job("z"),), key=key, preloaded=recall))
        assert getattr(again, "job_ids", None) == ("x",)
        assert await first.state("z") is None


async def test_a_promised_job_that_turns_out_to_be_invalid_fails_and_says_why() -> None:
    async with cell() as it:
        orphan: NewJob = job("x", after=["nobody"])
        await it.store.journal.put_inbox(encode_submission(Submit(jobs=(orphan,))))
        first = await leading(await it.join("a"))
        record = await first.record("x")
        assert record is not None
        assert (record.life.state, record.life.reason) == (JobState.FAILED, "invalid")
        assert b"no job nobody" in (record.life.error or b"")
        assert await it.store.journal.take_inbox(10) == []


async def test_an_inbox_entry_is_accepted_once_although_the_fate_of_its_record_was_unknown() -> (
    None
):
    async with cell() as it:
        await it.store.journal.put_inbox(encode_submission(Submit(jobs=(job("x"),))))
        first = await it.join("a")
        await leading(first)
        first.journal.inner.leave_next_append_uncertain(written=True)
        await it.store.journal.put_inbox(encode_submission(Submit(jobs=(job("y"),))))
        await until(lambda: bool(first.metrics.reloads))
        await leading(first)
        assert await first.state("y") is JobState.QUEUED
        assert first.metrics.submitted() == 2


async def test_a_server_that_takes_over_many_jobs_can_renew_leadership_meanwhile() -> None:
    async with cell() as it:
        first = await leading(await it.join("a"))
        await first.engine.post(Submit(jobs=tuple(job(f"j{n}") for n in range(5_000))))
        snapshot = await it.store.journal.load(0)
        building = asyncio.create_task(
            build_scheduler(snapshot, first.engine.timing, it.clock.now())
        )
        turns = 0
        while not building.done():
            turns += 1
            await asyncio.sleep(0.001)
        assert (await building).live_jobs() == 5_000
        assert turns > 1, "the event loop went on"
