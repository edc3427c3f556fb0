"""The commands against the server and worker that ship: `rota up` in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.sdk import Client, ConflictError, discover
from rota.sdk.clock import SystemClock
from rota.wire.formats import Duration
from rota.wire.workers import (
    CompletionSpec,
    HeartbeatSpec,
    LeaseSpec,
    ProgressSpec,
    RegisterSpec,
    ResourcesSpec,
)
from tests.cli.conftest import Rota

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with started(tmp_path_factory.mktemp("up")) as folder:
        yield folder


@contextmanager
def started(folder: Path) -> Iterator[Path]:
    """A folder in which `rota up` runs, with one worker, found by `.rota/local.json`."""
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


@pytest.mark.parametrize("kind", ["--count", "--gang"])
def test_following_an_array_or_gang_prints_what_its_members_print(
    rota: Rota, kind: str, tmp_path: Path
) -> None:
    index = "$ROTA_ARRAY_INDEX" if kind == "--count" else "$ROTA_GANG_INDEX"
    # A gang ends with the first member that fails: that one waits until the other has printed.
    first = tmp_path / "0"
    wait = f"touch {tmp_path}/{index}; until [ -e {first} ]; do sleep 0.01; done"
    script = f"echo member {index}; {wait}; exit {index}"
    ran = rota("submit", kind, "2", "--cpu", "0.1", "--follow", "--", "sh", "-c", script)
    assert (ran.status, ran.out) == (1, "[0] member 0\n[1] member 1\n")


def test_many_jobs_are_submitted_and_waited_for(rota: Rota) -> None:
    ran = rota("submit", "--noop", "--copies", "1200", "--wait")
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


def test_a_dry_run_says_when_and_submits_nothing(rota: Rota) -> None:
    now = rota("submit", "--dry-run", "-n", "tried", "--", "true")
    assert (now.status, now.out.startswith("would start now on ")) == (0, True)
    never = rota("submit", "--dry-run", "--cpu", "100000", "-n", "tried", "--", "true")
    assert never.status == 1
    assert never.out.startswith("would never start, because no worker could ever run this")
    both = rota("submit", "--dry-run", "--copies", "2", "--noop", "-n", "tried", "--json").json
    assert [one["verdict"] for one in both["jobs"]] == ["now", "now"]
    assert rota("jobs", "--name", "tried").out == ""


def test_why_says_what_would_help_and_how_a_deadline_stands(rota: Rota) -> None:
    assert rota("queues", "set", "held", "--pause").status == 0
    asked = ("-q", "held", "--finish-by", "2h", "--expects", "1m")
    job_id = rota("submit", *asked, "--", "true").out.strip()
    lines = rota("why", job_id).out.splitlines()
    assert lines[0] == "queued queue held is paused; resume it to go on"
    assert lines[1] == "starts unknown"
    assert "help   if queue held were resumed: then it starts at once" in lines
    assert any(line.startswith("due    by ") and "at risk" in line for line in lines)
    shown = rota("update", job_id, "--finish-by", "2100-01-01T00:00:00Z", "--json").json
    assert shown["finish_by"] == "2100-01-01T00:00:00.000Z"
    assert rota("cancel", job_id).status == 0


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


def test_the_log_of_an_array_is_that_of_its_members(rota: Rota) -> None:
    line = ("--", "sh", "-c", "echo at $ROTA_ARRAY_INDEX; echo done")
    job_id = rota("submit", "--count", "3", *line).out.strip()
    wanted = "".join(f"[{n}] at {n}\n[{n}] done\n" for n in range(3))
    assert rota("logs", "-f", job_id).out == wanted
    assert rota("logs", job_id).out == wanted
    assert rota("logs", job_id, "--index", "1").out == "at 1\ndone\n"
    refused = rota("logs", job_id, "--index", "3")
    assert (refused.status, "from 0 to 2" in refused.err) == (2, True)


def test_a_worker_is_drained_and_put_back_to_work(rota: Rota) -> None:
    worker = json.loads(rota("workers", "--json").out)["items"][0]["name"]
    assert rota("workers", "drain", worker).out == f"{worker} is draining\n"
    job_id = rota("submit", "--", "echo", "again").out.strip()
    assert "draining" in rota("why", job_id).out
    assert rota("workers", "resume", worker).out == f"{worker} is online\n"
    assert rota("logs", "-f", job_id).out == "again\n"


def test_a_removed_worker_that_lives_registers_anew(rota: Rota) -> None:
    (before,) = json.loads(rota("workers", "--status", "online", "--json").out)["items"]
    assert rota("workers", "remove", before["worker_id"]).status == 0
    job_id = rota("submit", "--", "echo", "anew").out.strip()
    assert rota("logs", "-f", job_id).out == "anew\n"
    (after,) = json.loads(rota("workers", "--status", "online", "--json").out)["items"]
    assert (after["name"], after["worker_id"] != before["worker_id"]) == (before["name"], True)


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
        renewed = client.heartbeat(me, HeartbeatSpec(executions=[order.execution_id]))
        assert (renewed.cancel, renewed.lost) == ([], [])
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


def test_the_policy_is_shown_and_changed_part_by_part(rota: Rota) -> None:
    before = rota("policy", "show", "--json").json
    ran = rota("policy", "set", "--order", "priority", "--half-life", "12h", "--json")
    assert ran.json == {**before, "order": "priority", "half_life": 43200}, ran.err
    ran = rota("policy", "set", "--preempt-gap", "none", "--max-running", "900", "--json")
    assert (ran.json["order"], ran.json["preempt_gap"]) == ("priority", None)
    assert rota("policy", "set", "--preset", "default", "--json").json == before
    assert rota("policy").out == rota("policy", "show").out
    assert rota("policy", "--json").json == before
    assert rota("policy", "set").status == 2
    assert rota("policy", "set", "--half-life", "soon").status == 2


def test_a_tenant_gets_a_weight_and_quotas_and_keeps_what_is_not_named(rota: Rota) -> None:
    ran = rota("tenants", "set", "acme", "--weight", "2", "--running", "3", "--json")
    assert ran.json["weight"] == 2, ran.err
    ran = rota("tenants", "set", "acme", "--memory", "1GiB", "--cpu", "1.5", "--json")
    quota = {"running": 3, "queued": None, "cpu": 1.5, "memory": 1 << 30}
    assert (ran.json["weight"], ran.json["quota"]) == (2, quota)
    assert rota("tenants", "set", "acme", "--running", "none", "--json").json["quota"]["cpu"] == 1.5
    ran = rota("submit", "--tenant", "acme", "--expects", "1s", "--preemptible", "--wait", "--noop")
    assert ran.status == 0, ran.err
    assert "acme" in rota("tenants").out
    assert "acme" in rota("tenants", "show", "acme").out
    assert rota("tenants", "show", "nobody").status == 1


def test_what_a_job_took_is_reported_and_too_little_memory_is_asked_for_again(rota: Rota) -> None:
    program = "import time; x = bytearray(100 << 20); time.sleep(0.5)"
    ran = rota(
        *("submit", "--wait", "--json", "--name", "hungry", "--memory", "48MiB", "--delay", "0s"),
        *("--retries", "3", "--memory-factor", "3", "--", sys.executable, "-c", program),
    )
    assert ran.status == 0, ran.err
    assert ran.json["requirements"]["memory"] == 144 << 20
    tries = rota("executions", "--json", "--job", ran.json["job_id"]).json["items"]
    assert [one["memory"] for one in tries] == [144 << 20, 48 << 20]
    report = rota("report", "waste", "--name", "hungry", "--json").json
    assert report["items"][0]["sums"]["runs"] == 2
    assert report["items"][0]["used"]["memory"]["max"] > 100 << 20


def test_a_job_is_placed_by_the_labels_of_workers(rota: Rota) -> None:
    workers = rota("workers", "--json").json["items"]
    here = next(f"host={one['labels']['host']}" for one in workers if one["status"] == "online")
    assert rota("submit", "--wait", "--require", here, "--", "true").status == 0
    job_id = rota("submit", "--require", "zone=mars", "--", "true").out.strip()
    printed = rota("why", job_id).out
    assert re.search(r"none has the label zone=mars; without that \d workers? could", printed)
    assert rota("autoscale", "--json").json["stranded"] == 1
    assert rota("cancel", job_id).status == 0


def test_an_installation_is_checked_and_left_as_it_was(rota: Rota) -> None:
    before = rota("jobs", "--json").json
    url = str(discover(environ=os.environ).url)
    ran = rota("verify", "--live", url)
    assert ran.status == 0, ran.out
    assert "all guarantees that were checked hold" in ran.out
    assert rota("jobs", "--json").json == before
