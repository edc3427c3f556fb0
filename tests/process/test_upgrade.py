"""A server that was told to leave the schema alone, on the first one there ever was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota.store.migrate import known_migrations
from rota.store.postgres.connect import parse_address
from rota.store.postgres.migrate import migrate_postgres
from tests.postgres.cell import Cell as Database
from tests.process.cell import Cell, shell

pytestmark = [pytest.mark.postgres, pytest.mark.process]


def test_it_runs_jobs_and_shows_what_it_does_without(tmp_path: Path) -> None:
    database = Database()
    asyncio.run(migrate_postgres(parse_address(database.dsn), known_migrations("postgres")[:1]))
    with Cell(tmp_path) as cell:
        cell.up("--store", database.dsn, "--no-migrate")
        cell.worker()
        client = cell.client()
        job = client.submit(shell("echo hello", "job"))
        cell.until_status(client, job.job_id, "succeeded")
        warnings = cell.http().get("/cluster").json()["warnings"]
        assert any("tokens and the audit trail are not kept" in one for one in warnings)
        assert "schema 1 is older than this program" in cell.server.text()
    assert database.server.sql("SELECT max(number) FROM rota.migrations", database.database) == "1"
