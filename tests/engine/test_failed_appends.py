"""Appends that fail or whose fate is unknown, and an engine that stops in the middle of one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.core.commands import Cancel, Key, Preloaded, Submit
from rota.core.model import JobId, JobState
from rota.core.outcome import JobsAccepted
from rota.engine.leadership import CellMember
from rota.engine.ports import UnavailableError
from rota.store.protocol import StoreError
from tests.core.asking import job
from tests.engine.rig import PATIENCE_S, Rig, running, settle, succeeded


def keyed(job_id: str, preloaded: Preloaded) -> Submit:
    """Makes a submission with an idempotency key."""
    return Submit(jobs=(job(job_id),), key=Key(key="k", fingerprint="f"), preloaded=preloaded)


async def test_a_failed_append_is_reported_to_its_callers_and_leaves_nothing() -> None:
    async with running() as rig:
        await rig.submit("before")
        rig.journal.inner.refuse_next_append()
        with pytest.raises(UnavailableError, match="the data disk is full"):
            await rig.submit("a", queue="new")
        await rig.until_ready()
        assert await rig.state("a") is None
        assert rig.engine.why(JobId("a")) is None
        assert [info.queue.name for info in rig.engine.queues()] == ["default"]
        assert rig.engine.why(JobId("before")) is not None
        await rig.submit("a")
        assert await rig.state("a") is JobState.QUEUED
        assert rig.metrics.reloads == {"StoreFullError": 1}
        assert rig.metrics.submitted() == 2


async def test_callers_are_asked_to_try_again_while_the_engine_reloads() -> None:
    async with running() as rig:
        rig.journal.load_errors = [StoreError("away"), StoreError("still away")]
        rig.journal.inner.leave_next_append_uncertain(written=False)
        with pytest.raises(UnavailableError):
            await rig.submit("a")
        assert not rig.engine.ready
        assert rig.engine.trouble == "reading the store"
        with pytest.raises(UnavailableError, match="reading the store"):
            await rig.submit("b")
        with pytest.raises(UnavailableError):
            rig.engine.queues()
        await rig.until_ready()
        assert rig.engine.trouble == ""
        await rig.submit("c")


async def test_a_load_that_fails_with_an_unexpected_error_is_tried_again() -> None:
    async with running() as rig:
        rig.journal.load_errors = [RuntimeError("a bug")]
        rig.journal.inner.leave_next_append_uncertain(written=False)
        with pytest.raises(UnavailableError):
            await rig.submit("a")
        await rig.until_ready()
        await rig.submit("b")
        assert await rig.state("b") is JobState.QUEUED


@pytest.mark.parametrize("written", [True, False])
async def test_memory_is_what_the_journal_says_after_an_append_of_unknown_fate(
    *, written: bool
) -> None:
    async with running() as rig:
        rig.journal.inner.leave_next_append_uncertain(written=written)
        with pytest.raises(UnavailableError):
            await rig.engine.post(keyed("a", await rig.recall("k")))
        await rig.until_ready()
        assert await rig.state("a") is (JobState.QUEUED if written else None)
        again = await rig.engine.post(keyed("b", await rig.recall("k")))
        assert isinstance(again, JobsAccepted)
        assert again.job_ids == (("a",) if written else ("b",))
        assert len(await rig.store.queries.jobs([JobId("a"), JobId("b")])) == 1


@pytest.mark.parametrize("written", [True, False])
async def test_a_worker_whose_answer_was_lost_with_the_append_gets_its_order(
    *, written: bool
) -> None:
    async with running() as rig:
        await rig.register()
        await rig.submit("a")
        rig.journal.inner.leave_next_append_uncertain(written=written)
        with pytest.raises(UnavailableError):
            await rig.poll(executions=())
        await rig.until_ready()
        answer = await rig.poll(executions=())
        assert [order.execution.fence for order in answer.orders] == [1]
        await rig.poll(completed=(succeeded(answer.orders[0]),), wait_ms=0)
        assert await rig.state("a") is JobState.SUCCEEDED


async def test_every_waiting_caller_gets_the_error_of_a_failed_append() -> None:
    async with running() as rig:
        await rig.register()
        poll = rig.poll()
        await settle()
        rig.journal.shut()
        rig.journal.inner.leave_next_append_uncertain(written=False)
        callers = [asyncio.create_task(rig.submit("a", cpu=64))]
        await rig.journal.reached()
        callers += [asyncio.create_task(rig.submit(f"j{n}")) for n in range(3)]
        await settle()
        rig.journal.let_go()
        answered = await asyncio.gather(poll, *callers, return_exceptions=True)
        assert [type(one) for one in answered] == [UnavailableError] * 5
        await rig.until_ready()
        assert await rig.state("j0") is None


async def test_a_failed_append_leaves_no_exception_that_is_never_retrieved() -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with running() as rig:
        await rig.register()
        rig.journal.inner.leave_next_append_uncertain(written=False)
        await rig.engine.journal_notifier.wait_beyond(0)
        poll, caller = rig.poll(), asyncio.create_task(rig.submit("a"))
        await asyncio.gather(poll, caller, return_exceptions=True)
        del poll, caller
        await rig.until_ready()
    await settle()
    assert errors == []


async def test_an_engine_notices_another_leader_before_it_answers_anything() -> None:
    async with running() as rig:
        await rig.submit("a")
        epoch = rig.engine.epoch
        await rig.store.journal.claim("node-2")
        with pytest.raises(UnavailableError):
            await rig.submit("b")
        await rig.until_ready()
        assert rig.engine.epoch > epoch + 1
        assert await rig.state("b") is None
        assert rig.metrics.reloads == {"FencedError": 1}


async def test_a_broken_invariant_drops_memory_and_the_engine_goes_on() -> None:
    async with running() as rig:
        await rig.submit("a")
        without_preloaded = Cancel(job_id=JobId("a"), key=Key(key="k", fingerprint="f"))
        with pytest.raises(UnavailableError):
            await rig.engine.post(without_preloaded)
        await rig.until_ready()
        assert rig.metrics.reloads == {"AssertionError": 1}
        assert rig.engine.why(JobId("a")) is not None


async def test_an_engine_that_stops_finishes_its_turn_and_answers_every_caller() -> None:
    rig = Rig()
    await rig.engine.start()
    await rig.register()
    poll = rig.poll()
    await settle()
    rig.journal.shut()
    under_way = asyncio.create_task(rig.submit("a", cpu=64))
    await rig.journal.reached()
    too_late = asyncio.create_task(rig.submit("b"))
    await settle()
    stopping = asyncio.create_task(rig.engine.stop())
    await settle()
    assert not stopping.done()
    rig.journal.let_go()
    await asyncio.wait_for(stopping, PATIENCE_S)
    assert isinstance(await under_way, JobsAccepted)
    for waiting in (poll, too_late):
        with pytest.raises(UnavailableError, match="stopping"):
            await waiting
    with pytest.raises(UnavailableError, match="stopping"):
        await rig.submit("c")
    assert await rig.state("a") is JobState.QUEUED
    assert await rig.state("b") is None


async def test_an_engine_that_has_not_started_refuses_and_says_so() -> None:
    rig = Rig()
    assert not rig.engine.ready
    with pytest.raises(UnavailableError, match="not ready: starting"):
        await rig.submit("a")


async def test_an_engine_that_stops_does_not_wait_for_a_store_that_is_away() -> None:
    rig = Rig()
    await rig.engine.start()
    rig.journal.load_errors = [StoreError("away")] * 1_000
    rig.journal.inner.leave_next_append_uncertain(written=False)
    with pytest.raises(UnavailableError):
        await rig.submit("a")
    await asyncio.wait_for(rig.engine.stop(), PATIENCE_S)
    assert not rig.engine.ready


async def test_the_next_engine_on_the_same_store_knows_everything_that_was_answered() -> None:
    async with running() as rig:
        await rig.register()
        await rig.submit("a")
        await rig.submit("b", after=["a"])
        answer = await rig.poll()
    later = Rig(rig.clock, rig.store, CellMember(node="node-2"))
    await later.engine.start()
    assert later.metrics.submitted() == 2
    await later.poll(completed=(succeeded(answer.orders[0]),), wait_ms=0)
    assert await later.state("b") is JobState.RUNNING
    await later.engine.stop()
