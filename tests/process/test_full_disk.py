"""Full data disk: reported clearly, nothing damaged, and work resumes with free space."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import httpx2
import msgspec
import psutil
import pytest

from rota.sdk import JobSearch
from tests.process.cell import Cell, until

pytestmark = pytest.mark.process

ROOM_BYTES = 3 * 1024 * 1024
PAYLOAD = "x" * 60_000
BATCHES_MAX = 400


def submit(http: httpx2.Client, key: str) -> httpx2.Response:
    """Two jobs that belong together, with something to carry."""
    job = {"name": key, "task": {"kind": "noop"}, "payload": {"text": PAYLOAD}}
    jobs = [{**job, "ref": "a"}, {**job, "dependencies": ["ref:a"]}]
    return http.post("/jobs/batch", json={"jobs": jobs}, headers={"Idempotency-Key": key})


def fill(http: httpx2.Client) -> tuple[dict[str, list[str]], list[httpx2.Response]]:
    """Submits until the server has refused a few; what it acknowledged, and its refusals."""
    acknowledged: dict[str, list[str]] = {}
    refused: list[httpx2.Response] = []
    for number in range(BATCHES_MAX):
        answer = submit(http, f"fill-{number}")
        if answer.status_code == 201:
            acknowledged[f"fill-{number}"] = answer.json()["job_ids"]
        else:
            refused.append(answer)
        if len(refused) == 3:
            break
    assert acknowledged
    assert len(refused) == 3
    return acknowledged, refused


def assert_clear(refused: list[httpx2.Response]) -> None:
    for answer in refused:
        assert answer.status_code in (503, 507), answer.text
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["content-type"] == "application/problem+json"
        assert "disk is full" in answer.json()["detail"]
        assert "space" in answer.json()["detail"]


def assert_whole(cell: Cell, acknowledged: dict[str, list[str]]) -> None:
    """Every acknowledged job is there, once, whole, and runs; the files are sound."""
    http = cell.http()
    for key, ids in acknowledged.items():
        assert submit(http, key).json()["job_ids"] == ids
    cell.worker("w")
    client = cell.client()
    expected = sorted(job_id for ids in acknowledged.values() for job_id in ids)
    client.wait_all(expected, timeout_s=60)
    found = list(client.jobs(JobSearch(limit=100)))
    assert sorted(job.job_id for job in found) == expected
    assert {job.status for job in found} == {"succeeded"}
    assert {bytes(job.payload) for job in found} == {msgspec.json.encode({"text": PAYLOAD})}
    cell.workers[-1].stop()
    assert cell.server.stop() == 0
    for name in ("rota.db", "logs.db"):
        connection = apsw.Connection(str(cell.data / name))
        assert connection.pragma("integrity_check") == "ok"
        connection.close()


def limit_files(cell: Cell, size: int) -> None:
    psutil.Process(cell.server.pid).rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))


def room_is_back(cell: Cell) -> dict[str, list[str]]:
    """The server goes on by itself."""
    http = cell.http()
    answer = until(
        lambda: done if (done := submit(http, "room")).status_code == 201 else None, "room"
    )
    assert answer is not None
    until(lambda: http.get("/readyz").status_code == 200, "a ready server")
    return {"room": answer.json()["job_ids"]}


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_size_limit_on_the_data_is_reported_clearly(cell: Cell, *, restart: bool) -> None:
    cell.up()
    limit_files(cell, ROOM_BYTES)
    http = cell.http()
    acknowledged, refused = fill(http)
    assert_clear(refused)
    assert http.get("/healthz").status_code == 200
    assert http.get("/jobs").status_code in (200, 503, 507)
    if restart:
        cell.server.kill()
        cell.up()
    else:
        limit_files(cell, psutil.RLIM_INFINITY)
    assert_whole(cell, acknowledged | room_is_back(cell))


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own; only root can have one."""
    folder.mkdir(mode=0o700)
    options = ["-o", f"size={ROOM_BYTES * 3},mode=700"]
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk of its own can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def ballast(cell: Cell) -> Iterator[Callable[[], None]]:
    """The cell's data on a small disk that is soon full; the call gives room back."""
    with small_disk(cell.data):
        taken = cell.data / "somebody-elses-file"
        taken.write_bytes(b"x" * ROOM_BYTES * 2)
        yield taken.unlink


def test_a_full_disk_is_reported_clearly_and_the_server_recovers_with_free_space(
    cell: Cell, ballast: Callable[[], None]
) -> None:
    cell.up()
    http = cell.http()
    acknowledged, refused = fill(http)
    assert_clear(refused)
    ballast()
    assert_whole(cell, acknowledged | room_is_back(cell))


def test_a_start_on_a_full_disk_is_refused_in_one_line(
    cell: Cell, ballast: Callable[[], None]
) -> None:
    with suppress(OSError), (cell.data / "more").open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    refused = cell.run("up", "--port", "0", "--data", str(cell.data), "--workers", "0")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    [line] = refused.stderr.splitlines()
    assert "full" in line or "space" in line
    ballast()
    cell.up()
