"""Files on a cell of several servers: any of them has all, or says at its start that it cannot."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.server import remove_shared_server
from tests.process.cell import until
from tests.process.test_cluster import Cluster, Server

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.slow]

CONTENT = os.urandom(2_500_000)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as one:
        yield one


@pytest.fixture(scope="module", autouse=True)
def _postgres_ends() -> Iterator[None]:
    yield
    remove_shared_server()


def push(server: Server) -> str:
    query = {"name": "a", "sha256": hashlib.sha256(CONTENT).hexdigest()}
    answer = server.http.post("/bundles", params=query, content=CONTENT)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["bundle_id"])


def keep_output(server: Server) -> str:
    """A large output file of an execution; its path."""
    machine = {"name": "w", "resources": {"cpu": 2}}
    worker = server.ask("POST", "/workers/register", machine, 201)["worker_id"]
    server.ask("POST", "/jobs", {"name": "j", "task": {"kind": "noop"}}, 201)
    leased = server.ask("POST", f"/workers/{worker}/lease", {"wait": "5s"})
    path = f"/executions/{leased['executions'][0]['execution_id']}/artifacts/out.bin"
    assert server.http.put(path, content=CONTENT).status_code == 200
    return path


@pytest.mark.parametrize("storage", ["database", "folder"])
def test_a_file_that_one_server_took_can_be_read_from_every_server(
    cluster: Cluster, tmp_path: Path, storage: str
) -> None:
    more = ("--objects", str(tmp_path / "shared")) if storage == "folder" else ()
    leader, follower = cluster.serve("a", *more), cluster.serve("b", *more)
    warned = any("no object storage" in one for one in cluster.cluster_seen(leader)["warnings"])
    assert warned is (storage == "database")
    assert ("no object storage" in leader.daemon.text()) is warned
    assert (tmp_path / "shared").exists() is not warned
    bundle_id, output = push(follower), keep_output(follower)
    for server in (leader, follower):
        assert server.http.get(f"/bundles/{bundle_id}/content").content == CONTENT
        part = server.http.get(output, headers={"Range": "bytes=1000000-1000009"})
        assert (part.status_code, part.content) == (206, CONTENT[1_000_000:1_000_010])
    leader.daemon.kill()
    until(lambda: follower.role == "leader", "another leader")
    assert follower.http.get(output).content == CONTENT
    assert push(follower) == bundle_id


def test_a_second_server_without_the_shared_folder_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.serve("a", "--objects", str(tmp_path / "a-files"))
    second = cluster.launch(
        *("server", "--store", cluster.dsn, "--port", "0", "--data", str(tmp_path / "b")),
        *("--objects", str(tmp_path / "b-files")),
    )
    assert second.wait() != 0
    assert "is not the object storage of this cell" in second.text()
    assert "must be one that all servers share" in second.text()
