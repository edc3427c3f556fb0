"""Log lines of real processes name the job and execution that they are about."""

from __future__ import annotations

import json

import pytest

from tests.process.cell import Cell, shell, until

pytestmark = pytest.mark.process
TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_failed_execution_is_logged_with_its_ids(cell: Cell) -> None:
    server = cell.up("--workers", "1", "--log-format", "json")
    http = cell.http()
    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    job = http.post("/jobs", json=shell("exit 3", "bad"), headers=headers).json()
    cell.until_status(cell.client(), job["job_id"], "failed")

    def line() -> dict[str, object] | None:
        found = [one for one in server.text().splitlines() if "did not succeed" in one]
        return json.loads(found[0]) if found else None

    record = until(line, "a line about it")
    assert record is not None
    assert (record["job_id"], record["trace_id"], record["status"]) == (
        job["job_id"],
        TRACE,
        "failed",
    )
    assert record["execution_id"]
