"""Failover to a standby that is some records behind: the cell goes on, and says what was lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.postgres.replica import Replica
from tests.postgres.server import PostgresServer
from tests.process.cell import until
from tests.process.test_cluster import NOOP, Cluster, Server

pytestmark = [pytest.mark.process, pytest.mark.postgres]

PATIENCE_S = 60.0
LOST = 4


class StandbyCluster(Cluster):
    """Two servers on a primary that can be lost, with a standby that gets nothing more."""

    def __init__(self, folder: Path) -> None:
        self.primary = PostgresServer()
        super().__init__(folder, self.primary)
        self.replica = Replica(self.primary)
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.replica.port}"
        self.dsn = self.dsn.replace(f"127.0.0.1:{self.primary.port}", hosts)

    def fail_over(self) -> None:
        """Loses the primary, with all that came after the standby was made."""
        self.primary.kill()
        self.replica.promote()

    def end(self) -> None:
        self.replica.stop()
        self.primary.remove()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandbyCluster]:
    made = StandbyCluster(tmp_path)
    try:
        with made:
            yield made
    finally:
        made.end()


def submit(server: Server, count: int) -> list[str]:
    return [server.ask("POST", "/jobs", NOOP, 201)["job_id"] for _ in range(count)]


def until_answered(server: Server, method: str, path: str, body: Any, status: int) -> Any:
    """What the server answers once it has got over the failover."""

    def ask() -> httpx2.Response | None:
        answer = server.http.request(method, path, json=body)
        return answer if answer.status_code == status else None

    found = until(ask, f"{method} {path} answered with {status}", PATIENCE_S)
    assert found is not None
    return found.json()


def run_one(server: Server) -> str:
    """Runs the next job on a worker of its own; returns its id."""
    machine = {"name": "w", "resources": {"cpu": 100}}
    worker = until_answered(server, "POST", "/workers/register", machine, 201)["worker_id"]
    (order, *_) = server.ask("POST", f"/workers/{worker}/lease", {"max": 1, "wait": "5s"})[
        "executions"
    ]
    report = {"status": "succeeded", "fence": order["fence"]}
    server.ask("POST", f"/executions/{order['execution_id']}/complete", report)
    return str(order["job_id"])


@pytest.mark.parametrize("leader_dies", [True, False])
def test_a_cell_goes_on_after_a_failover_that_lost_records_and_says_how_many(
    cluster: StandbyCluster, *, leader_dies: bool
) -> None:
    leader, other = cluster.serve("a"), cluster.serve("b")
    before = leader.ask("GET", "/cluster")
    lost = submit(leader, LOST)
    assert other.ask("GET", f"/jobs/{lost[-1]}")["status"] == "queued", "the follower has read it"
    if leader_dies:
        leader.daemon.signal(signal.SIGKILL)
        leader.daemon.wait()
    cluster.fail_over()
    new = until_answered(other, "POST", "/jobs", NOOP, 201)["job_id"]
    ran = run_one(other)
    assert ran == new
    assert until_answered(other, "GET", f"/jobs/{new}", None, 200)["status"] == "succeeded"
    view = until_answered(other, "GET", "/cluster", None, 200)
    assert view["lost_records"] >= LOST
    assert view["epoch"] > before["epoch"]
    for job_id in lost:
        assert other.http.get(f"/jobs/{job_id}").status_code == 404
