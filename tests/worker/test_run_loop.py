"""Poll loop: when and where a worker carries out an answer."""

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

    async def ask(self, request: ServerRequest) -> bytes:
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
        self.carried_out: list[tuple[Any, asyncio.Task[Any] | None]] = []
        self.done = asyncio.Event()

    def carry_out(self, actions: Any) -> None:
        """Does nothing."""
        self.carried_out += [(one, asyncio.current_task()) for one in actions]
        self.done.set()

    def renew(self, now: float) -> None:
        """Nothing to renew."""


@asynccontextmanager
async def polling(
    server: OneAnswerServer, executor: RecordingExecutor
) -> AsyncIterator[asyncio.Task[bool]]:
    """A worker in conversation with that server."""
    poll_loop = PollLoop(Session(), server, FixedClock(), open_agent_log())  # type: ignore[arg-type]  # all it needs
    await poll_loop.register(RegisterSpec(name="w"))
    task = asyncio.create_task(poll_loop.poll_until_drained(executor))  # type: ignore[arg-type]  # all it needs
    try:
        async with asyncio.timeout(10):
            yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_answer_is_carried_out_in_the_task_that_received_it() -> None:
    answer = LeaseAnswer(executions=[order("e1")], held_for=0.0, cancel=[], lost=[])
    server, executor = OneAnswerServer(encode(answer)), RecordingExecutor()
    async with polling(server, executor) as conversation:
        await executor.done.wait()
        ((_, task),) = executor.carried_out
        assert task is server.asked_by
        assert task is not conversation


async def test_a_server_whose_answers_cannot_be_read_is_passed_over() -> None:
    server, executor = OneAnswerServer(b'{"executions": 3}'), RecordingExecutor()
    async with polling(server, executor) as conversation:
        await server.passed_over.wait()
        assert not executor.carried_out
        assert not conversation.done()
