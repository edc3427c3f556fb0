"""Ending jobs: time is up, somebody cancels, a lease is lost; nothing is left behind."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.worker.runners import warden
from rota.worker.runners.reaper import Reaper, become_subreaper
from tests.worker.orders import order, python, shell
from tests.worker.site import Sink, alive, until
from tests.worker.test_process import error, ran, run_of


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture(autouse=True)
def _orphans_fall_to_us() -> Iterator[None]:
    assert become_subreaper()
    yield
    Reaper().reap()


def numbers(sink: Sink) -> list[int]:
    return [int(word) for word in bytes(sink.log).split()]


FAMILY = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        print(os.getpid(), flush=True)
time.sleep(600)
"""
"""A parent, a child of its group, and a daemon: a session of its own, its parent gone."""


async def test_a_timeout_ends_the_whole_family_stubborn_and_strayed_ones_too(
    tmp_path: Path, sink: Sink
) -> None:
    run = run_of(order("e1", python(FAMILY), timeout=2.0), tmp_path, sink, grace_s=0.3)
    report = await run.run()
    pids = numbers(sink)
    assert len(pids) == 3
    assert not any(map(alive, pids))
    assert report.status == "timed_out"
    assert str(error(report)["message"]).startswith("timed out after 2 s; SIGTERM, then SIGKILL")
    assert report.exit_code == 137


async def test_a_job_that_obeys_is_not_killed(tmp_path: Path, sink: Sink) -> None:
    script = 'trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    run = run_of(order("e1", shell(script)), tmp_path, sink)
    running = asyncio.create_task(run.run())
    await until(lambda: b"up" in sink.log)
    run.stop("cancelled")
    report = await running
    assert report.status == "cancelled"
    assert "SIGKILL" not in str(error(report)["message"])
    assert sink.log.endswith(b"bye\n")


async def test_a_worker_that_leaves_says_so_in_the_report(tmp_path: Path, sink: Sink) -> None:
    run = run_of(order("e1", shell("exec sleep 600")), tmp_path, sink)
    running = asyncio.create_task(run.run())
    run.stop("shutdown")
    report = await running
    assert (report.status, report.retryable) == ("failed", True)
    assert error(report) == {"message": "worker was told to stop"}


async def test_an_abandoned_job_is_killed_without_grace(tmp_path: Path, sink: Sink) -> None:
    run = run_of(order("e1", python(FAMILY)), tmp_path, sink, grace_s=600)
    running = asyncio.create_task(run.run())
    await until(lambda: len(sink.log.split()) == 3)
    run.stop("cancelled")
    run.abandon()
    await running
    assert not any(map(alive, numbers(sink)))


async def test_what_a_finished_job_left_running_is_ended(tmp_path: Path, sink: Sink) -> None:
    left = tmp_path / "left"
    script = f"setsid sleep 600 >/dev/null 2>&1 & echo $! > {left}; exit 0"
    where = tmp_path / "w"
    where.mkdir()
    report = await ran(shell(script), where, sink)
    assert report.status == "succeeded"
    assert not alive(int(left.read_text()))


async def test_one_job_ends_without_touching_its_neighbour(tmp_path: Path) -> None:
    sinks = [Sink(), Sink()]
    runs = [
        run_of(order(f"e{i}", shell("setsid sleep 600 & echo $!; wait")), tmp_path, sinks[i])
        for i in range(2)
    ]
    tasks = [asyncio.create_task(run.run()) for run in runs]
    await until(lambda: all(sink.log.endswith(b"\n") for sink in sinks))
    runs[0].stop("cancelled")
    await tasks[0]
    (first,), (second,) = map(numbers, sinks)
    assert (alive(first), alive(second)) == (False, True)
    runs[1].abandon()
    await tasks[1]
    assert not alive(second)


async def test_dead_orphans_are_let_go(tmp_path: Path, sink: Sink) -> None:
    code = "import os\nfor _ in range(50):\n  if os.fork() == 0:\n    os.fork(); os._exit(0)\n"
    await ran(python(code), tmp_path, sink)
    reaper = Reaper()
    await until(lambda: reaper.reap() is None and not reaper.orphans())


AGENT = """
import os, subprocess, sys
from rota.worker.runners.warden import Warden
warden = Warden()
job = subprocess.Popen(
    ["/bin/sh", "-c", "setsid sleep 600 & echo $!; wait"],
    start_new_session=True,
    env={**os.environ, "ROTA_EXECUTION_ID": sys.argv[1]},
)
warden.watch(job.pid, sys.argv[1])
print(job.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.process
async def test_jobs_die_with_an_agent_that_was_killed() -> None:
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        AGENT,
        secrets.token_hex(8),  # the warden looks for it on the whole machine
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert agent.stdout is not None
    pids = [int(await agent.stdout.readline()) for _ in range(2)]
    assert all(map(alive, pids))
    agent.kill()
    await agent.wait()
    await until(lambda: not any(map(alive, pids)))


def test_the_warden_forgets_what_was_released(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_bytes(b"+10 a\n+11 b\n-10\n")
    with told.open("rb") as pipe:
        assert warden.watch_over(pipe) == {11: "b"}
