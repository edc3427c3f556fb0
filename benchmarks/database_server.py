"""A PostgreSQL server for one measurement, with default durability, on the measured disk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.postgres.server import PostgresServer

SETTINGS = {"shared_buffers": "256MB", "max_connections": "100"}
SEGMENT_MIB = 16
"""One file of the write-ahead log."""
WORN_SEGMENTS = 40
"""Of these files: enough for some hundred thousand jobs."""


class DatabaseServer:
    """One server with one database."""

    def __init__(
        self,
        place: Path,
        settings: Mapping[str, str] | None = None,
        worn_segments: int = WORN_SEGMENTS,
    ) -> None:
        # It runs as another user, who must be able to reach its folder.
        place.chmod(0o755)
        kept = {"min_wal_size": f"{worn_segments * SEGMENT_MIB}MB"}
        self._server = PostgresServer(
            SETTINGS | kept | dict(settings or {}), quick=False, within=place
        )
        self._write_log_files(worn_segments)
        self.dsn = self.new_dsn()

    def _write_log_files(self, segments: int) -> None:
        """Creates files of the write-ahead log, as a server has after an hour of use.

        A new server creates each of them first, zero by zero, while a commit waits.
        """
        fill = "SELECT pg_logical_emit_message(false, '', ''); SELECT pg_switch_wal();"
        self._server.sql(fill * segments)
        self._server.sql("CHECKPOINT")

    def new_dsn(self) -> str:
        return self._server.dsn(self._server.new_database())

    def processes(self) -> list[psutil.Process]:
        return self._server.processes()

    def sql(self, statement: str) -> str:
        """Runs a statement on the database at `dsn`; returns its output."""
        return self._server.sql(statement, self.dsn.rpartition("/")[2])

    @property
    def folder(self) -> Path:
        return self._server.folder

    def new_token(self, tenant: str | None = None) -> str:
        """Creates a token; an empty store gets its tables."""
        whose = ["--role", "admin"] if tenant is None else ["--role", "viewer", "--tenant", tenant]
        made = subprocess.run(
            [sys.executable, "-m", "rota", "tokens", "create", "--store", self.dsn,
             *whose, "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return str(json.loads(made.stdout)["token"])

    def remove(self) -> None:
        self._server.remove()
