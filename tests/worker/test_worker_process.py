"""Worker as a process of its own: signals, and a sudden death."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.cell import Cell
from tests.worker.orders import order, shell
from tests.worker.runner_context import PATIENCE_S, marked, until

pytestmark = pytest.mark.process

MAIN = """
import asyncio, pathlib, sys, uvloop
from rota.worker.agent import WorkerConfig, run_worker
config = WorkerConfig(servers=[sys.argv[1]], name="w", work_dir=pathlib.Path(sys.argv[2]))
sys.exit(uvloop.run(run_worker(config)))
"""


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    cell = Cell()
    await cell.start()
    yield cell
    await cell.stop()


@pytest.fixture
async def worker(cell: Cell, tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        MAIN,
        cell.url,
        str(tmp_path / "work"),
        stderr=asyncio.subprocess.PIPE,
    )
    yield process
    if process.returncode is None:
        process.kill()
        await process.communicate()


async def test_the_command_takes_several_servers_and_hands_named_variables_to_jobs(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REGION", "REGION_TOKEN", "REST"):
        monkeypatch.setenv(name, f"value-of-{name}")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rota", "worker", "--work-dir", str(tmp_path / "work")),
            *("--server", f"http://127.0.0.1:{nobody.getsockname()[1]}", "--server", cell.url),
            *("--env", "REGION", "--env", "REGION_TOKEN", "--env", "UNSET"),
            stderr=asyncio.subprocess.PIPE,
        )
        script = "echo $REGION; test $REGION_TOKEN = value-of-REGION_TOKEN; echo $? ${REST-none}"
        cell.grant(order("e1", shell(f"{script}; echo $REGION_TOKEN")))
        await until(lambda: "e1" in cell.reports)
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        _, said = await process.communicate()
    assert process.returncode == 0, said
    assert bytes(cell.logs["e1"]) == b"value-of-REGION\n0 none\n***\n"
    assert b"a variable named by --env is not set" in said


async def test_sigterm_drains_and_exits_with_zero(
    cell: Cell, worker: asyncio.subprocess.Process
) -> None:
    cell.grant(*(order(f"e{number}", shell("echo hi; exit 0")) for number in range(20)))
    await until(lambda: len(cell.reports) == 20)
    worker.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        _, said = await worker.communicate()
    assert worker.returncode == 0, said
    assert cell.verbs == ["drain", "leave"]
    assert {report.status for report in cell.reports.values()} == {"succeeded"}
    assert len(cell.logs) == 20


async def test_a_killed_worker_s_jobs_are_killed_too(
    cell: Cell, worker: asyncio.subprocess.Process
) -> None:
    mark = str(secrets.randbelow(10**12))
    cell.grant(order("e1", shell(f"setsid sleep 600.{mark} & wait")))
    await until(lambda: len(marked(mark)) == 2)
    worker.kill()
    await worker.communicate()
    await until(lambda: marked(mark) == [])
