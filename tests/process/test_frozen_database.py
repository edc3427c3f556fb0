"""Server on a database that does not respond: it reports that, and stops when told."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.postgres.server import PostgresServer
from tests.process.cell import Cell, until

pytestmark = [pytest.mark.postgres, pytest.mark.process, pytest.mark.slow]


def test_a_server_on_a_frozen_database_is_not_ready_and_stops_when_told(tmp_path: Path) -> None:
    database = PostgresServer()
    with Cell(tmp_path) as cell:
        server = cell.up("--store", database.dsn(database.new_database()))
        frozen = database.processes()
        for process in frozen:
            process.suspend()
        try:
            http = cell.http()
            until(lambda: http.get("/readyz").status_code == 503, "a server that says so")
            server.signal(signal.SIGTERM)
            assert server.wait(90) == 0
        finally:
            for process in frozen:
                process.resume()
            database.remove()
