"""Leases that run out under real workers: frozen, thawed and killed ones; and full work disks."""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rota.sdk import Client
from rota.wire.workers import ExecutionView
from tests.process.cell import Cell, marked, shell, until

TICKS = (
    'echo "begin $ROTA_FENCE" >> {witness}; [ "$ROTA_FENCE" = 1 ] || exit 0; '
    'trap "" TERM; while :; do echo "tick $ROTA_FENCE" >> {witness}; sleep 0.02; done; : {mark}'
)
"""The first execution works on for ever and leaves a trace of it; the next one only begins."""


@pytest.fixture
def mark() -> str:
    """What the command lines of one test's jobs have in them, and no others."""
    return secrets.token_hex(8)


def ticking(cell: Cell, client: Client, mark: str) -> str:
    """A job that works as long as it is let; its id, once it works."""
    job = client.submit(shell(TICKS.format(witness=cell.witness, mark=mark), "ticks"))
    cell.until_witnessed("tick", 3)
    return job.job_id


def executions(client: Client, job_id: str) -> list[ExecutionView]:
    """Oldest first."""
    return client.executions(job_id=job_id).items[::-1]


def no_overlap(cell: Cell) -> None:
    """Not a single trace of the first execution after the second has begun."""
    lines = cell.witnessed()
    assert lines.count("begin 2") == 1
    assert "tick 1" not in lines[lines.index("begin 2") :]


@pytest.mark.process
@pytest.mark.parametrize("isolation", ["auto", "subreaper"])
def test_the_job_of_a_frozen_worker_has_stopped_before_it_starts_elsewhere(
    cell: Cell, mark: str, isolation: str
) -> None:
    cell.up()
    frozen = cell.worker("frozen", "--isolation", isolation)
    client, http = cell.client(), cell.http()
    job_id = ticking(cell, client, mark)
    frozen.signal(signal.SIGSTOP)
    until(lambda: not marked(mark), "the end of the frozen worker's job")
    assert client.job(job_id).status == "running", "its time was up before the server's patience"
    cell.worker("successor")
    ended = client.wait(job_id, timeout_s=30)
    assert (ended.status, ended.fence, ended.losses) == ("succeeded", 2, 1)
    no_overlap(cell)
    frozen.signal(signal.SIGCONT)
    lost, _ = executions(client, job_id)
    stale = {"status": "succeeded", "fence": lost.fence, "result": "stale"}
    answer = http.post(f"/executions/{lost.execution_id}/complete", json=stale)
    assert answer.status_code == 409
    assert [one.status for one in executions(client, job_id)] == ["lost", "succeeded"]
    assert frozen.stop() == 0, frozen.text()


@pytest.mark.chaos
@pytest.mark.parametrize("isolation", ["auto", "subreaper"])
def test_worker_supervisor_and_job_frozen_together_and_thawed_leave_the_next_execution_alone(
    cell: Cell, mark: str, isolation: str
) -> None:
    cell.up()
    worker = cell.worker("frozen", "--isolation", isolation)
    client = cell.client()
    job_id = ticking(cell, client, mark)
    whole = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    assert len(whole) >= 4, "agent, supervisor, shim, job"
    for process in whole:
        process.suspend()
    cell.worker("successor")
    assert client.wait(job_id, timeout_s=30).fence == 2
    agent, supervisor, *others = whole
    # When a machine wakes, who runs first is the kernel's choice; the supervisor can only be quick.
    supervisor.resume()
    until(lambda: not marked(mark), "the end of what is past its lease")
    for process in (agent, *others):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    no_overlap(cell)
    assert [one.status for one in executions(client, job_id)] == ["lost", "succeeded"]
    again = client.submit(shell("true"))
    assert client.wait(again.job_id, timeout_s=30).status == "succeeded"
    assert worker.stop() == 0, worker.text()


@pytest.mark.process
def test_jobs_of_a_killed_agent_end_at_once_and_not_only_with_their_lease(
    cell: Cell, mark: str
) -> None:
    cell.lease_ttl = "60s"
    cell.up()
    worker = cell.worker("doomed")
    job_id = ticking(cell, cell.client(), mark)
    worker.kill()
    until(lambda: not marked(mark), "the end of its job", patience_s=10)
    assert cell.client().job(job_id).status == "running", "the lease has long to go"


@pytest.mark.process
def test_a_worker_whose_supervisor_is_killed_reports_its_jobs_and_goes_on(
    cell: Cell, mark: str
) -> None:
    cell.up()
    worker = cell.worker("w")
    client = cell.client()
    job_id = ticking(cell, client, mark)
    (supervisor,) = psutil.Process(worker.pid).children()
    supervisor.kill()
    ended = client.wait(job_id, timeout_s=30)
    assert ended.status == "failed"
    assert "the worker's supervisor ended (SIGKILL)" in ended.error["message"]
    until(lambda: not marked(mark), "the end of its processes")
    again = client.submit(shell("true"))
    assert client.wait(again.job_id, timeout_s=30).status == "succeeded"


@pytest.mark.process
def test_a_second_sigterm_ends_jobs_that_ignore_it_and_gives_them_back(
    cell: Cell, mark: str
) -> None:
    cell.up()
    worker = cell.worker("w")
    client = cell.client()
    job_id = ticking(cell, client, mark)
    worker.signal(signal.SIGTERM)
    until(lambda: client.workers()[0].status == "draining", "a draining worker")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.text()
    assert not marked(mark)
    (run,) = executions(client, job_id)
    assert run.status == "lost"
    job = client.job(job_id)
    assert (job.status, job.attempt, job.losses) == ("queued", 0, 1), "the attempt does not count"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.process
def test_a_full_work_disk_fails_the_job_that_filled_it_and_nobody_else(
    cell: Cell, small_disk: Path
) -> None:
    cell.up()
    worker = cell.worker("w", "--work-dir", str(small_disk))
    client = cell.client()
    greedy = client.submit(shell("head -c 3000000 /dev/zero > big"))
    ended = client.wait(greedy.job_id, timeout_s=30)
    assert ended.status == "failed"
    assert "No space left" in ended.error["tail"]
    heavy = client.submit(shell("true", payload={"text": "x" * 900_000}))
    ended = client.wait(heavy.job_id, timeout_s=30)
    assert ended.status == "failed"
    assert ended.error["message"] == (
        "the worker could not make a folder for this job: No space left on device"
    )
    modest = client.submit(shell("head -c 300000 /dev/zero > small"))
    assert client.wait(modest.job_id, timeout_s=30).status == "succeeded", "all space is back"
    assert not worker.ended(), worker.text()
