"""Output of a job: log and progress, masked and passed on to no other job; and files."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from rota.store import limits as store
from rota.wire import limits as wire
from rota.worker.masking import Secrets
from rota.worker.runners.output_channels import ExecutionOutput, ProgressPipe
from rota.worker.runners.workspace import find_outputs
from tests.worker.orders import order
from tests.worker.runner_context import Sink

TASK = {"kind": "noop"}


async def test_secrets_are_masked_in_progress_messages() -> None:
    received: list[tuple[str, float, str | None]] = []
    output = ExecutionOutput(
        order("e1", TASK),
        Sink(),
        Secrets(["hunter22"]),
        lambda *args: received.append(args),
    )
    output.progressed(0.5, "logged in with hunter22")
    assert received == [("e1", 0.5, "logged in with ***")]
    output.close()


async def test_an_execution_without_output_has_nothing_to_flush_and_no_tail() -> None:
    output = ExecutionOutput(order("e1", TASK), Sink(), Secrets(()), lambda *_: None)
    await output.flush(asyncio.Event())
    assert output.tail() == ""
    assert output.unsent_log is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_abandoned_execution_does_not_wait_for_a_server_that_does_not_take_its_log() -> (
    None
):
    sink, at_once = Sink(), asyncio.Event()
    sink.open.clear()
    output = ExecutionOutput(order("e1", TASK), sink, Secrets(()), lambda *_: None)
    output.printed(b"a line\n")
    flushing = asyncio.create_task(output.flush(at_once))
    await asyncio.sleep(0)
    at_once.set()
    await flushing
    output.close()
    assert output.unsent_log is not None
    sink.open.set()
    await output.unsent_log
    assert bytes(sink.log) == b"a line\n"


async def test_progress_left_in_a_pipe_that_a_job_enlarged_is_not_reported_for_the_next_job(
    tmp_path: Path,
) -> None:
    path = tmp_path / "progress"
    os.mkfifo(path)
    pipe = ProgressPipe(path)
    first: list[float] = []
    second: list[float] = []
    received = asyncio.Event()

    def receive(value: float, _: str | None) -> None:
        second.append(value)
        received.set()

    pipe.listen(lambda value, _: first.append(value))
    job = os.open(path, os.O_WRONLY)
    fcntl.fcntl(job, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(job, b"0.25 of somebody else\n" * 20_000)
    os.close(job)
    pipe.stop_listening()
    pipe.listen(receive)
    job = os.open(path, os.O_WRONLY)
    os.write(job, b"0.5 mine\n")
    os.close(job)
    async with asyncio.timeout(30):
        await received.wait()
    pipe.close()
    assert (set(first), second) == ({0.25}, [0.5])


def _left(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_output_files_in_folders_are_named_by_their_relative_path(tmp_path: Path) -> None:
    _left(tmp_path, "b.txt", "plots/a.png", "plots/2026/c d.png")
    (tmp_path / "empty").mkdir()
    found = find_outputs(tmp_path)
    assert list(found.files) == ["b.txt", "plots/2026/c d.png", "plots/a.png"]
    assert [path.read_text() for path in found.files.values()] == list(found.files)
    assert found.others == []


@pytest.mark.parametrize("put_there", ["a link", "a file", "nothing"])
def test_a_job_that_removes_its_output_folder_has_no_file_kept(
    tmp_path: Path, put_there: str
) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "artifacts"
    _left(outside, "secret", "sub/secret")
    if put_there == "a link":
        folder.symlink_to(outside)
    elif put_there == "a file":
        folder.write_text("x")
    found = find_outputs(folder)
    assert found.files == {}
    assert "ROTA_ARTIFACTS is no longer a readable folder" in found.others[0]


def test_output_files_behind_links_are_not_kept(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    _left(outside, "secret")
    _left(inside, "kept", "sub/kept")
    (inside / "folder").symlink_to(outside)
    (inside / "sub" / "file").symlink_to(outside / "secret")
    (inside / "sub" / "up").symlink_to("..")
    found = find_outputs(inside)
    assert list(found.files) == ["kept", "sub/kept"]
    assert [other.split(" in ")[0] for other in found.others] == ["folder", "sub/file", "sub/up"]


def test_files_that_cannot_be_kept_are_named_in_the_log(tmp_path: Path) -> None:
    _left(tmp_path, ".git/config", "sub/.hidden", "sub/a\\b", "odd\n/file", "sub/kept")
    os.mkfifo(tmp_path / "sub" / "pipe")
    found = find_outputs(tmp_path)
    assert list(found.files) == ["sub/kept"]
    named = [other.partition(" in ROTA_ARTIFACTS is not kept: ")[0] for other in found.others]
    assert named == [".git", "'odd\\n'", "sub/.hidden", "sub/a\\b", "sub/pipe"]


def test_a_path_that_is_too_long_or_too_deep_is_not_kept(tmp_path: Path) -> None:
    long, deep = "x" * 100, "/".join("abcdefghijklmnop")
    _left(tmp_path, f"{long}/{long}/{long}", f"{long}/{long}/short", deep, f"{deep[:-1]}z/file")
    found = find_outputs(tmp_path)
    assert list(found.files) == [deep, f"{long}/{long}/short"]
    assert len(found.others) == 2


def test_too_many_output_files_are_counted_and_not_all_named(tmp_path: Path) -> None:
    _left(tmp_path, *(f"f/{number}" for number in range(8)))
    found = find_outputs(tmp_path, files_max=3, noted_max=2)
    assert list(found.files) == ["f/0", "f/1", "f/2"]
    assert found.others[:2] == [
        f"f/{number} in ROTA_ARTIFACTS is not kept: there are more than 3 files"
        for number in (3, 4)
    ]
    assert found.others[2:] == ["3 more in ROTA_ARTIFACTS are not kept"]


def test_worker_and_server_have_the_same_limits_for_output_files() -> None:
    assert wire.OUTPUT_NAME_BYTES_MAX == store.ARTIFACT_NAME_BYTES
    assert wire.OUTPUT_DEPTH_MAX == store.ARTIFACT_DEPTH
