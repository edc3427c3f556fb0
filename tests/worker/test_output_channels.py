"""Output and progress: masked, flushed before the report, passed on to no other job."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from rota.worker.masking import Secrets
from rota.worker.runners.output_channels import ExecutionOutput, ProgressPipe
from tests.worker.orders import order
from tests.worker.runner_context import Sink

TASK = {"kind": "noop"}


async def test_secrets_are_masked_in_progress_messages() -> None:
    received: list[tuple[str, float, str | None]] = []
    output = ExecutionOutput(
        order("e1", TASK),
        Sink(),
        Secrets(["hunter22"]),
        lambda *args: received.append(args),
    )
    output.progressed(0.5, "logged in with hunter22")
    assert received == [("e1", 0.5, "logged in with ***")]
    output.close()


async def test_an_execution_without_output_has_nothing_to_flush_and_no_tail() -> None:
    output = ExecutionOutput(order("e1", TASK), Sink(), Secrets(()), lambda *_: None)
    await output.flush(asyncio.Event())
    assert output.tail() == ""
    assert output.unsent_log is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_abandoned_execution_does_not_wait_for_a_server_that_does_not_take_its_log() -> (
    None
):
    sink, at_once = Sink(), asyncio.Event()
    sink.open.clear()
    output = ExecutionOutput(order("e1", TASK), sink, Secrets(()), lambda *_: None)
    output.printed(b"a line\n")
    flushing = asyncio.create_task(output.flush(at_once))
    await asyncio.sleep(0)
    at_once.set()
    await flushing
    output.close()
    assert output.unsent_log is not None
    sink.open.set()
    await output.unsent_log
    assert bytes(sink.log) == b"a line\n"


async def test_progress_left_in_a_pipe_that_a_job_enlarged_is_not_reported_for_the_next_job(
    tmp_path: Path,
) -> None:
    path = tmp_path / "progress"
    os.mkfifo(path)
    pipe = ProgressPipe(path)
    first: list[float] = []
    second: list[float] = []
    received = asyncio.Event()

    def receive(value: float, _: str | None) -> None:
        second.append(value)
        received.set()

    pipe.listen(lambda value, _: first.append(value))
    job = os.open(path, os.O_WRONLY)
    fcntl.fcntl(job, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(job, b"0.25 of somebody else\n" * 20_000)
    os.close(job)
    pipe.stop_listening()
    pipe.listen(receive)
    job = os.open(path, os.O_WRONLY)
    os.write(job, b"0.5 mine\n")
    os.close(job)
    async with asyncio.timeout(30):
        await received.wait()
    pipe.close()
    assert (set(first), second) == ({0.25}, [0.5])
