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
    heard: list[tuple[str, float, str | None]] = []
    aside = ExecutionOutput(
        order("e1", TASK), Sink(), Secrets(["hunter22"]), lambda *said: heard.append(said)
    )
    aside.progressed(0.5, "logged in with hunter22")
    assert heard == [("e1", 0.5, "logged in with ***")]
    aside.close()


async def test_an_execution_without_output_has_nothing_to_flush_and_no_tail() -> None:
    aside = ExecutionOutput(order("e1", TASK), Sink(), Secrets(()), lambda *_: None)
    await aside.flush(asyncio.Event())
    assert aside.tail() == ""
    assert aside.unsent_log is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_abandoned_execution_does_not_wait_for_a_server_that_does_not_take_its_log() -> (
    None
):
    sink, at_once = Sink(), asyncio.Event()
    sink.open.clear()
    aside = ExecutionOutput(order("e1", TASK), sink, Secrets(()), lambda *_: None)
    aside.printed(b"a line\n")
    flushing = asyncio.create_task(aside.flush(at_once))
    await asyncio.sleep(0)
    at_once.set()
    await flushing
    aside.close()
    assert aside.unsent_log is not None
    sink.open.set()
    await aside.unsent_log
    assert bytes(sink.log) == b"a line\n"


async def test_progress_left_in_a_pipe_that_a_job_enlarged_is_not_reported_for_the_next_job(
    tmp_path: Path,
) -> None:
    path = tmp_path / "progress"
    os.mkfifo(path)
    ear = ProgressPipe(path)
    first: list[float] = []
    second: list[float] = []
    heard = asyncio.Event()

    def hear(value: float, _: str | None) -> None:
        second.append(value)
        heard.set()

    ear.listen(lambda value, _: first.append(value))
    job = os.open(path, os.O_WRONLY)
    fcntl.fcntl(job, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(job, b"0.25 of somebody else\n" * 20_000)
    os.close(job)
    ear.stop_listening()
    ear.listen(hear)
    job = os.open(path, os.O_WRONLY)
    os.write(job, b"0.5 mine\n")
    os.close(job)
    async with asyncio.timeout(30):
        await heard.wait()
    ear.close()
    assert (set(first), second) == ({0.25}, [0.5])
