"""A worker as a process of its own: signals, and death without a word."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.worker.cell import Cell
from tests.worker.orders import order, shell
from tests.worker.site import PATIENCE_S, until

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


async def start(cell: Cell, tmp_path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        MAIN,
        cell.url,
        str(tmp_path / "work"),
        stderr=asyncio.subprocess.PIPE,
    )


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def test_sigterm_drains_and_exits_with_zero(cell: Cell, tmp_path: Path) -> None:
    worker = await start(cell, tmp_path)
    cell.grant(*(order(f"e{number}", shell("echo hi; exit 0")) for number in range(20)))
    await until(lambda: len(cell.reports) == 20)
    worker.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        _, said = await worker.communicate()
    assert worker.returncode == 0, said
    assert cell.verbs == ["drain", "leave"]
    assert {report.status for report in cell.reports.values()} == {"succeeded"}
    assert len(cell.logs) == 20


async def test_a_killed_worker_takes_its_jobs_with_it(cell: Cell, tmp_path: Path) -> None:
    worker = await start(cell, tmp_path)
    cell.grant(order("e1", shell("setsid sleep 600 & echo $!; echo $$; wait")))
    await until(lambda: cell.logs.get("e1", b"").count(b"\n") == 2)
    pids = [int(word) for word in cell.logs["e1"].split()]
    assert all(map(alive, pids))
    worker.kill()
    await worker.communicate()
    await until(lambda: not any(map(alive, pids)))
