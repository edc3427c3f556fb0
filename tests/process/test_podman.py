"""Containers by a real podman: Debian's, installed where that is allowed, on an image made here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.sdk import Client
from tests.process.cell import Cell, until

pytestmark = [pytest.mark.process, pytest.mark.slow]

IMAGE = f"localhost/rota-test:{os.getpid()}"
"""Its own for each process that tests: podman has one store for all of them."""
PACKAGES = ("podman", "runc", "busybox-static")
BUSYBOX = Path("/bin/busybox")
SHELL = "/bin/busybox"
LIMITS = ("--ulimit=nproc=500:500", "--ulimit=nofile=500:500")
CONFIG = """
[containers]
netns = "none"
[engine]
runtime = "runc"
"""
"""crun, which podman prefers, knows no machine where both generations of cgroups are mounted."""


def installed() -> bool:
    if shutil.which("podman") and shutil.which("runc") and BUSYBOX.exists():
        return True
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
    return not subprocess.run(command, env=quiet, check=False, capture_output=True).returncode


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A podman that runs containers, and a small image."""
    if not installed():
        pytest.skip(f"no podman: install Debian's packages {', '.join(PACKAGES)} (needs root)")
    config, layer = tmp_path / "containers.conf", tmp_path / "image.tar"
    config.write_text(CONFIG)
    monkeypatch.setenv("CONTAINERS_CONF", str(config))
    with tarfile.open(layer, "w") as tar:
        tar.add(BUSYBOX, SHELL.removeprefix("/"))
    subprocess.run(["podman", "import", str(layer), IMAGE], check=True, capture_output=True)
    tried = subprocess.run(
        ["podman", "run", "--rm", *LIMITS, IMAGE, SHELL, "true"],
        check=False,
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        pytest.skip(f"podman runs no containers on this machine: {tried.stderr.strip()}")
    yield
    subprocess.run(["podman", "rmi", "--force", IMAGE], check=False, capture_output=True)


@pytest.fixture
def client(cell: Cell, podman: None) -> Client:
    cell.up()
    # Without the right to raise limits podman's own default for processes is refused.
    cell.worker("w1", "--containers=podman", "--container-option=--ulimit=nproc=500:500")
    return cell.client()


def contained(script: str, **env: str) -> dict[str, object]:
    task = {"kind": "container", "image": IMAGE, "argv": [SHELL, "sh", "-c", script], "env": env}
    return {"name": "box", "task": task, "requirements": {"memory": "64MiB"}}


def left() -> str:
    ours = ("--filter", "label=rota=execution", "--filter", f"ancestor={IMAGE}")
    command = ["podman", "ps", "--all", "--quiet", *ours]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_container_runs_reports_and_is_removed(cell: Cell, client: Client) -> None:
    say = "echo in $HOSTNAME as $ROTA_ATTEMPT; echo '{\"sum\": 3}' > $ROTA_RESULT; exit $CODE"
    first = client.submit(contained(say, CODE="0"))
    second = client.submit(contained(say, CODE="9"))
    done = cell.until_status(client, first.job_id, "succeeded")
    failed = cell.until_status(client, second.job_id, "failed")
    assert client.result(done.job_id) == {"sum": 3}
    assert b" as 1\n" in client.logs(done.job_id)
    assert failed.error["exit_code"] == 9
    assert left() == ""


def test_a_cancelled_container_is_removed(cell: Cell, client: Client) -> None:
    job = client.submit(contained(f"echo up; {SHELL} sleep 600"))
    until(lambda: left() != "", "the container")
    client.cancel(job.job_id)
    cell.until_status(client, job.job_id, "cancelled")
    assert left() == ""


def test_a_container_that_exceeds_its_memory_fails_with_that_reason(
    cell: Cell, client: Client
) -> None:
    eat = "x=aaaaaaaaaaaaaaaa; while true; do x=$x$x; done"
    job = client.submit(contained(eat))
    failed = cell.until_status(client, job.job_id, "failed")
    # Not every podman notices what ended it; the message then says what it most likely was.
    assert "64 MiB memory" in failed.error["message"]
    assert left() == ""
