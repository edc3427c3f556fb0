"""A job with a hundred thousand dependents: what is done to it stops nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.cell import until
from tests.process.test_cluster import NOOP, Cluster, Server

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.slow]

DEPENDENTS, BATCH = 100_000, 10_000
LATER = {**NOOP, "run_at": "2100-01-01T00:00:00Z"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as made:
        yield made


@contextmanager
def submitting(server: Server, reader: Server) -> Iterator[list[int]]:
    """Submits jobs all the time, and reads through another server, which wants the tables too.

    Yields the status of each submission.
    """
    statuses: list[int] = []
    over = threading.Event()

    def submit() -> None:
        while not over.wait(0.05):
            statuses.append(server.http.post("/jobs", json=LATER).status_code)

    def read() -> None:
        while not over.wait(0.05):
            reader.http.get("/jobs")

    threads = [threading.Thread(target=submit), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_wide_graph_is_cancelled_and_started_over_while_others_submit(cluster: Cluster) -> None:
    server = cluster.serve("a", "--leader-ttl", "3s")
    other = cluster.serve("b", "--leader-ttl", "3s")
    root = server.ask("POST", "/jobs", LATER, 201)["job_id"]
    batch = {"jobs": [{**NOOP, "name": "dependent", "dependencies": [root]}] * BATCH}
    for _ in range(DEPENDENTS // BATCH):
        server.ask("POST", "/jobs/batch", batch, 201)
    with submitting(server, other) as statuses:
        for method, act in (("PUT", "cancel"), ("POST", "retry"), ("PUT", "cancel")):
            # What reads the tables may be asked to try again while they are written.
            path = f"/jobs/{root}/{act}"
            until(lambda m=method, p=path: server.http.request(m, p).status_code == 200, act)  # type: ignore[misc]
    assert statuses
    assert set(statuses) == {201}
    assert server.ask("GET", "/cluster")["epoch"] == 1, "the leader kept its memory"

    def are_skipped() -> bool:
        found = server.http.get("/jobs?name=dependent&status=skipped&limit=1000")
        return found.status_code == 200 and len(found.json()["items"]) == 1000

    until(are_skipped, "the dependents skipped")
