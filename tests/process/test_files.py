"""Files through real servers and workers: killed in the middle of an upload, none is damaged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path

import httpx2
import pytest

from rota.sdk import NotFoundError
from rota.sdk.methods.file_calls import PIECE_BYTES
from rota.wire.bundles import BundleView
from tests.archives import tar_of
from tests.process.cell import Cell, until

pytestmark = pytest.mark.process

SCRIPT = b"#!/bin/sh\nset -e\ncat lib/greeting; cat $ROTA_INPUTS/data/*\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Slow:
    """A body that comes piece by piece, each when it is let go."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.sent = 0
        self.go = threading.Semaphore(0)

    def __iter__(self) -> Slow:
        return self

    def __next__(self) -> bytes:
        if self.sent >= len(self._content):
            raise StopIteration
        self.go.acquire()
        piece = self._content[self.sent : self.sent + 65_536]
        self.sent += len(piece)
        return piece


def sending(http: httpx2.Client, body: Slow, content: bytes) -> threading.Thread:
    """An upload beside the test; how it ends is of no interest."""

    def send() -> None:
        with contextlib.suppress(httpx2.TransportError):
            http.post("/bundles", params={"sha256": sha256(content)}, content=body)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def test_an_upload_goes_on_after_the_server_was_killed_in_its_middle(
    cell: Cell, tmp_path: Path
) -> None:
    content = os.urandom(2_000_000)
    cell.up()
    body = Slow(content)
    thread = sending(cell.http(), body, content)
    for _ in range(8):
        body.go.release()
    place = f"/bundles/uploads/{sha256(content)}"
    http = cell.http()
    until(lambda: http.get(place).json()["offset"] >= 4 * 65_536, "some of the upload")
    cell.server.kill()
    for _ in range(100):
        body.go.release()
    thread.join(30)
    cell.up()
    there = cell.http().get(place).json()["offset"]
    assert 4 * 65_536 <= there < len(content)
    file = tmp_path / "big.bin"
    file.write_bytes(content)
    client = cell.client()
    bundle = client.push_bundle(file)
    assert (bundle.sha256, bundle.size) == (sha256(content), len(content))
    client.fetch_bundle(bundle.bundle_id, tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == content
    assert len(list((cell.data / "objects" / "bundles").iterdir())) == 1
    assert list((cell.data / "uploads").iterdir()) == []


@pytest.mark.slow
def test_a_client_pushes_on_while_its_server_is_killed_and_restarted(
    cell: Cell, tmp_path: Path
) -> None:
    content = os.urandom(5 * PIECE_BYTES + 17)
    file = tmp_path / "big.bin"
    file.write_bytes(content)
    cell.up()
    client, pushed = cell.client(60), list[BundleView]()
    thread = threading.Thread(target=lambda: pushed.append(client.push_bundle(file)))
    thread.start()
    place, http = f"/bundles/uploads/{sha256(content)}", cell.http()
    until(lambda: http.get(place).json()["offset"] >= PIECE_BYTES, "a piece")
    cell.server.kill()
    cell.up()
    thread.join(60)
    assert [bundle.sha256 for bundle in pushed] == [sha256(content)]


def test_bundles_inputs_and_large_output_files_are_transferred(cell: Cell, tmp_path: Path) -> None:
    script = (
        SCRIPT + b"head -c 3000000 /dev/zero > $ROTA_ARTIFACTS/zeros; echo s > $ROTA_ARTIFACTS/s\n"
        b"mkdir -p $ROTA_ARTIFACTS/sub/sub; cp $ROTA_ARTIFACTS/zeros $ROTA_ARTIFACTS/sub/sub\n"
        b"echo t > $ROTA_ARTIFACTS/sub/t"
    )
    app, data = tmp_path / "app.tar.gz", tmp_path / "data.txt"
    app.write_bytes(tar_of({"run.sh": script, "lib/greeting": b"hello\n"}, "gz"))
    data.write_bytes(b"data\n")
    cell.up()
    worker = cell.worker("w")
    args = ("--bundle", str(app), "--input", f"data={data}", "--follow", "--", "./run.sh")
    ran = cell.run("submit", *args)
    assert (ran.returncode, ran.stdout) == (0, "hello\ndata\n"), ran.stderr
    job_id = ran.stderr.split()[1]
    got = cell.run("artifacts", "get", job_id, "-o", str(tmp_path / "out"))
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "out/zeros").read_bytes() == bytes(3_000_000)
    assert (tmp_path / "out/s").read_bytes() == b"s\n"
    assert (tmp_path / "out/sub/sub/zeros").read_bytes() == bytes(3_000_000)
    assert (tmp_path / "out/sub/t").read_bytes() == b"t\n"
    one = cell.run("artifacts", "get", job_id, "sub/t", "-o", str(tmp_path / "one"))
    assert (one.returncode, (tmp_path / "one/sub/t").read_bytes()) == (0, b"t\n")
    assert cell.run("artifacts", "list", job_id).stdout.count("\n") == 5
    assert len(list((cell.data / "objects").rglob("outputs/*/*"))) == 2
    bare = cell.run("submit", "--follow", "--", "true").stderr.split()[1]
    none = cell.run("artifacts", "get", bare, "-o", str(tmp_path / "none"))
    assert (none.returncode, none.stderr) == (0, "the job has no output files\n")
    bundles = cell.run("bundles", "--json")
    assert bundles.stdout.count("bundle_id") == 2
    again = cell.run("bundles", "push", str(app))
    assert again.stdout.strip() in bundles.stdout, "the same content is the same bundle"
    assert cell.run("bundles", "rm", again.stdout.strip()).returncode == 0
    client = cell.client()
    with pytest.raises(NotFoundError):
        client.bundle(again.stdout.strip())
    assert worker.stop() == 0


def test_a_job_whose_bundle_was_removed_fails_with_the_reason(cell: Cell, tmp_path: Path) -> None:
    cell.up()
    client = cell.client()
    file = tmp_path / "run.sh"
    file.write_bytes(b"#!/bin/sh\n")
    bundle = client.push_bundle(file)
    task = {"kind": "bundle", "bundle_id": bundle.bundle_id}
    job = client.submit({"name": "late", "task": task})
    client.delete_bundle(bundle.bundle_id)
    cell.worker("w")
    ended = client.wait(job.job_id)
    assert ended.status == "failed"
    assert "cannot be fetched" in ended.error["message"]
