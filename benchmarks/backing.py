"""A PostgreSQL for one measurement, as durable as it is installed, on the disk that is measured."""

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


class Backing:
    """One server with one database, gone when it is removed."""

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
        self._wear_in(worn_segments)
        self.dsn = self.new_dsn()

    def _wear_in(self, segments: int) -> None:
        """Lets it have files of its log to write over, as one has that has been in use for an hour.

        A new one makes each of them first, zero by zero, while somebody waits for a commit.
        """
        fill = "SELECT pg_logical_emit_message(false, '', ''); SELECT pg_switch_wal();"
        self._server.sql(fill * segments)
        self._server.sql("CHECKPOINT")

    def new_dsn(self) -> str:
        """The address of one more database, empty."""
        return self._server.dsn(self._server.new_database())

    def processes(self) -> list[psutil.Process]:
        """All that the server has now."""
        return self._server.processes()

    def sql(self, statement: str) -> str:
        """What a statement says of the database at `dsn`, bare."""
        return self._server.sql(statement, self.dsn.rpartition("/")[2])

    @property
    def folder(self) -> Path:
        """Where all its files are."""
        return self._server.folder

    def new_token(self, tenant: str | None = None) -> str:
        """One that its servers honour; an empty store gets its tables."""
        whose = ["--role", "admin"] if tenant is None else ["--role", "viewer", "--tenant", tenant]
        made = subprocess.run(
            [sys.executable, "-m", "rota", "tokens", "create", "--store", self.dsn,
             *whose, "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return str(json.loads(made.stdout)["token"])

    def remove(self) -> None:
        """Ends it."""
        self._server.remove()
