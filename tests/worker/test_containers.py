"""Containers, with a program on PATH that stands in for podman (`fake_engine.py`).

What podman itself makes of the command line is tried in tests/process/test_podman.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from rota.wire.jobs import Container, RequirementsView
from rota.worker.runners.containers import find_engine
from rota.worker.runners.process import ProcessRunner, RunnerContext
from tests.worker import fake_engine
from tests.worker.orders import order
from tests.worker.runner_context import Sink, alive, runner_context, supervisor_here, until


@pytest.fixture
async def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A machine with such a program on its PATH, and its service; where that writes things down."""
    folder, programs = tmp_path / "engine", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    fake = programs / "podman"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_engine.__file__} {folder} "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    args = [sys.executable, fake_engine.__file__, str(folder), "serve"]
    service = await asyncio.create_subprocess_exec(*args)
    await until((folder / "service").exists)
    yield folder
    service.kill()
    await service.wait()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def calls(state: Path) -> list[tuple[list[str], dict[str, str]]]:
    lines = (state / "calls").read_text().splitlines()
    found = [msgspec.json.decode(line) for line in lines]
    return [(args, env) for args, env in found if args[0] not in ("ps", "inspect")]


def with_engine(workspace: Path, sink: Sink) -> RunnerContext:
    return dataclasses.replace(runner_context(workspace, sink, 0.5), engine=find_engine("auto"))


def run_of(argv: list[str], workspace: Path, sink: Sink, **changes: object) -> ProcessRunner:
    task = Container(image="image", argv=argv, env={"GREETING": "hello"})
    return ProcessRunner(order("e1", **changes), task, with_engine(workspace, sink))


def containers(state: Path) -> list[str]:
    return sorted(one for one in os.listdir(state) if one.startswith("rota-"))


async def test_a_container_is_run_with_its_limits_and_removed(state: Path, workspace: Path) -> None:
    sink = Sink()
    script = "echo $GREETING; echo '\"done\"' > $ROTA_RESULT; echo x > $ROTA_ARTIFACTS/out"
    needs = RequirementsView(1.5, 256 << 20, 0, 0, {}, [])
    report = await run_of(["sh", "-c", script], workspace, sink, requirements=needs).run()
    assert (report.status, bytes(report.result)) == ("succeeded", b'"done"\n')
    assert bytes(sink.log) == b"hello\n"
    assert sink.files == {"out": b"x\n"}
    (ran, _), (removed, _) = calls(state)
    line = " ".join(ran)
    for wanted in (
        "run --name rota-e1",
        "--workdir /rota/work",
        "--security-opt no-new-privileges",
        "--pids-limit",
        "--ulimit nofile=",
        "--cpus 1.5",
        f"--memory {256 << 20}b",
        "image sh -c",
    ):
        assert wanted in line
    assert "hello" not in line, "variables are not on a line that everybody sees"
    assert removed == ["rm", "--force", "--volumes", "--time", "0", "rota-e1"]
    assert (containers(state), os.listdir(workspace)) == ([], [])


async def test_a_jobs_variables_never_reach_the_engine(
    state: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SECRET", "hidden")
    task = Container(image="image", argv=["env"], env={"DOCKER_HOST": "evil", "LD_PRELOAD": "x.so"})
    sink = Sink()
    await ProcessRunner(order("e1"), task, with_engine(workspace, sink)).run()
    for _, env in calls(state):
        assert {"DOCKER_HOST", "LD_PRELOAD", "GREETING", "AGENT_SECRET"}.isdisjoint(env)
    assert b"DOCKER_HOST=evil" in sink.log
    assert b"AGENT_SECRET" not in sink.log


async def test_a_container_s_exit_code_is_the_job_s(state: Path, workspace: Path) -> None:
    report = await run_of(["sh", "-c", "exit 7"], workspace, Sink()).run()
    assert (report.status, report.exit_code) == ("failed", 7)
    assert containers(state) == []


async def test_a_container_that_ran_out_of_memory_says_so(state: Path, workspace: Path) -> None:
    (state / "oom-killed").touch()
    needs = RequirementsView(1, 64 << 20, 0, 0, {}, [])
    report = await run_of(["sh", "-c", "exit 137"], workspace, Sink(), requirements=needs).run()
    error = msgspec.json.decode(report.error)
    assert (report.status, report.exit_code, error["reason"]) == ("failed", 137, "memory")
    assert error["message"] == "used 64 MiB of 64 MiB memory"


async def test_a_container_cannot_make_the_worker_overwrite_a_file_of_the_machine(
    state: Path, workspace: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    script = f"ln -s {precious} $ROTA_ARTIFACTS/../container.end"
    report = await run_of(["sh", "-c", script], workspace, Sink()).run()
    assert report.status == "succeeded"
    assert precious.read_text() == "kept"
    assert containers(state) == []


async def test_a_killed_container_is_reported_as_most_likely_out_of_memory(
    state: Path, workspace: Path
) -> None:
    needs = RequirementsView(1, 64 << 20, 0, 0, {}, [])
    report = await run_of(["sh", "-c", "exit 137"], workspace, Sink(), requirements=needs).run()
    error = msgspec.json.decode(report.error)
    assert "most likely because it wanted more than 64 MiB memory" in error["message"]
    assert "reason" not in error, "a guess is no ground to ask for more"


@pytest.mark.parametrize("how", ["cancelled", "abandoned", "timeout"])
async def test_a_container_is_removed_however_its_job_is_ended(
    state: Path, workspace: Path, how: str
) -> None:
    """It is no process of the job: only the engine can end it."""
    timeout = 1.0 if how == "timeout" else None
    run = run_of(["sleep", "60"], workspace, Sink(), timeout=timeout)
    running = asyncio.create_task(run.run())
    pid = await started(state)
    if how == "cancelled":
        run.stop("cancelled")
    elif how == "abandoned":
        run.abandon()
    async with asyncio.timeout(20):
        report = await running
    if how != "abandoned":
        assert report.status == {"cancelled": "cancelled", "timeout": "timed_out"}[how]
    assert calls(state)[-1][0][0] == "rm"
    assert (containers(state), alive(pid)) == ([], False)


async def started(state: Path) -> int:
    """The number of what runs in the container."""
    await until(lambda: any((state / one).read_text() for one in containers(state)))
    return int((state / containers(state)[0]).read_text())


async def test_a_container_ends_with_the_lease_though_the_agent_is_gone(
    state: Path, workspace: Path
) -> None:
    run = run_of(["sleep", "60"], workspace, Sink())
    running = asyncio.create_task(run.run())
    pid = await started(state)
    await supervisor_here().shut_down()  # its socket closes, as when the agent dies
    await running
    await until(lambda: not containers(state))
    assert not alive(pid)


async def test_a_program_without_its_service_is_not_taken_for_an_engine(state: Path) -> None:
    assert find_engine("auto") is not None
    assert find_engine("docker") is None
    assert find_engine("none") is None
    (state / "service").unlink()
    assert find_engine("podman") is None


async def test_without_an_engine_the_job_fails_and_says_so(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    report = await run_of(["x"], workspace, Sink()).run()
    assert report.status == "failed"
    assert "neither podman nor docker" in bytes(report.error).decode()
