"""Commands that change something."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rota.cli.connect import CommandLimits
from rota.cli.jobs import _draw_bulk
from rota.wire.jobs import BulkAnswer
from rota.wire.problems import FieldError
from tests.cli.conftest import Rota
from tests.sdk.fake_cell import RefusedError
from tests.sdk.fake_server import SmallServer


def submitted(server: SmallServer) -> Any:
    """The last job as the server read it."""
    return json.loads(server.writes()[-1].body)


def test_a_submitted_command_prints_its_id_alone_into_a_pipe(
    server: SmallServer, rota: Rota
) -> None:
    ran = rota("submit", "--", "python3", "bill.py", "--verbose")
    (job,) = server.jobs.values()
    assert (ran.status, ran.out) == (0, f"{job.job_id}\n")
    assert job.name == "python3"
    assert submitted(server)["task"]["argv"] == ["python3", "bill.py", "--verbose"]


def test_options_of_submit_become_task_and_requirements(
    server: SmallServer, rota: Rota, tmp_path: Path
) -> None:
    ran = rota(
        *("submit", "-n", "train", "--cpu", "2.5", "-m", "2GiB", "--storage", "1GB", "--gpu", "1"),
        *("--custom", "licence=1", "-c", "cuda", "-e", "X=1", "--cwd", str(tmp_path), "--json"),
        *("--", "./train.sh"),
    )
    assert ran.status == 0, ran.err
    assert ran.json["status"] == "queued"
    needs = {
        "cpu": 2.5,
        "memory": 2 << 30,
        "storage": 10**9,
        "gpu": 1.0,
        "custom": {"licence": 1.0},
        "capabilities": ["cuda"],
    }
    task = {"kind": "command", "argv": ["./train.sh"], "env": {"X": "1"}, "cwd": str(tmp_path)}
    assert submitted(server) == {"name": "train", "task": task, "requirements": needs}


def test_options_of_submit_become_fields_of_the_job(
    server: SmallServer, rota: Rota, tmp_path: Path
) -> None:
    upstream = server.add_job("up")
    (tmp_path / "data.json").write_text('{"n": [1, 2]}')
    ran = rota(
        *("submit", "-q", "gpu", "--tenant", "lab", "-p", "5", "--at", "2030-01-01T00:00:00Z"),
        *("--after", f"{upstream.job_id[-8:]}:finished", "--expires", "2031-01-01T00:00:00Z"),
        *("-t", "10m", "--retries", "3", "--backoff", "linear", "--delay", "2s", "--at-most-once"),
        *("--concurrency-key", "k", "--concurrency-limit", "2", "-l", "team=a=b"),
        *("--payload", f"@{tmp_path}/data.json", "--noop"),
    )
    assert ran.status == 0, ran.err
    assert submitted(server) == {
        "name": "noop",
        "task": {"kind": "noop"},
        "queue": "gpu",
        "tenant": "lab",
        "priority": 5,
        "dependencies": [{"job_id": upstream.job_id, "when": "finished"}],
        "run_at": "2030-01-01T00:00:00Z",
        "expires_at": "2031-01-01T00:00:00Z",
        "timeout": 600,
        "retry": {"max_attempts": 4, "backoff": "linear", "delay": 2},
        "semantics": "at_most_once",
        "concurrency": {"key": "k", "limit": 2},
        "labels": {"team": "a=b"},
        "payload": {"n": [1, 2]},
    }


def test_options_that_are_left_out_are_not_sent(server: SmallServer, rota: Rota) -> None:
    rota("submit", "--noop")
    assert submitted(server) == {"name": "noop", "task": {"kind": "noop"}}


@pytest.mark.parametrize(
    "args",
    [
        ("submit",),
        ("submit", "--noop", "--", "ls"),
        ("submit", "--at", "tomorrow", "--", "ls"),
        ("submit", "--at", "2030-01-01", "--in", "1h", "--", "ls"),
        ("submit", "--memory", "lots", "--", "ls"),
        ("submit", "--label", "team", "--", "ls"),
        ("submit", "--payload", "{", "--", "ls"),
        ("submit", "--custom", "x=many", "--", "ls"),
        ("submit", "--custom", "x=inf", "--", "ls"),
        ("submit", "--cpu", "nan", "--", "ls"),
        ("submit", "--gpu", "inf", "--", "ls"),
        ("update", "01a1e490-9f21-7000-95db-8eb8d4cf5ca9", "--cpu", "nan"),
        ("submit", "--concurrency-limit", "2", "--", "ls"),
        ("submit", "--from", "x.jsonl", "--", "ls"),
        ("submit", "--follow", "--copies", "2", "--", "ls"),
        ("bulk", "cancel", "--queue", "video", "--status", "", "--yes"),
    ],
)
def test_contradictory_options_of_submit_are_usage_errors(
    server: SmallServer, rota: Rota, args: tuple[str, ...]
) -> None:
    ran = rota(*args)
    assert ran.status == 2, ran
    assert server.jobs == {}


def test_who_answers_no_is_told_that_nothing_was_done(
    server: SmallServer, rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add_job("waits", "queued", queue="video")
    person = io.StringIO("n\n")
    monkeypatch.setattr(person, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", person)
    ran = rota("bulk", "cancel", "--queue", "video")
    assert ran.status == 1
    assert ran.err.endswith("rota: nothing was done\n")
    assert [job.status for job in server.jobs.values()] == ["queued"]


def test_without_any_stdin_nobody_is_asked_and_nothing_done(
    server: SmallServer, rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add_job("waits", "queued", queue="video")
    monkeypatch.setattr("sys.stdin", None)
    ran = rota("bulk", "cancel", "--queue", "video")
    assert ran.status == 1
    assert ran.err.endswith("There is no terminal to ask on: add --yes\n")
    assert [job.status for job in server.jobs.values()] == ["queued"]


def test_an_empty_key_is_refused_and_does_not_stand_for_none(
    server: SmallServer, rota: Rota
) -> None:
    ran = rota("submit", "--key", "", "--noop")
    assert ran.status == 1
    assert "is not an idempotency key" in ran.err
    assert server.jobs == {}


def test_following_a_job_prints_its_log_and_exits_as_it_did(
    server: SmallServer, rota: Rota
) -> None:
    server.on_submit = lambda job_id: server.run(job_id, b"oh no\n", exit_code=7)
    ran = rota("submit", "--follow", "--", "false")
    assert (ran.status, ran.out) == (7, "oh no\n")


def test_a_job_ended_by_a_signal_exits_as_a_shell_would_say_it(
    server: SmallServer, rota: Rota
) -> None:
    server.on_submit = lambda job_id: server.run(job_id, exit_code=-9)
    assert rota("submit", "--follow", "--", "sleep", "60").status == 137


def test_waiting_for_what_was_submitted_exits_by_how_it_ended(
    server: SmallServer, rota: Rota
) -> None:
    server.on_submit = lambda job_id: server.move(job_id, "failed")
    assert rota("submit", "--wait", "--", "false").status == 1
    server.on_submit = lambda job_id: server.move(job_id, "succeeded")
    ran = rota("submit", "--wait", "--json", "--", "true")
    assert (ran.status, ran.json["status"]) == (0, "succeeded")


@pytest.mark.parametrize("how", ["--wait", "--follow"])
def test_a_job_that_somebody_else_ended_is_told_with_the_reason(
    server: SmallServer, rota: Rota, how: str
) -> None:
    why = {"message": "program './bil.py' was not found on this worker"}
    server.on_submit = lambda job_id: server.move(job_id, "failed", reason="error", error=why)
    ran = rota("submit", how, "--", "./bil.py")
    (job_id,) = server.jobs
    told = f"rota: job {job_id[-8:]} ended as failed: program './bil.py' was not found"
    assert (ran.status, ran.err.splitlines()[-1]) == (1, f"{told} on this worker")
    assert rota("wait", job_id).err.startswith(told)


def test_a_job_that_was_stopped_in_the_middle_says_by_whom(server: SmallServer, rota: Rota) -> None:
    def stop(job_id: str) -> None:
        server.run(job_id, b"half\n", exit_code=143)
        server.move(job_id, "failed", reason="timeout", error={"message": "timed out after 1 s"})

    server.on_submit = stop
    ran = rota("submit", "--follow", "--", "sleep", "9")
    assert (ran.status, ran.out) == (143, "half\n")
    assert ran.err.endswith("ended as failed: timed out after 1 s\n")


def test_copies_go_in_batches(server: SmallServer, rota: Rota) -> None:
    ran = rota("submit", "--noop", "--copies", "2500")
    assert len(ran.out.splitlines()) == len(server.jobs) == 2500
    assert [one.path for one in server.writes()] == ["/jobs/batch"] * 3


def test_an_array_and_a_gang_are_one_job_each(server: SmallServer, rota: Rota) -> None:
    rota("submit", "--count", "1000", "--max-parallel", "20", "--", "./render.sh")
    rota("submit", "--gang", "4", "--", "./solve.sh")
    array, gang = (json.loads(one.body) for one in server.writes())
    assert (array["count"], array["max_parallel"]) == (1000, 20)
    assert gang["gang"] == {"size": 4}
    assert rota("submit", "--gang", "1", "--", "ls").status == 2


def test_a_file_of_jobs_may_refer_across_batches(
    server: SmallServer, rota: Rota, tmp_path: Path
) -> None:
    job = {"task": {"kind": "noop"}}
    lines = [
        {**job, "name": "a", "ref": "a"},
        {**job, "name": "b", "ref": "b", "dependencies": ["ref:a"]},
        {**job, "name": "c", "dependencies": ["ref:a", {"job_id": "ref:b", "when": "finished"}]},
    ]
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n\n".join(json.dumps(line) for line in lines))
    two = CommandLimits(batch_jobs=2)
    ran = rota("submit", "--from", str(path), "-q", "mail", "--json", limits=two)
    a, b, c = ran.json["job_ids"]
    assert [need.job_id for need in server.jobs[c].dependencies] == [a, b]
    assert [need.job_id for need in server.jobs[b].dependencies] == ["ref:a"]
    assert server.jobs[a].queue == "mail"


def test_a_bad_line_is_named(server: SmallServer, rota: Rota, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"name": "a"}\n\nnonsense\n')
    ran = rota("submit", "--from", str(path))
    assert ran.status == 1
    assert f"{path}:3: not a JSON object" in ran.err


def test_a_job_that_the_server_refuses_is_named_by_its_line(
    server: SmallServer, rota: Rota, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"name": "a"}\n\n{"name": "b"}\n')
    server.batch_refusal = RefusedError(422, "bad", [FieldError("jobs[1].task", "is missing")])
    ran = rota("submit", "--from", str(path))
    assert ran.err == f"rota: {path}:3: task: is missing\n"


def test_a_missing_file_is_one_line(server: SmallServer, rota: Rota) -> None:
    ran = rota("submit", "--from", "nowhere.jsonl")
    assert (ran.status, ran.err) == (1, "rota: nowhere.jsonl: No such file or directory\n")


def test_waiting_says_how_it_ended_by_its_exit_status(server: SmallServer, rota: Rota) -> None:
    good, bad = server.add_job(status="succeeded"), server.add_job(status="failed")
    assert rota("wait", good.job_id).status == 0
    both = rota("wait", good.job_id, bad.job_id)
    assert both.status == 1
    assert both.out.splitlines() == [f"{good.job_id[-8:]} succeeded", f"{bad.job_id[-8:]} failed"]


def test_wait_gives_up_after_its_timeout(server: SmallServer, rota: Rota) -> None:
    live = server.add_job()
    ran = rota("wait", live.job_id, "--timeout", "100ms")
    assert ran.status == 1
    assert ran.err == f"rota: 1 job did not end in time: {live.job_id[-8:]}\n"


def test_one_refused_job_does_not_stop_the_others(server: SmallServer, rota: Rota) -> None:
    ended, live = server.add_job(status="succeeded"), server.add_job()
    ran = rota("cancel", ended.job_id, live.job_id)
    assert server.jobs[live.job_id].status == "cancelled"
    assert ran.status == 1
    assert "has ended" in ran.err
    assert ran.out == f"{live.job_id[-8:]} cancelled\n"


def test_jobs_are_retried_updated_executed_and_deleted(server: SmallServer, rota: Rota) -> None:
    job = server.add_job(status="failed")
    worker = server.add_worker("box-1")
    assert rota("retry", job.job_id, "--json").json["status"] == "queued"
    assert rota("update", job.job_id, "--priority", "9", "--json").json["priority"] == 9
    assert rota("update", job.job_id).status == 2
    rota("execute", job.job_id, "--worker", "box-1")
    assert submitted(server) == {"worker_id": worker.worker_id}
    assert rota("delete", job.job_id).status == 1
    assert rota("delete", job.job_id, "--force").status == 0
    assert server.jobs == {}


def test_an_update_is_a_merge_patch_of_what_was_said(server: SmallServer, rota: Rota) -> None:
    job = server.add_job()
    rota("update", job.job_id, "--cpu", "2", "--retries", "1", "--patch", '{"run_at": null}')
    assert submitted(server) == {
        "requirements": {"cpu": 2.0},
        "retry": {"max_attempts": 2},
        "run_at": None,
    }


def test_a_bulk_action_needs_a_filter_and_a_confirmation(server: SmallServer, rota: Rota) -> None:
    server.add_job()
    assert rota("bulk", "cancel").status == 2
    unasked = rota("bulk", "cancel", "--status", "queued")
    assert (unasked.status, "add --yes" in unasked.err) == (1, True)
    counted = rota("bulk", "cancel", "--status", "queued", "--dry-run")
    assert counted.out == "would cancel: 1 job\n"
    assert {job.status for job in server.jobs.values()} == {"queued"}
    assert rota("bulk", "cancel", "--status", "queued", "--yes").out == "cancel: 1 job\n"
    assert {job.status for job in server.jobs.values()} == {"cancelled"}
    assert rota("bulk", "reprioritise", "--all", "--yes").status == 2


def test_why_some_jobs_were_left_as_they_are_is_told_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _draw_bulk("delete", BulkAnswer(count=1, refused=2_000, reasons={"it is running": 2_000}))
    shown = capsys.readouterr()
    assert shown.out == "delete: 1 job\n"
    assert shown.err == "2,000 jobs matched but were refused\n  2,000: it is running\n"


def test_a_queue_that_is_not_there_is_made(server: SmallServer, rota: Rota) -> None:
    assert rota("queues", "set", "mail", "--max-workers", "4").status == 0
    assert [one.method for one in server.writes()] == ["PATCH", "PUT"]
    assert server.queues["mail"].max_workers == 4


def test_a_queue_is_set_paused_and_purged(server: SmallServer, rota: Rota) -> None:
    rota("queues", "pause", "mail")
    rota("queues", "set", "mail", "--max-workers", "none", "--rate", "100/m", "--priority", "2")
    assert submitted(server) == {
        "max_workers": None,
        "rate_limit": {"count": 100, "per": 60},
        "priority": 2,
    }
    assert server.writes()[-1].method == "PATCH"
    rota("queues", "set", "mail", "--reset")
    assert server.writes()[-1].method == "PUT"
    assert rota("queues", "set", "mail").status == 2
    assert rota("queues", "set", "mail", "--rate", "fast").status == 2
    assert rota("queues", "pause", "mail", "--json").json["paused"] is True
    assert rota("queues", "resume", "mail", "--json").json["paused"] is False
    assert rota("queues", "purge", "mail").status == 1
    assert rota("queues", "purge", "mail", "--yes").out == "cancelled 3 jobs\n"


def test_a_queue_s_limits_are_set_by_name_and_shown(server: SmallServer, rota: Rota) -> None:
    rota("queues", "pause", "mail")
    limits = ("--limit", "processes=256", "--limit", "file_size=2GiB", "--limit", "log_size=none")
    assert rota("queues", "set", "mail", *limits).status == 0
    sent = {"processes": 256, "file_size": "2GiB", "log_size": None}
    assert json.loads(server.writes()[-1].body) == {"limits": sent}
    assert rota("queues", "set", "mail", "--limit", "processes").status == 2
    shown = rota("queues", "show", "mail").out
    assert "limits of each job: 4,096 processes, 8,192 open files" in shown


def test_a_worker_is_drained_and_removed_by_name(server: SmallServer, rota: Rota) -> None:
    worker = server.add_worker("box-1")
    assert rota("workers", "drain", "box-1").out == "box-1 is draining\n"
    assert rota("workers", "remove", worker.worker_id[-8:]).status == 0
    assert server.workers == {}
