"""Turns of the engine: answers leave after their record is durable, in a fixed order."""

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
    """Encoder that keeps what it encodes and sends; `sent` is called when it sends."""

    def __init__(self, sent: Callable[[], None] = lambda: None) -> None:
        self.written: list[PollAnswer] = []
        self.posted: list[PollAnswer] = []
        self._sent = sent

    def write(self, answer: PollAnswer) -> None:
        self.written.append(answer)

    def post(self, answer: PollAnswer) -> None:
        self.posted.append(answer)
        self._sent()


async def test_a_caller_is_answered_only_when_the_record_is_durable() -> None:
    async with running() as rig:
        rig.journal.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.journal.reached()
        await settle()
        assert not caller.done()
        assert await rig.state("a") is None
        rig.journal.let_go()
        assert isinstance(await caller, JobsAccepted)
        assert await rig.state("a") is JobState.QUEUED


async def test_a_worker_gets_an_order_only_when_it_is_durable() -> None:
    async with running() as rig:
        await rig.register()
        poll = rig.poll()
        await settle()
        rig.journal.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.journal.reached()
        await settle()
        assert not poll.done()
        rig.journal.let_go()
        answer = await poll
        assert [order.execution.job_id for order in answer.orders] == ["a"]
        await caller


async def test_an_answer_is_encoded_during_the_append_and_sent_after_it() -> None:
    async with running() as rig:
        await rig.register()
        encoder = RecordingEncoder()
        poll = rig.poll(encoder=encoder)
        await settle()
        assert not encoder.written
        rig.journal.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.journal.reached()
        await settle()
        (answered,) = encoder.written
        assert [order.execution.job_id for order in answered.orders] == ["a"]
        assert not poll.done()
        assert not encoder.posted
        rig.journal.let_go()
        assert await poll is answered
        assert encoder.posted == [answered]
        await caller


async def test_an_encoded_answer_that_did_not_become_durable_is_not_sent() -> None:
    async with running() as rig:
        await rig.register()
        encoder = RecordingEncoder()
        poll = rig.poll(encoder=encoder)
        await settle()
        rig.journal.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.journal.reached()
        await settle()
        assert len(encoder.written) == 1
        rig.journal.is_away = True
        rig.journal.let_go()
        for one in (poll, caller):
            with pytest.raises(UnavailableError):
                await one
        assert not encoder.posted
        rig.journal.is_away = False


async def test_inputs_that_come_while_an_append_is_under_way_form_one_record() -> None:
    async with running() as rig:
        rig.journal.shut()
        first = asyncio.create_task(rig.submit("first"))
        await rig.journal.reached()
        others = [asyncio.create_task(rig.submit(f"j{n}")) for n in range(7)]
        await settle()
        assert len(rig.journal.records) == 1
        rig.journal.let_go()
        await asyncio.gather(first, *others)
        assert len(rig.journal.records) == 2
        assert sum(isinstance(write, PutJob) for write in rig.journal.records[1]) == 7


async def test_a_reader_of_memory_sees_what_is_durable_and_nothing_else() -> None:
    async with running() as rig:

        async def look() -> list[bool]:
            await rig.engine.settled()
            return [rig.engine.why(JobId(name)) is not None for name in ("a", "b")]

        assert await look() == [False, False]
        rig.journal.shut()
        callers = [asyncio.create_task(rig.submit("a"))]
        await rig.journal.reached()
        callers.append(asyncio.create_task(rig.submit("b")))
        looking = asyncio.create_task(look())
        await settle()
        assert not looking.done()
        rig.journal.let_go()
        assert await looking == [True, False]
        await asyncio.gather(*callers)
        assert await look() == [True, True]


async def test_a_turn_takes_a_limited_number_of_jobs() -> None:
    async with running(turn_weight_max=3) as rig:
        rig.journal.shut()
        callers = [asyncio.create_task(rig.submit("first"))]
        await rig.journal.reached()
        callers += [asyncio.create_task(rig.submit(f"j{n}")) for n in range(7)]
        await settle()
        rig.journal.let_go()
        await asyncio.gather(*callers)
        sizes = [sum(isinstance(w, PutJob) for w in record) for record in rig.journal.records]
        assert sizes == [1, 3, 3, 1]


async def test_a_report_counts_as_much_of_a_turn_as_a_job() -> None:
    async with running(turn_weight_max=3) as rig:
        await rig.register()
        for name in ("a", "b"):
            await rig.submit(name)
        reports = tuple(succeeded(order) for order in (await rig.poll()).orders)
        assert 1 + len(reports) == 3
        rig.journal.shut()
        first = asyncio.create_task(rig.submit("first"))
        await rig.journal.reached()
        poll = rig.poll(completed=reports)
        last = asyncio.create_task(rig.submit("last"))
        await settle()
        rig.journal.let_go()
        await asyncio.gather(first, poll, last)
        came = [sum(isinstance(w, PutJob) for w in record) for record in rig.journal.records]
        assert came[-2:] == [0, 1], "the turn was full of reports"


