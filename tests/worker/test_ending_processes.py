"""Ending of jobs by timeout, cancel or lost lease; nothing is left behind."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import msgspec
import pytest

from rota.wire.jobs import Command, Task
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.runners.process import ProcessRunner
from rota.worker.supervisor.client import Isolation
from tests.worker.orders import order, python, shell
from tests.worker.runner_context import Sink, marked, runner_context, supervisor_here, until
from tests.worker.test_process import error

FAMILY = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.execve(sys.executable, ["python", "-c", STUBBORN], {})
    print("up", flush=True)
time.sleep(600)
"""
"""A parent, a child of its group, and a daemon: a session and an empty environment of its own, its
parent gone."""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


ORPHANS = """
import os
for _ in range(1000):
    if (pid := os.fork()) == 0:
        os.fork()
        os._exit(0)
    os.waitpid(pid, 0)

def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except OSError:
        return ""
    return state if int(parent) == os.getppid() else ""

while any(state(name) == "Z" for name in os.listdir("/proc") if name.isdigit()):
    pass
print("clean")
"""
"""Each has a child whose parent is gone, and which dies at once."""


@pytest.fixture(params=["auto", "subreaper"])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    kind: Isolation = request.param
    return kind


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def mark() -> str:
    """What the command lines of this test's processes have in them, and no others."""
    return secrets.token_hex(8)


def run_of(
    view: OrderView, where: Path, sink: Sink, isolation: Isolation, grace_s: float = 5.0
) -> ProcessRunner:
    command = msgspec.json.decode(view.task, type=Task)
    assert isinstance(command, Command)
    return ProcessRunner(view, command, runner_context(where, sink, grace_s, isolation))


def family(mark: str) -> dict[str, object]:
    """Three processes that know no mercy."""
    return python(f"import sys; STUBBORN = {STUBBORN + ' # ' + mark!r}\n" + FAMILY)


async def test_a_timeout_ends_the_whole_process_tree_even_detached_processes_that_ignore_sigterm(
    tmp_path: Path, sink: Sink, mark: str, isolation: Isolation
) -> None:
    run = run_of(order("e1", family(mark), timeout=1.5), tmp_path, sink, isolation, 0.3)
    running = asyncio.create_task(run.run())
    await until(lambda: len(marked(mark)) == 3)
    report = await running
    assert marked(mark) == []
    assert (report.status, report.exit_code) == ("timed_out", 137)
    fields = error(report)
    assert fields["message"] == (
        "timed out after 1.5 s; SIGTERM to 3 processes, then SIGKILL to 3 processes"
    )
    assert fields["left"] == 0
    term, kill = fields["signals"]  # type: ignore[misc]
    assert (term["signal"], term["processes"]) == ("SIGTERM", 3)
    assert (kill["signal"], kill["processes"]) == ("SIGKILL", 3)
    assert 1.5 <= term["after_s"] < term["after_s"] + 0.3 <= kill["after_s"]


async def test_a_job_that_ends_on_sigterm_is_not_killed(
    tmp_path: Path, sink: Sink, isolation: Isolation
) -> None:
    script = 'trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    run = run_of(order("e1", shell(script)), tmp_path, sink, isolation)
    running = asyncio.create_task(run.run())
    await until(lambda: b"up" in sink.log)
    run.stop("cancelled")
    report = await running
    assert (report.status, report.exit_code) == ("cancelled", 0)
    assert [one["signal"] for one in error(report)["signals"]] == ["SIGTERM"]  # type: ignore[attr-defined]
    assert sink.log.endswith(b"bye\n")


async def test_a_job_stopped_by_a_leaving_worker_is_reported_so(
    tmp_path: Path, sink: Sink, isolation: Isolation
) -> None:
    run = run_of(order("e1", shell("echo up; exec sleep 600")), tmp_path, sink, isolation)
    running = asyncio.create_task(run.run())
    await until(lambda: b"up" in sink.log)
    run.stop("shutdown")
    report = await running
    assert (report.status, report.retryable) == ("failed", True)
    assert error(report)["message"] == "worker was told to stop"


async def test_a_job_stopped_before_it_could_start_is_never_started(
    tmp_path: Path, sink: Sink, isolation: Isolation
) -> None:
    ran = tmp_path / "ran"
    run = run_of(order("e1", shell(f"touch {ran}")), tmp_path, sink, isolation)
    run.stop("cancelled")
    report = await run.run()
    assert report.status == "cancelled"
    assert not ran.exists()


async def test_an_abandoned_job_is_killed_without_grace(
    tmp_path: Path, sink: Sink, mark: str, isolation: Isolation
) -> None:
    run = run_of(order("e1", family(mark)), tmp_path, sink, isolation, grace_s=600)
    running = asyncio.create_task(run.run())
    await until(lambda: len(marked(mark)) == 3)
    run.stop("cancelled")
    run.abandon()
    await running
    assert marked(mark) == []


async def test_processes_that_a_finished_job_left_are_ended_and_the_log_says_so(
    tmp_path: Path, sink: Sink, mark: str, isolation: Isolation
) -> None:
    script = f"setsid sh -c 'sleep 600; : {mark}' >/dev/null 2>&1 & exit 0"
    run = run_of(order("e1", shell(script)), tmp_path, sink, isolation)
    report = await run.run()
    assert report.status == "succeeded"
    assert marked(mark) == []
    assert b"[rota: ended what the job left running: SIGTERM to " in sink.log


async def test_ending_one_job_leaves_the_other_jobs_running(
    tmp_path: Path, mark: str, isolation: Isolation
) -> None:
    sinks = [Sink(), Sink()]
    runs = [
        run_of(
            order(f"e{i}", shell(f"setsid sh -c 'sleep 600; : {mark}{i}' & wait")),
            tmp_path,
            sinks[i],
            isolation,
        )
        for i in range(2)
    ]
    tasks = [asyncio.create_task(run.run()) for run in runs]
    await until(lambda: all(len(marked(f"{mark}{i}")) == 2 for i in range(2)))
    runs[0].stop("cancelled")
    await tasks[0]
    assert [len(marked(f"{mark}{i}")) for i in range(2)] == [0, 2]
    runs[1].abandon()
    await tasks[1]
    assert marked(mark) == []


async def test_a_thousand_dead_orphans_are_collected_while_the_job_runs(
    tmp_path: Path, sink: Sink, isolation: Isolation
) -> None:
    report = await run_of(order("e1", python(ORPHANS)), tmp_path, sink, isolation).run()
    assert (report.status, bytes(sink.log)) == ("succeeded", b"clean\n"), error(report)


async def test_jobs_end_with_a_supervisor_that_was_killed_and_the_next_job_gets_a_new_one(
    tmp_path: Path, sink: Sink, mark: str, isolation: Isolation
) -> None:
    run = run_of(order("e1", family(mark)), tmp_path, sink, isolation)
    running = asyncio.create_task(run.run())
    await until(lambda: len(marked(mark)) == 3)
    supervisor = supervisor_here(isolation)
    supervisor._process.kill()
    report = await running
    await until(lambda: marked(mark) == [])
    assert (report.status, report.retryable) == ("failed", True)
    assert "the worker's supervisor ended (SIGKILL), and this job with it" in str(error(report))
    after: CompletedReport = await run_of(
        order("e2", shell("exit 0")), tmp_path, sink, isolation
    ).run()
    assert (after.status, supervisor.deaths) == ("succeeded", 1)
