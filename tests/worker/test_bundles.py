"""Bundles on a worker: fetched once, checked at each use, unpacked for each job, run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from rota.wire.jobs import BundleRun, Command, Container, RequirementsView, Task
from rota.wire.workers import CompletedReport
from rota.worker.runners.bundles import BundleCache, BundleError
from rota.worker.runners.process import ProcessRunner
from rota.worker.server_client import AwayError
from tests.archives import special, tar_of, tar_with, zip_of
from tests.worker.orders import order
from tests.worker.runner_context import Sink, runner_context, until

APP = "019a85c2-6b1e-7c3a-9f00-000000000001"
DATA = "019a85c2-6b1e-7c3a-9f00-000000000002"
SCRIPT = b'#!/bin/sh\necho "$0 $*"; ls; cat "$ROTA_INPUTS"/d/* 2>/dev/null; exit 0\n'


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def run_of(
    task: dict[str, object], workspace: Path, sink: Sink, **changes: object
) -> ProcessRunner:
    view = order("e1", task, **changes)
    read = msgspec.json.decode(view.task, type=Task)
    assert isinstance(read, Command | BundleRun | Container)
    return ProcessRunner(view, read, runner_context(workspace, sink, 0.5))


async def ran(
    task: dict[str, object], workspace: Path, sink: Sink, **changes: object
) -> CompletedReport:
    return await run_of(task, workspace, sink, **changes).run()


def bundle(**more: object) -> dict[str, object]:
    return {"kind": "bundle", "bundle_id": APP, **more}


def message(report: CompletedReport) -> str:
    return str(msgspec.json.decode(report.error)["message"])


def cached(workspace: Path) -> list[str]:
    """The contents that the machine has."""
    cache = workspace.parent / f"{workspace.name}-bundles"
    return sorted(one for one in os.listdir(cache) if "." not in one) if cache.exists() else []


async def test_a_script_is_run_as_it_was_uploaded(workspace: Path, sink: Sink) -> None:
    sink.bundles[APP] = ("hello.sh", "file", SCRIPT)
    report = await ran(bundle(), workspace, sink)
    assert (report.status, bytes(sink.log)) == ("succeeded", b"./hello.sh \nhello.sh\n")
    assert os.listdir(workspace) == [], "its folder is gone"


@pytest.mark.parametrize("kind", ["zip", "tar"])
async def test_a_program_is_run_in_the_unpacked_archive(
    workspace: Path, sink: Sink, kind: str
) -> None:
    files = {"run.sh": SCRIPT, "lib/a.txt": b"a"}
    packed = zip_of(files) if kind == "zip" else tar_of(files, "gz")
    sink.bundles[APP] = ("app", kind, packed)  # type: ignore[assignment]
    for program in ("run.sh", "./run.sh"):
        sink.log.clear()
        report = await ran(bundle(argv=[program, "42"]), workspace, sink)
        assert (report.status, bytes(sink.log)) == ("succeeded", b"./run.sh 42\nlib\nrun.sh\n")
    assert len(sink.fetched) == 1, "the second job found it here"


async def test_inputs_are_found_under_their_names(workspace: Path, sink: Sink) -> None:
    sink.bundles[APP] = ("hello.sh", "file", SCRIPT)
    sink.bundles[DATA] = ("data.tar", "tar", tar_of({"x.txt": b"from the archive\n"}))
    report = await ran(bundle(inputs={"d": DATA}), workspace, sink)
    assert bytes(sink.log).endswith(b"from the archive\n"), report
    sink.log.clear()
    task = {"kind": "command", "argv": ["sh", "-c", 'cd "$ROTA_INPUTS"; ls s'],
            "inputs": {"s": APP}}  # fmt: skip
    assert (await ran(task, workspace, sink)).status == "succeeded"
    assert bytes(sink.log) == b"hello.sh\n"


async def test_a_job_cannot_spoil_the_bundle_for_the_next_one(workspace: Path, sink: Sink) -> None:
    script = b"#!/bin/sh\ncat note; echo changed > note; chmod +w . run.sh; echo >> run.sh\n"
    sink.bundles[APP] = ("app", "tar", tar_of({"run.sh": script, "note": b"as it was\n"}))
    for _ in range(2):
        sink.log.clear()
        await ran(bundle(argv=["./run.sh"]), workspace, sink)
        assert bytes(sink.log) == b"as it was\n"


async def test_a_damaged_bundle_in_the_cache_is_fetched_again(workspace: Path, sink: Sink) -> None:
    sink.bundles[APP] = ("hello.sh", "file", SCRIPT)
    await ran(bundle(), workspace, sink)
    (name,) = cached(workspace)
    copy = workspace.parent / f"{workspace.name}-bundles" / name
    evil = b"#!/bin/sh\necho evil\n".ljust(len(SCRIPT))
    before = copy.stat()
    copy.write_bytes(evil)
    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
    sink.log.clear()
    assert (await ran(bundle(), workspace, sink)).status == "succeeded"
    assert b"evil" not in sink.log
    assert len(sink.fetched) == 2


async def test_an_interrupted_fetch_is_resumed_where_it_was(workspace: Path, sink: Sink) -> None:
    content = SCRIPT + b"# " + os.urandom(5000).hex().encode()
    sink.bundles[APP] = ("hello.sh", "file", content)
    sink.line_bytes = 3000
    assert (await ran(bundle(), workspace, sink)).status == "succeeded"
    assert sink.fetched == [(APP, 0), (APP, 3000)]


async def test_a_bundle_with_a_wrong_checksum_is_never_run(workspace: Path, sink: Sink) -> None:
    sink.bundles[APP] = ("hello.sh", "file", SCRIPT)
    sink.views[APP] = await sink.show_bundle("e1", APP)
    sink.bundles[APP] = ("hello.sh", "file", b"#!/bin/sh\necho evil\n".ljust(len(SCRIPT)))
    report = await ran(bundle(), workspace, sink)
    assert report.status == "failed"
    assert "checksum" in message(report)
    assert (bytes(sink.log), cached(workspace)) == (b"", [])


async def test_jobs_that_start_together_fetch_a_bundle_once(workspace: Path, sink: Sink) -> None:
    sink.bundles[APP] = ("hello.sh", "file", SCRIPT)
    reports = await asyncio.gather(*(ran(bundle(), workspace, sink) for _ in range(5)))
    assert {report.status for report in reports} == {"succeeded"}
    assert len(sink.fetched) == 1


def age(cache: Path) -> None:
    """Uses so far were a second ago: times of files have the resolution of the kernel's tick."""
    for lock in cache.glob("*.lock"):
        seen = lock.stat()
        os.utime(lock, ns=(seen.st_atime_ns, seen.st_mtime_ns - 1_000_000_000))


