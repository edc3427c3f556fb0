"""Server on PostgreSQL whose tables are locked: what needs them is refused, all else goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import httpx2
import pytest

from tests.postgres.server import shared_server
from tests.process.cell import Cell, until

pytestmark = [pytest.mark.postgres, pytest.mark.process]

SOON_S = 8.0
"""More than the two seconds that a read waits, for a slow machine."""


@contextmanager
def locked(dsn: str, table: str) -> Iterator[None]:
    """Holds a lock that keeps the projection from writing to a table."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(dsn))
        runner.run(connection.execute(f"BEGIN; LOCK TABLE {table} IN SHARE MODE"))
        try:
            yield
        finally:
            runner.run(connection.execute("ROLLBACK"))
            runner.run(connection.close())


def run_one(http: httpx2.Client, worker_id: str, name: str) -> str:
    """Submits a job, has the worker take it and report it; returns its id."""
    job = {"name": name, "task": {"kind": "noop"}}
    submitted = http.post("/jobs", json=job, headers={"Idempotency-Key": name})
    assert submitted.status_code == 201, submitted.text
    leased = http.post(f"/workers/{worker_id}/lease", json={"max": 1, "wait": 5})
    assert leased.status_code == 200, leased.text
    (order,) = leased.json()["executions"]
    report = {"status": "succeeded", "fence": order["fence"]}
    completed = http.post(f"/executions/{order['execution_id']}/complete", json=report)
    assert completed.status_code == 200, completed.text
    return str(submitted.json()["job_id"])


def test_work_goes_on_while_the_tables_are_locked(tmp_path: Path) -> None:
    postgres = shared_server()
    dsn = postgres.dsn(postgres.new_database())
    with Cell(tmp_path) as cell:
        cell.up("--store", dsn)
        http = cell.http()
        registered = http.post(
            "/workers/register", json={"name": "box", "resources": {"cpu": 8, "memory": "1GiB"}}
        )
        worker_id = registered.json()["worker_id"]
        run_one(http, worker_id, "before")
        assert http.get("/jobs").status_code == 200
        epoch = http.get("/cluster").json()["epoch"]
        with locked(dsn, "rota.jobs_done"):
            during = run_one(http, worker_id, "during")
            began = time.monotonic()
            refused = http.get("/jobs")
            assert time.monotonic() - began < SOON_S
            assert refused.status_code == 503, refused.text
            assert refused.json()["type"].endswith("tables_behind")
            assert refused.headers["retry-after"] == "1"
            also = run_one(http, worker_id, "also")
        until(lambda: http.get("/jobs").status_code == 200, "tables that have caught up")
        for job_id in (during, also):
            assert http.get(f"/jobs/{job_id}").json()["status"] == "succeeded"
        assert http.get("/cluster").json()["epoch"] == epoch
        assert http.get("/readyz").json()["role"] == "leader"


def test_a_server_whose_tables_cannot_follow_is_not_ready_and_says_why(tmp_path: Path) -> None:
    postgres = shared_server()
    dsn = postgres.dsn(postgres.new_database())
    with Cell(tmp_path) as cell:
        cell.up("--store", dsn)
        http = cell.http()
        with locked(dsn, "rota.jobs_live"):
            submitted = http.post("/jobs", json={"name": "j", "task": {"kind": "noop"}})
            assert submitted.status_code == 201
            until(lambda: http.get("/readyz").status_code == 503, "a server that is not ready")
            (reason,) = http.get("/readyz").json()["reasons"]
            assert reason.startswith("the tables")
            assert "tables" in "".join(http.get("/cluster").json()["warnings"])
            assert "fail" in cell.run("doctor").stdout
        until(lambda: http.get("/readyz").status_code == 200, "a server that is ready again")
