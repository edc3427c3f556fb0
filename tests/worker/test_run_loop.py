"""What a worker does with an answer, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rota.wire.formats import encode
from rota.wire.workers import LeaseAnswer, RegisterAnswer, RegisterSpec
from rota.worker.agent import open_agent_log
from rota.worker.run_loop import PollLoop
from rota.worker.server_client import ServerRequest
from rota.worker.session import Session
from tests.worker.orders import order

REGISTERED = RegisterAnswer(
    worker_id="w1", session="s", heartbeat_interval=5, lease_ttl=15, poll_wait_max=5
)


class FixedClock:
    """Stands still."""

    def now(self) -> float:
        """Always the same."""
        return 100.0


class OneAnswerServer:
    """A server that gives one answer to a worker that has registered, and then none."""

    server = "http://there"
    server_count = 1

    def __init__(self, answer: bytes) -> None:
        self._answers = [encode(REGISTERED), answer]
        self.asked_by: asyncio.Task[Any] | None = None
        self.passed_over = asyncio.Event()

    async def ask(self, ask: ServerRequest) -> bytes:
        """The next answer; after the last one none comes."""
        if not self._answers:
            await asyncio.Event().wait()
        self.asked_by = asyncio.current_task()
        return self._answers.pop(0)

    def pass_over(self) -> None:
        """What answers there is of no use."""
        self.passed_over.set()


class RecordingExecutor:
    """Notes what it is told to do, and in which task."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, asyncio.Task[Any] | None]] = []
        self.done = asyncio.Event()

    def carry_out(self, instructions: Any) -> None:
        """Does nothing."""
        self.told += [(one, asyncio.current_task()) for one in instructions]
        self.done.set()

    def renew(self, now: float) -> None:
        """Nothing to renew."""


@asynccontextmanager
async def talking(
    line: OneAnswerServer, hands: RecordingExecutor
) -> AsyncIterator[asyncio.Task[bool]]:
    """A worker in conversation with that server."""
    talk = PollLoop(Session(), line, FixedClock(), open_agent_log())  # type: ignore[arg-type]  # all it needs
    await talk.register(RegisterSpec(name="w"))
    task = asyncio.create_task(talk.poll_until_drained(hands))  # type: ignore[arg-type]  # all it needs
    try:
        async with asyncio.timeout(10):
            yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_an_answer_says_is_begun_by_whoever_heard_it() -> None:
    answer = LeaseAnswer(executions=[order("e1")], held_for=0.0, cancel=[], lost=[])
    line, hands = OneAnswerServer(encode(answer)), RecordingExecutor()
    async with talking(line, hands) as conversation:
        await hands.done.wait()
        ((_, doer),) = hands.told
        assert doer is line.asked_by
        assert doer is not conversation


async def test_a_server_that_answers_without_sense_is_passed_over() -> None:
    line, hands = OneAnswerServer(b'{"executions": 3}'), RecordingExecutor()
    async with talking(line, hands) as conversation:
        await line.passed_over.wait()
        assert not hands.told
        assert not conversation.done()