async def test_the_cache_evicts_the_bundle_that_was_longest_unused(
    tmp_path: Path, sink: Sink
) -> None:
    cache = BundleCache(tmp_path, sink, bytes_max=2500)
    ids = [APP, DATA, "019a85c2-6b1e-7c3a-9f00-000000000003"]
    for number, one in enumerate(ids):
        sink.bundles[one] = ("x", "file", bytes([number]) * 1000)
    for one in (ids[0], ids[1], ids[0], ids[2], ids[0]):
        _, handle = await cache.open("e1", one)
        os.close(handle)
        age(tmp_path)
    assert [one for one, _ in sink.fetched] == ids, "the first was in use, the second had to go"
    sink.bundles[APP] = ("x", "file", bytes(3000))
    with pytest.raises(BundleError, match="--bundle-cache"):
        await cache.open("e1", APP)


async def test_a_hostile_archive_fails_the_job_and_says_why(workspace: Path, sink: Sink) -> None:
    sink.bundles[APP] = ("evil.tar", "tar", tar_with(special("../../x", b"0")))
    report = await ran(bundle(argv=["./x"]), workspace, sink)
    assert report.status == "failed"
    assert "evil.tar was not unpacked: the name '../../x' leads outside of it" in message(report)
    sink.bundles[DATA] = ("bomb.zip", "zip", zip_of({"bomb": bytes(20_000_000)}))
    needs = RequirementsView(1, 0, 1_000_000, 0, {}, [])
    task = bundle(argv=["./x"], bundle_id=DATA)
    report = await ran(task, workspace, sink, requirements=needs)
    assert "larger than allowed" in message(report)


async def test_a_bundle_that_was_removed_fails_the_job_and_says_so(
    workspace: Path, sink: Sink
) -> None:
    report = await ran(bundle(), workspace, sink)
    assert report.status == "failed"
    assert "cannot be fetched" in message(report)


async def test_a_job_can_be_cancelled_while_its_bundle_is_fetched(
    workspace: Path, sink: Sink
) -> None:
    sink.bundles[APP] = ("hello.sh", "file", SCRIPT * 100)
    sink.open.clear()
    run = run_of(bundle(), workspace, sink)
    running = asyncio.create_task(run.run())
    await until(lambda: bool(sink.fetched))
    run.stop("cancelled")
    async with asyncio.timeout(10):
        report = await running
    assert report.status == "cancelled"
    assert os.listdir(workspace) == []


async def test_a_fetch_waits_for_a_server_that_is_away(workspace: Path, sink: Sink) -> None:
    sink.bundles[APP] = ("hello.sh", "file", SCRIPT)
    sink.bundle_errors = [AwayError("restarting"), AwayError("restarting")]
    assert (await ran(bundle(), workspace, sink)).status == "succeeded"
