"""Files of a data directory that are removed or damaged: reported clearly, nothing made anew."""

from __future__ import annotations

import os
import shutil

import httpx2
import pytest

from tests.process.cell import Cell, until

pytestmark = pytest.mark.process


def submit(http: httpx2.Client) -> httpx2.Response:
    return http.post("/jobs", json={"name": "job", "task": {"kind": "noop"}})


def test_a_server_whose_database_is_removed_accepts_nothing_more(cell: Cell) -> None:
    cell.up()
    http = cell.http()
    assert submit(http).status_code == 201
    for path in cell.data.glob("rota.db*"):
        path.unlink()
    for _ in range(20):
        refused = submit(http)
        assert refused.status_code == 503
    assert "rota.db" in refused.json()["detail"]
    ready = until(
        lambda: answer if (answer := http.get("/readyz")).status_code == 503 else None, "unready"
    )
    assert ready is not None
    assert "while the server used it" in ready.text
    assert http.get("/jobs").status_code in (500, 503)
    assert not list(cell.data.glob("rota.db*")), "nothing is made anew"
    cell.server.kill()
    refused_start = cell.run("up", "--port", "0", "--data", str(cell.data), "--workers", "0")
    assert refused_start.returncode == 1
    assert "Traceback" not in refused_start.stderr
    assert "is missing or empty, but logs.db is there" in refused_start.stderr


@pytest.mark.parametrize("kept", [2000, 3 * 4096])
def test_a_truncated_database_is_refused_in_one_line(cell: Cell, kept: int) -> None:
    cell.up()
    for _ in range(5):
        assert submit(cell.http()).status_code == 201
    assert cell.server.stop() == 0
    shutil.copy(cell.data / "rota.db", cell.data / "copy")
    os.truncate(cell.data / "rota.db", kept)
    refused = cell.run("up", "--port", "0", "--data", str(cell.data), "--workers", "0")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    [line] = refused.stderr.splitlines()
    assert "damaged" in line
    assert "restore a backup" in line
    found = cell.run("doctor", "--data", str(cell.data))
    assert found.returncode == 1
    shutil.move(cell.data / "copy", cell.data / "rota.db")
    assert cell.run("doctor", "--data", str(cell.data)).returncode == 0
    cell.up()
