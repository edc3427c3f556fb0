"""Commands as real processes: environment, payload, results, output, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from rota.wire.groups import PlaceView, RankView
from rota.wire.jobs import Command, RequirementsView, Task
from rota.wire.traces import parse_traceparent
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.runners.process import ProcessRunner
from rota.worker.server_client import AwayError, RefusedError
from tests.worker.orders import order, python, shell
from tests.worker.runner_context import Sink, runner_context, until


@pytest.fixture
def sink() -> Sink:
    return Sink()


def run_of(view: OrderView, where: Path, sink: Sink, grace_s: float = 5.0) -> ProcessRunner:
    command = msgspec.json.decode(view.task, type=Task)
    assert isinstance(command, Command)
    return ProcessRunner(view, command, runner_context(where, sink, grace_s))


async def ran(
    task: dict[str, object], where: Path, sink: Sink, **changes: object
) -> CompletedReport:
    return await run_of(order("e1", task, **changes), where, sink).run()


def left_in(folder: Path) -> list[str]:
    return os.listdir(folder)


def error(report: CompletedReport) -> dict[str, object]:
    found = msgspec.json.decode(report.error)
    assert isinstance(found, dict)
    return found


async def test_a_program_that_exits_with_zero_succeeds(tmp_path: Path, sink: Sink) -> None:
    report = await ran(shell("echo out; echo err >&2; echo again"), tmp_path, sink)
    assert (report.status, report.exit_code, report.fence) == ("succeeded", 0, 7)
    assert bytes(sink.log) == b"out\nerr\nagain\n", "both streams, in the order of writing"
    assert report.usage is not None
    assert report.usage["memory_peak"] > 0
    assert left_in(tmp_path) == [], "its folder is gone"


@pytest.mark.parametrize(("code", "retryable"), [(3, True), (75, True), (78, False)])
async def test_another_exit_code_fails_and_says_so(
    tmp_path: Path, sink: Sink, code: int, retryable: bool
) -> None:
    report = await ran(shell(f"echo broken; exit {code}"), tmp_path, sink)
    assert (report.status, report.exit_code, report.retryable) == ("failed", code, retryable)
    assert error(report) == {"message": f"exit code {code}", "exit_code": code, "tail": "broken"}


async def test_death_by_signal_is_named(tmp_path: Path, sink: Sink) -> None:
    report = await ran(shell("kill -9 $$"), tmp_path, sink)
    assert report.exit_code == 137
    assert error(report)["message"] == "killed by SIGKILL"


async def test_a_job_gets_the_documented_variables_and_none_of_the_agent_s(
    tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TOKEN", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    task = python("import json, os; print(json.dumps(dict(os.environ)))")
    task["env"] = {"MINE": "yes", "ROTA_FENCE": "999"}
    await ran(task, tmp_path, sink, traceparent="00-aa-bb-01")
    env = json.loads(sink.log)
    assert "secret" not in env.values()
    assert env["MINE"] == "yes"
    assert env["LC_TIME"] == "C"
    assert (env["ROTA_FENCE"], env["ROTA_ATTEMPT"], env["ROTA_WORKER"]) == ("7", "1", "tester")
    assert (env["ROTA_EXECUTION_ID"], env["ROTA_JOB_ID"]) == ("e1", "job-of-e1")
    assert env["ROTA_SCHEDULED_AT"].startswith("2026-01-01")
    assert env["TRACEPARENT"] == "00-aa-bb-01"
    assert env["TMPDIR"].startswith(str(tmp_path))
    assert "CUDA_VISIBLE_DEVICES" not in env


async def test_a_job_without_a_trace_gets_one_of_its_own(
    tmp_path: Path,
) -> None:
    texts: list[str] = []
    for execution, fence in (("e1", 7), ("e1", 7), ("e1", 8), ("e2", 7)):
        sink, view = Sink(), order(execution, shell("echo $TRACEPARENT"), fence=fence)
        await run_of(view, tmp_path, sink).run()
        texts.append(sink.log.decode().strip())
    first, again, later, other = (parse_traceparent(text) for text in texts)
    assert first is not None, texts
    assert later is not None, texts
    assert other is not None, texts
    assert first == again
    assert first.sampled, "what the program records must not be dropped for it"
    assert (later.trace_id, later.span_id == first.span_id) == (first.trace_id, False)
    assert other.trace_id != first.trace_id


async def test_a_member_of_an_array_finds_it_in_its_environment(tmp_path: Path, sink: Sink) -> None:
    place = PlaceView("array-1", 3, 10)
    await ran(shell("env | grep ROTA_ARRAY | sort"), tmp_path, sink, array=place)
    assert bytes(sink.log).split() == [
        b"ROTA_ARRAY_COUNT=10",
        b"ROTA_ARRAY_ID=array-1",
        b"ROTA_ARRAY_INDEX=3",
    ]


async def test_a_member_of_a_gang_finds_its_peers_in_its_environment(
    tmp_path: Path, sink: Sink
) -> None:
    rank = RankView("gang-1", 1, 3, ["a", "b", "b"])
    await ran(shell("env | grep ROTA_GANG | sort"), tmp_path, sink, gang=rank)
    assert bytes(sink.log).split() == [
        b"ROTA_GANG_HOSTS=a,b,b",
        b"ROTA_GANG_ID=gang-1",
        b"ROTA_GANG_INDEX=1",
        b"ROTA_GANG_SIZE=3",
    ]


async def test_a_job_that_requested_gpus_finds_which_in_its_environment(
    tmp_path: Path, sink: Sink
) -> None:
    wanted = RequirementsView(1, 0, 0, 2, {}, [])
    await ran(shell("echo $CUDA_VISIBLE_DEVICES"), tmp_path, sink, requirements=wanted)
    assert bytes(sink.log) == b"0,1\n"


async def test_a_job_has_a_private_folder_and_inherits_no_descriptors(
    tmp_path: Path, sink: Sink
) -> None:
    code = (
        "import os, stat; open('made', 'w').close();"
        "mode = lambda path: oct(stat.S_IMODE(os.stat(path).st_mode));"
        "print(mode('..'), mode('made'),"
        "os.getsid(0) == os.getpid() == os.getpgid(0), os.read(0, 1),"
        "os.path.exists('/proc/self/fd/%d'))"
    )
    inherited = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inherited, True)  # noqa: FBT003  (it takes no names)
    await ran(python(code % inherited), tmp_path, sink)
    os.close(inherited)
    assert bytes(sink.log).split() == [b"0o700", b"0o600", b"True", b"b''", b"False"]


async def test_a_job_reads_its_payload_and_leaves_a_result_and_files(
    tmp_path: Path, sink: Sink
) -> None:
    script = (
        'sed s/in/out/ "$ROTA_PAYLOAD" > "$ROTA_RESULT"; echo data > "$ROTA_ARTIFACTS/a.txt";'
        'mkdir "$ROTA_ARTIFACTS/sub" "$ROTA_ARTIFACTS/none"; echo b > "$ROTA_ARTIFACTS/sub/b.txt"'
    )
    report = await ran(shell(script), tmp_path, sink, payload=msgspec.Raw(b'{"v": "in"}'))
    assert msgspec.json.decode(report.result) == {"v": "out"}
    assert sink.files == {"a.txt": b"data\n", "sub/b.txt": b"b\n"}
    assert bytes(sink.log) == b""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (rb"caf\351", rb"'caf\udce9' in ROTA_ARTIFACTS is not kept: its name is not UTF-8"),
        (rb".caf\351", rb"'.caf\udce9' in ROTA_ARTIFACTS is not kept: it is hidden"),
        (rb"a\nb", rb"'a\nb' in ROTA_ARTIFACTS is not kept: its name has a backslash or"),
        (rb"a\\b", rb"a\b in ROTA_ARTIFACTS is not kept: its name has a backslash or"),
    ],
)
async def test_a_file_with_a_name_that_cannot_be_kept_does_not_fail_the_job(
    tmp_path: Path, sink: Sink, name: bytes, said: bytes
) -> None:
    script = f'cd "$ROTA_ARTIFACTS"; echo x > "$(printf \'{name.decode()}\')"; echo data > a.txt'
    report = await ran(shell(script), tmp_path, sink)
    assert report.status == "succeeded"
    assert sink.files == {"a.txt": b"data\n"}
    assert said in sink.log


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('echo "{" > "$ROTA_RESULT"', "not JSON"),
        ('echo NaN > "$ROTA_RESULT"', "not JSON"),
        ('printf "\\"\\377\\"" > "$ROTA_RESULT"', "not JSON"),
        ('head -c 2000000 /dev/zero > "$ROTA_RESULT"', "larger than"),
        ('mkfifo "$ROTA_RESULT"', "no longer a plain file"),
        ('ln -s /etc/passwd "$ROTA_RESULT"', "cannot be read"),
    ],
)
async def test_an_unusable_result_fails_the_job(
    tmp_path: Path, sink: Sink, script: str, why: str
) -> None:
    report = await ran(shell(script), tmp_path, sink)
    assert report.status == "failed"
    assert why in str(error(report)["message"])


async def test_progress_is_sent_while_the_job_runs(tmp_path: Path, sink: Sink) -> None:
    go_on = tmp_path / "go-on"
    script = (
        'echo "nonsense\n0.4 half way" > "$ROTA_PROGRESS";'
        f"until [ -e {go_on} ]; do sleep 0.02; done;"
        'echo 0.9 >> "$ROTA_PROGRESS"'
    )
    where = tmp_path / "w"
    where.mkdir()
    running = asyncio.create_task(ran(shell(script), where, sink))
    await until(lambda: bool(sink.progress))
    go_on.touch()
    await running
    assert sink.progress == [(0.4, "half way"), (0.9, None)]


async def test_output_is_sent_while_the_job_runs(tmp_path: Path, sink: Sink) -> None:
    run = run_of(order("e1", shell("echo early; sleep 600")), tmp_path, sink)
    running = asyncio.create_task(run.run())
    await until(lambda: bytes(sink.log) == b"early\n")
    run.stop("cancelled")
    await running


async def test_a_missing_program_is_named(tmp_path: Path, sink: Sink) -> None:
    report = await ran({"kind": "command", "argv": ["no-such-program"]}, tmp_path, sink)
    assert report.status == "failed"
    assert "program 'no-such-program' was not found" in str(error(report)["message"])
    assert left_in(tmp_path) == []


async def test_a_missing_folder_is_named(tmp_path: Path, sink: Sink) -> None:
    task = {"kind": "command", "argv": ["true"], "cwd": "/no/such/folder"}
    report = await ran(task, tmp_path, sink)
    assert "working folder '/no/such/folder' does not exist" in str(error(report)["message"])


async def test_a_file_that_is_not_a_program_is_named(tmp_path: Path, sink: Sink) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    report = await ran({"kind": "command", "argv": [str(script)]}, tmp_path, sink)
    assert "may not be executed" in str(error(report)["message"])
    script.chmod(stat.S_IRWXU)
    report = await ran({"kind": "command", "argv": [str(script)]}, tmp_path, sink)
    assert "first line such as #!/bin/sh" in str(error(report)["message"])


async def test_a_folder_that_the_job_made_unreadable_is_removed(tmp_path: Path, sink: Sink) -> None:
    await ran(shell("mkdir -p a/b; touch a/b/c; chmod 500 a/b; chmod 000 a"), tmp_path, sink)
    assert left_in(tmp_path) == []


async def test_output_that_is_not_text_arrives_unchanged(tmp_path: Path, sink: Sink) -> None:
    report = await ran(shell(r"printf '\377\000\376'; exit 1"), tmp_path, sink)
    assert bytes(sink.log) == b"\xff\x00\xfe"
    assert "�" in str(error(report)["tail"])


async def test_a_log_stays_bounded_when_the_server_is_slow(tmp_path: Path, sink: Sink) -> None:
    sink.open.clear()
    code = "import sys; sys.stdout.buffer.write(b'x' * 5_000_000 + b'the end')"
    run = run_of(order("e1", python(code)), tmp_path, sink)
    running = asyncio.create_task(run.run())
    await until(lambda: run._output.tail().endswith("the end"))
    sink.open.set()
    await running
    assert len(sink.log) < 2_500_000
    assert sink.log.count(b" bytes left out: they came faster than the server took them") == 1
    assert sink.log.endswith(b"the end")


async def test_a_chunk_whose_answer_was_lost_is_stored_once(tmp_path: Path, sink: Sink) -> None:
    sink.failures = 2
    await ran(shell("echo once"), tmp_path, sink)
    assert bytes(sink.log) == b"once\n"


async def test_an_output_file_that_the_server_refuses_fails_the_job(
    tmp_path: Path, sink: Sink
) -> None:
    sink.artifact_errors = [RefusedError(413, "too large")]
    report = await ran(shell('echo x > "$ROTA_ARTIFACTS/big"'), tmp_path, sink)
    assert report.status == "failed"
    assert "big could not be kept: too large" in str(error(report)["message"])


async def test_an_older_server_that_takes_no_folders_does_not_fail_the_job(
    tmp_path: Path, sink: Sink
) -> None:
    sink.takes_folders = False
    script = 'cd "$ROTA_ARTIFACTS"; mkdir sub; echo x > sub/x; echo y > y'
    report = await ran(shell(script), tmp_path, sink)
    assert (report.status, sink.files) == ("succeeded", {"y": b"y\n"})
    assert b"sub/x in ROTA_ARTIFACTS is not kept" in sink.log


async def test_output_files_wait_for_a_server_that_is_away(tmp_path: Path, sink: Sink) -> None:
    sink.artifact_errors = [AwayError("restarting"), AwayError("restarting")]
    report = await ran(shell('echo x > "$ROTA_ARTIFACTS/kept"'), tmp_path, sink)
    assert report.status == "succeeded"
    assert sink.files == {"kept": b"x\n"}


async def test_a_program_may_be_given_by_its_path(tmp_path: Path, sink: Sink) -> None:
    task = {"kind": "command", "argv": [sys.executable, "-V"], "cwd": str(tmp_path)}
    report = await ran(task, tmp_path, sink)
    assert report.status == "succeeded"