async def test_an_input_that_changes_nothing_writes_no_record() -> None:
    async with running() as rig:
        await rig.register()
        before = len(rig.journal.records)
        await rig.engine.post(Heartbeat(worker_id=WorkerId("w1")))
        assert len(rig.journal.records) == before


async def test_a_refusal_reaches_its_caller_and_no_other() -> None:
    async with running() as rig:
        rig.journal.shut()
        callers: list[asyncio.Task[Any]] = [asyncio.create_task(rig.submit("first"))]
        await rig.journal.reached()
        callers += [
            asyncio.create_task(rig.submit("a")),
            asyncio.create_task(rig.engine.post(Cancel(job_id=JobId("ghost")))),
            asyncio.create_task(rig.submit("b")),
        ]
        await settle()
        rig.journal.let_go()
        _, a, refused, b = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(a, JobsAccepted)
        assert isinstance(refused, NotFound)
        assert isinstance(b, JobsAccepted)


async def test_a_full_inbox_asks_callers_to_slow_down() -> None:
    async with running(inbox_max=3) as rig:
        rig.journal.shut()
        waiting = [asyncio.create_task(rig.submit("first"))]
        await rig.journal.reached()
        waiting += [asyncio.create_task(rig.submit(f"j{n}")) for n in range(3)]
        await settle()
        with pytest.raises(BusyError, match="slow down"):
            await rig.submit("one-too-many")
        rig.journal.let_go()
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
        rig.journal.shut()
        callers = [asyncio.create_task(rig.submit("first", queue="other", cpu=64))]
        await rig.journal.reached()
        callers.append(asyncio.create_task(rig.submit("second", cpu=64)))
        await settle()
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        rig.journal.let_go()
        await asyncio.gather(*callers)
        await rig.submit("a")
        assert await rig.state("a") is JobState.QUEUED


async def test_a_job_from_submission_to_end_takes_three_records() -> None:
    async with running() as rig:
        await rig.register()
        await rig.submit("a")
        before = len(rig.journal.records)
        answer = await rig.poll()
        await rig.poll(completed=(succeeded(answer.orders[0]),), wait_ms=0)
        assert len(rig.journal.records) - before == 2
        assert await rig.state("a") is JobState.SUCCEEDED


async def test_the_poll_of_a_superseded_worker_is_refused() -> None:
    async with running() as rig:
        await rig.register(session="old")
        poll = rig.poll()
        await settle()
        await rig.register(session="new")
        with pytest.raises(Superseded):
            await poll


async def test_watchers_of_the_journal_wake_for_durable_records_only() -> None:
    async with running() as rig:
        at = rig.engine.journal_notifier.seq
        watcher = asyncio.create_task(rig.engine.journal_notifier.wait_beyond(at))
        with pytest.raises(NotFound):
            await rig.engine.post(Cancel(job_id=JobId("ghost")))
        await settle()
        assert not watcher.done()
        rig.journal.shut()
        caller = asyncio.create_task(rig.submit("a"))
        await rig.journal.reached()
        await settle()
        assert not watcher.done()
        rig.journal.let_go()
        assert await watcher == at + 1
        await caller
        assert await rig.engine.journal_notifier.wait_beyond(at) == at + 1, (
            "one that is behind need not wait"
        )
        changes = await rig.store.queries.changes_after(Seq(0), 10)
        assert [change.seq for change in changes] == [1, 1]


async def test_a_job_that_is_due_is_queued_without_any_input() -> None:
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
        rig.fake_clock.set_by(3_600_000)
        await rig.pass_by(10_000)
        assert await rig.state("a") is JobState.RUNNING
        assert not waiting.done()
        rig.fake_clock.set_by(-3_600_000)
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
        rig.fake_clock.set_by(400)
        await rig.pass_by(16_700)
        assert await rig.state("a") is JobState.QUEUED, "a lease ends by the clock as it is"


async def test_the_metrics_count_every_turn() -> None:
    rig = Rig()
    await rig.engine.start()
    await rig.register()
    await rig.submit("a")
    answer = await rig.poll()
    await rig.poll(completed=(succeeded(answer.orders[0]),), wait_ms=0)
    assert rig.metrics.submitted() == 1
    assert rig.metrics.finished() == {("default", "succeeded"): 1}
    assert [len(rig.engine.workers()), len(rig.engine.queues())] == [1, 1]
    assert rig.engine.projection_lag_s() == 0.0
    await rig.engine.stop()
