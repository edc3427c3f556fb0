"""What leaves the engine, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rota.core.commands import Cancel, Heartbeat
from rota.core.errors import NotFound, Superseded
from rota.core.model import JobId, JobState, WorkerId
from rota.core.outcome import JobsAccepted, PollAnswer, PutJob
from rota.engine.clock import SystemClock
from rota.engine.ports import BusyError, UnavailableError
from rota.store.protocol import Seq
from tests.engine.rig import PATIENCE_S, Rig, running, settle, succeeded


class RecordingEncoder:
    """A clerk who keeps what is written and what leaves; `sees` is called as it does."""

    def __init__(self, sees: Callable[[], None] = lambda: None) -> None:
        self.written: list[PollAnswer] = []
        self.posted: list[PollAnswer] = []
        self._sees = sees

    def write(self, answer: PollAnswer) -> None:
        self.written.append(answer)

    def post(self, answer: PollAnswer) -> None:
        self.posted.append(answer)
        self._sees()


async def test_a_caller_is_answered_only_when_the_record_is_durable() -> None:
    async with running() as rig:
        rig.ledger.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.ledger.reached()
        await settle()
        assert not caller.done()
        assert await rig.state("a") is None
        rig.ledger.let_go()
        assert isinstance(await caller, JobsAccepted)
        assert await rig.state("a") is JobState.QUEUED


async def test_a_worker_gets_an_order_only_when_it_is_durable() -> None:
    async with running() as rig:
        await rig.register()
        poll = rig.poll()
        await settle()
        rig.ledger.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.ledger.reached()
        await settle()
        assert not poll.done()
        rig.ledger.let_go()
        answer = await poll
        assert [order.execution.job_id for order in answer.orders] == ["a"]
        await caller


async def test_the_store_is_told_of_a_turn_before_there_is_anything_to_append() -> None:
    async with running() as rig:
        await settle()
        rig.ledger.records.clear()
        rig.ledger.told_at.clear()
        await rig.submit("a")
        assert rig.ledger.told_at[:2] == [0, 0], "as the input comes, and as the turn begins"


async def test_an_answer_is_put_into_words_while_it_becomes_durable_and_given_after() -> None:
    async with running() as rig:
        await rig.register()
        clerk = RecordingEncoder()
        poll = rig.poll(clerk=clerk)
        await settle()
        assert not clerk.written
        rig.ledger.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.ledger.reached()
        await settle()
        (heard,) = clerk.written
        assert [order.execution.job_id for order in heard.orders] == ["a"]
        assert not poll.done()
        assert not clerk.posted
        rig.ledger.let_go()
        assert await poll is heard
        assert clerk.posted == [heard]
        await caller


async def test_what_is_in_words_leaves_before_anybody_is_told_and_before_it_is_counted() -> None:
    async with running() as rig:
        await rig.register()
        seen: list[tuple[bool, int]] = []
        clerk = RecordingEncoder(lambda: seen.append((poll.done(), rig.counts.submitted())))
        poll = rig.poll(clerk=clerk)
        await settle()
        await rig.submit("a")
        assert seen == [(False, 0)]
        assert poll.done()
        assert rig.counts.submitted() == 1


async def test_what_was_put_into_words_and_did_not_become_durable_is_not_given() -> None:
    async with running() as rig:
        await rig.register()
        clerk = RecordingEncoder()
        poll = rig.poll(clerk=clerk)
        await settle()
        rig.ledger.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.ledger.reached()
        await settle()
        assert len(clerk.written) == 1
        rig.ledger.is_away = True
        rig.ledger.let_go()
        for one in (poll, caller):
            with pytest.raises(UnavailableError):
                await one
        assert not clerk.posted
        rig.ledger.is_away = False


async def test_who_is_told_finds_itself_counted_and_goes_on_before_the_rest_is() -> None:
    async with running() as rig:
        await settle()
        appends = rig.counts.histograms()["append_seconds"]
        before = appends.buckets()[-1][1]
        await rig.submit("a")
        assert rig.counts.submitted() == 1
        assert rig.engine.journal_notifier.seq == rig.engine.standing().seq
        assert appends.buckets()[-1][1] == before
        await asyncio.sleep(0)
        assert appends.buckets()[-1][1] == before + 1


async def test_what_waits_to_be_decided_does_not_wait_for_those_who_were_told() -> None:
    async with running() as rig:
        rig.ledger.shut()
        records: list[int] = []

        async def first() -> None:
            await rig.submit("first")
            records.append(len(rig.ledger.records))

        callers = [asyncio.create_task(first())]
        await rig.ledger.reached()
        callers.append(asyncio.create_task(rig.submit("second")))  # type: ignore[arg-type]
        await settle()
        rig.ledger.let_go()
        await asyncio.gather(*callers)
        assert records == [2]


async def test_inputs_that_come_while_an_append_is_under_way_form_one_record() -> None:
    async with running() as rig:
        rig.ledger.shut()
        first = asyncio.create_task(rig.submit("first"))
        await rig.ledger.reached()
        others = [asyncio.create_task(rig.submit(f"j{n}")) for n in range(7)]
        await settle()
        assert len(rig.ledger.records) == 1
        rig.ledger.let_go()
        await asyncio.gather(first, *others)
        assert len(rig.ledger.records) == 2
        assert sum(isinstance(write, PutJob) for write in rig.ledger.records[1]) == 7


async def test_who_looks_at_memory_sees_what_is_durable_and_nothing_that_is_not() -> None:
    async with running() as rig:

        async def look() -> list[bool]:
            await rig.engine.settled()
            return [rig.engine.why(JobId(name)) is not None for name in ("a", "b")]

        assert await look() == [False, False]
        rig.ledger.shut()
        callers = [asyncio.create_task(rig.submit("a"))]
        await rig.ledger.reached()
        callers.append(asyncio.create_task(rig.submit("b")))
        looking = asyncio.create_task(look())
        await settle()
        assert not looking.done()
        rig.ledger.let_go()
        assert await looking == [True, False]
        await asyncio.gather(*callers)
        assert await look() == [True, True]


async def test_a_turn_is_not_endless() -> None:
    async with running(turn_weight_max=3) as rig:
        rig.ledger.shut()
        callers = [asyncio.create_task(rig.submit("first"))]
        await rig.ledger.reached()
        callers += [asyncio.create_task(rig.submit(f"j{n}")) for n in range(7)]
        await settle()
        rig.ledger.let_go()
        await asyncio.gather(*callers)
        sizes = [sum(isinstance(w, PutJob) for w in record) for record in rig.ledger.records]
        assert sizes == [1, 3, 3, 1]


async def test_reports_count_as_much_as_jobs_do() -> None:
    async with running(turn_weight_max=3) as rig:
        await rig.register()
        for name in ("a", "b"):
            await rig.submit(name)
        reports = tuple(succeeded(order) for order in (await rig.poll()).orders)
        assert 1 + len(reports) == 3
        rig.ledger.shut()
        first = asyncio.create_task(rig.submit("first"))
        await rig.ledger.reached()
        poll = rig.poll(completed=reports)
        last = asyncio.create_task(rig.submit("last"))
        await settle()
        rig.ledger.let_go()
        await asyncio.gather(first, poll, last)
        came = [sum(isinstance(w, PutJob) for w in record) for record in rig.ledger.records]
        assert came[-2:] == [0, 1], "the turn was full of reports"


async def test_what_changes_nothing_is_not_written() -> None:
    async with running() as rig:
        await rig.register()
        before = len(rig.ledger.records)
        await rig.engine.post(Heartbeat(worker_id=WorkerId("w1")))
        assert len(rig.ledger.records) == before


async def test_a_refusal_reaches_its_caller_and_nobody_else() -> None:
    async with running() as rig:
        rig.ledger.shut()
        callers: list[asyncio.Task[Any]] = [asyncio.create_task(rig.submit("first"))]
        await rig.ledger.reached()
        callers += [
            asyncio.create_task(rig.submit("a")),
            asyncio.create_task(rig.engine.post(Cancel(job_id=JobId("ghost")))),
            asyncio.create_task(rig.submit("b")),
        ]
        await settle()
        rig.ledger.let_go()
        _, a, refused, b = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(a, JobsAccepted)
        assert isinstance(refused, NotFound)
        assert isinstance(b, JobsAccepted)


async def test_a_full_inbox_asks_callers_to_slow_down() -> None:
    async with running(inbox_max=3) as rig:
        rig.ledger.shut()
        waiting = [asyncio.create_task(rig.submit("first"))]
        await rig.ledger.reached()
        waiting += [asyncio.create_task(rig.submit(f"j{n}")) for n in range(3)]
        await settle()
        with pytest.raises(BusyError, match="slow down"):
            await rig.submit("one-too-many")
        rig.ledger.let_go()
        await asyncio.gather(*waiting)
        await rig.submit("now-it-fits")


async def test_a_poll_whose_caller_goes_away_is_closed() -> None:
    async with running() as rig:
        await rig.register()
        poll = rig.poll()
        await settle()
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        await rig.submit("a")
        assert await rig.state("a") is JobState.QUEUED
        answer = await rig.poll()
        assert [order.execution.job_id for order in answer.orders] == ["a"]


async def test_a_poll_is_closed_even_while_the_inbox_is_full() -> None:
    async with running(inbox_max=1) as rig:
        await rig.register()
        poll = rig.poll()
        await settle()
        rig.ledger.shut()
        callers = [asyncio.create_task(rig.submit("first", queue="other", cpu=64))]
        await rig.ledger.reached()
        callers.append(asyncio.create_task(rig.submit("second", cpu=64)))
        await settle()
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        rig.ledger.let_go()
        await asyncio.gather(*callers)
        await rig.submit("a")
        assert await rig.state("a") is JobState.QUEUED


async def test_a_whole_life_takes_three_records() -> None:
    async with running() as rig:
        await rig.register()
        await rig.submit("a")
        before = len(rig.ledger.records)
        answer = await rig.poll()
        await rig.poll(completed=(succeeded(answer.orders[0]),), wait_ms=0)
        assert len(rig.ledger.records) - before == 2
        assert await rig.state("a") is JobState.SUCCEEDED


async def test_a_superseded_worker_hears_it_in_its_poll() -> None:
    async with running() as rig:
        await rig.register(session="old")
        poll = rig.poll()
        await settle()
        await rig.register(session="new")
        with pytest.raises(Superseded):
            await poll


async def test_watchers_are_woken_by_what_is_durable_and_by_nothing_else() -> None:
    async with running() as rig:
        at = rig.engine.journal_notifier.seq
        watcher = asyncio.create_task(rig.engine.journal_notifier.wait_beyond(at))
        with pytest.raises(NotFound):
            await rig.engine.post(Cancel(job_id=JobId("ghost")))
        await settle()
        assert not watcher.done()
        rig.ledger.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.ledger.reached()
        await settle()
        assert not watcher.done()
        rig.ledger.let_go()
        assert await watcher == at + 1
        await caller
        assert await rig.engine.journal_notifier.wait_beyond(at) == at + 1, (
            "one that is behind need not wait"
        )
        changes = await rig.store.catalog.changes_after(Seq(0), 10)
        assert [change.seq for change in changes] == [1, 1]


async def test_what_is_due_happens_by_itself() -> None:
    async with running(SystemClock()) as rig:
        await rig.submit("a", run_at=rig.clock.now() + 60)
        seq = rig.engine.journal_notifier.seq
        await asyncio.wait_for(rig.engine.journal_notifier.wait_beyond(seq), PATIENCE_S)
        assert await rig.state("a") is JobState.QUEUED


async def test_a_clock_that_is_set_costs_no_worker_its_lease() -> None:
    async with running() as rig:
        await rig.register()
        await rig.submit("a")
        await rig.poll()
        poll = rig.poll(executions=())
        await poll
        waiting = rig.poll(wait_ms=60_000)
        await settle()
        rig.hands.set_by(3_600_000)
        await rig.pass_by(10_000)
        assert await rig.state("a") is JobState.RUNNING
        assert not waiting.done()
        rig.hands.set_by(-3_600_000)
        await rig.pass_by(6_000)
        assert await rig.state("a") is JobState.RUNNING
        await rig.pass_by(2_000)
        assert await rig.state("a") is JobState.QUEUED
        await waiting


async def test_a_clock_that_only_drifts_is_not_taken_for_set() -> None:
    async with running() as rig:
        await rig.register()
        await rig.submit("a")
        await rig.poll()
        rig.hands.set_by(400)
        await rig.pass_by(16_700)
        assert await rig.state("a") is JobState.QUEUED, "a lease ends by the clock as it is"


async def test_the_figures_hear_of_every_turn() -> None:
    rig = Rig()
    await rig.engine.start()
    await rig.register()
    await rig.submit("a")
    answer = await rig.poll()
    await rig.poll(completed=(succeeded(answer.orders[0]),), wait_ms=0)
    assert rig.counts.submitted() == 1
    assert rig.counts.finished() == {("default", "succeeded"): 1}
    assert [len(rig.engine.workers()), len(rig.engine.queues())] == [1, 1]
    assert rig.engine.projection_lag_s() == 0.0
    await rig.engine.stop()
