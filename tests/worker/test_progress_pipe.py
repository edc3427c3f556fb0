from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from rota.worker.runners.pipes import ProgressPipe


async def test_what_a_job_leaves_in_a_pipe_that_it_made_larger_is_not_the_next_ones(
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
