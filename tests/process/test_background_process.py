"""Background process of a server on PostgreSQL: killed, frozen, replaced, ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.process.cell import is_alive, until
from tests.process.test_cluster import MANY, NOOP, Cluster, Server

pytestmark = [pytest.mark.process, pytest.mark.postgres]

TAKE_OVER_S = 20.0
"""Far more than the two seconds that are promised: shared machines stall."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as made:
        yield made


def background_of(server: Server) -> psutil.Process:
    """The process that projects for a server."""

    def look() -> psutil.Process | None:
        with suppress(psutil.Error):
            for one in psutil.Process(server.daemon.pid).children():
                if any("rota.processes.background" in word for word in one.cmdline()):
                    return one
        return None

    found = until(look, "a background process")
    assert found is not None
    return found


def submit(server: Server, count: int) -> list[str]:
    """Accepted jobs that wait for a worker."""
    answer = server.ask("POST", "/jobs/batch", {"jobs": [NOOP] * count}, 201)
    return list(answer["job_ids"])


def test_jobs_are_accepted_and_shown_after_the_background_process_was_killed(
    cluster: Cluster,
) -> None:
    server = cluster.serve("a")
    accepted: list[str] = []
    for _ in range(3):
        before = background_of(server)
        before.kill()
        accepted += submit(server, MANY)
        until(lambda gone=before.pid: background_of(server).pid != gone, "another one")  # type: ignore[misc]

        def is_shown(newest: str = accepted[-1]) -> bool:
            return server.http.get(f"/jobs/{newest}").status_code == 200

        until(is_shown, "the newest job in the tables")
    seen = {job["job_id"] for job in server.ask("GET", "/jobs?limit=1000")["items"]}
    assert seen == set(accepted)
    assert server.ask("GET", "/cluster")["epoch"] == 1, "leadership does not depend on it"


def test_another_server_projects_while_the_background_process_of_the_leader_is_frozen(
    cluster: Cluster,
) -> None:
    leader, other = cluster.serve("a"), cluster.serve("b")
    background_of(other)
    frozen = background_of(leader)
    frozen.suspend()
    try:
        (job,) = submit(leader, 1)
        began = time.monotonic()
        until(lambda: other.http.get(f"/jobs/{job}").status_code == 200, "the job in the tables")
        assert time.monotonic() - began < TAKE_OVER_S
        assert leader.ask("GET", f"/jobs/{job}")["status"] == "queued"
    finally:
        with suppress(psutil.Error):
            frozen.resume()
    assert leader.ask("GET", "/cluster")["epoch"] == 1


def test_a_frozen_background_process_of_the_only_server_is_replaced(cluster: Cluster) -> None:
    server = cluster.serve("a")
    frozen = background_of(server)
    frozen.suspend()
    (job,) = submit(server, 1)
    until(lambda: server.http.get(f"/jobs/{job}").status_code == 200, "the job in the tables")
    assert background_of(server).pid != frozen.pid


def test_a_background_process_ends_with_its_server(cluster: Cluster) -> None:
    stopped, killed = cluster.serve("a"), cluster.serve("b")
    left = [background_of(one).pid for one in (stopped, killed)]
    assert stopped.daemon.stop() == 0
    killed.daemon.signal(signal.SIGKILL)
    killed.daemon.wait()
    until(lambda: not any(is_alive(pid) for pid in left), "their background processes gone")
