"""The commands against the server and worker that ship: `rota up` in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.sdk import Client, ConflictError, discover
from rota.sdk.clock import SystemClock
from rota.wire.executions import CompletionSpec, ProgressSpec
from rota.wire.units import Duration
from rota.wire.workers import HeartbeatSpec, LeaseSpec, RegisterSpec, ResourcesSpec
from tests.cli.conftest import Rota

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which `rota up` runs, with one worker, found by `.rota/local.json`."""
    folder = tmp_path_factory.mktemp("up")
    command = [sys.executable, "-m", "rota", "up", "--port", "0", "--lease-ttl", "3s"]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    try:
        _until_ready(folder, process)
        yield folder
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, (folder / "out").read_text()


def _until_ready(folder: Path, process: subprocess.Popen[bytes]) -> None:
    clock = SystemClock()
    deadline_s = clock.elapsed_s() + 60
    while not (folder / ".rota/local.json").exists():
        assert process.poll() is None, (folder / "out").read_text()
        assert clock.elapsed_s() < deadline_s, "the server did not start in time"
        clock.sleep(0.05)
    with Client(discover(environ=os.environ, folder=folder)) as client:
        while not any(worker.status == "online" for worker in client.workers()):
            assert clock.elapsed_s() < deadline_s, "no worker came in time"
            clock.sleep(0.05)


@pytest.fixture(autouse=True)
def in_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def test_a_followed_job_prints_and_exits_as_it_does(rota: Rota) -> None:
    ran = rota("submit", "--follow", "--", "sh", "-c", "echo one; echo two; exit 3")
    assert (ran.status, ran.out) == (3, "one\ntwo\n")


def test_many_jobs_are_submitted_and_waited_for(rota: Rota) -> None:
    ran = rota("submit", "--noop", "--count", "1200", "--wait")
    assert ran.status == 0, ran.err
    ids = ran.out.split()
    assert len(ids) == 1200
    assert rota("wait", ids[0], ids[-1][-10:]).status == 0


def test_a_job_too_big_says_why_and_can_be_cancelled(rota: Rota) -> None:
    job_id = rota("submit", "--cpu", "100000", "--", "true").out.strip()
    after = rota("submit", "--after", job_id, "--", "true").out.strip()
    assert "100000 cpu" in rota("why", job_id).out.splitlines()[0]
    assert rota("graph", job_id).out.splitlines()[1].startswith("└─ " + after[-8:])
    assert rota("cancel", job_id).status == 0
    assert rota("show", after, "--json").json["status"] == "skipped"
    assert rota("delete", job_id, after).status == 0


def test_a_waiting_job_is_changed_and_then_runs(rota: Rota) -> None:
    job_id = rota("submit", "--in", "1h", "-n", "later", "--", "true").out.strip()
    assert rota("update", job_id, "--priority", "7", "--label", "a=b").status == 0
    changed = rota("update", job_id, "--patch", '{"run_at": null}', "--json").json
    assert (changed["priority"], changed["labels"]) == (7, {"a": "b"})
    assert rota("wait", job_id, "--timeout", "30s").out == f"{job_id[-8:]} succeeded\n"


def test_a_paused_queue_is_passed_by_an_order_by_hand(rota: Rota) -> None:
    assert rota("queues", "set", "slow", "--pause").status == 0
    job_id = rota("submit", "-q", "slow", "--", "echo", "by hand").out.strip()
    assert "paused" in rota("why", job_id).out
    worker = json.loads(rota("workers", "--json").out)["items"][0]["name"]
    assert rota("execute", job_id, "--worker", worker).status == 0
    assert rota("logs", "-f", job_id).out == "by hand\n"
    assert rota("queues", "resume", "slow", "--json").json["paused"] is False


def test_a_file_of_jobs_is_refused_by_the_line_that_is_wrong(rota: Rota, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    good = {"name": "a", "task": {"kind": "noop"}}
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps({**good, 'priority': 5000})}\n")
    ran = rota("submit", "--from", str(path))
    assert ran.status == 1
    assert f"{path}:3: priority: " in ran.err


def test_the_doctor_finds_nothing_wrong(rota: Rota) -> None:
    ran = rota("doctor", "--json")
    assert [check for check in ran.json["checks"] if check["verdict"] == "fail"] == []


def test_every_list_draws(rota: Rota) -> None:
    rota("submit", "--wait", "--", "false")
    for args in (["jobs"], ["dead-letters"], ["executions"], ["workers"], ["queues"], ["stats"]):
        ran = rota(*args)
        assert ran.status == 0, ran.err
        assert ran.out, args
    assert rota("cluster").status == 0
    assert "jobs: " in rota("top", "--once").out


def test_a_worker_can_be_written_with_the_sdk_alone(home: Path) -> None:
    resources = ResourcesSpec(cpu=1)
    spec = RegisterSpec(name="by-hand", capabilities=["by-hand"], resources=resources)
    needs = {"capabilities": ["by-hand"]}
    with Client() as client:
        me = client.register(spec).worker_id
        job = client.submit({"name": "x", "task": {"kind": "noop"}, "requirements": needs})
        (order,) = client.lease(me, LeaseSpec(max=5, wait=Duration(20_000))).executions
        assert order.job_id == job.job_id
        client.append_log(order.execution_id, b"hello\n", offset=0, fence=order.fence)
        client.append_log(order.execution_id, b"hello\nworld\n", offset=0, fence=order.fence)
        client.put_artifact(order.execution_id, "out.txt", b"kept")
        client.progress(order.execution_id, ProgressSpec(progress=0.5, fence=order.fence))
        beat = client.heartbeat(me, HeartbeatSpec(executions=[order.execution_id]))
        assert (beat.cancel, beat.lost) == ([], [])
        assert client.job(job.job_id).progress == 0.5
        done = CompletionSpec(status="succeeded", fence=order.fence, exit_code=0)
        for _ in range(2):
            assert client.complete(order.execution_id, done).status == "succeeded"
        with pytest.raises(ConflictError):
            client.complete(order.execution_id, CompletionSpec(status="failed", fence=order.fence))
        assert client.wait(job.job_id, timeout_s=30).status == "succeeded"
        assert client.logs(job.job_id) == b"hello\nworld\n"
        (kept,) = client.execution(order.execution_id).artifacts
        assert kept["name"] == "out.txt"
        client.remove_worker(me)


def test_an_installation_is_checked_and_left_as_it_was(rota: Rota) -> None:
    before = rota("jobs", "--json").json
    url = str(discover(environ=os.environ).url)
    ran = rota("verify", "--live", url)
    assert ran.status == 0, ran.out
    assert "every promise that was tried was kept" in ran.out
    assert rota("jobs", "--json").json == before
