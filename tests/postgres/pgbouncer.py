"""A PgBouncer in transaction mode before a PostgreSQL of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.postgres.server import PostgresServer, free_port, owner

_CONFIG = """
[databases]
* = host=127.0.0.1 port={database}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 300
server_reset_query =
logfile = {folder}/pgbouncer.log
"""
PATIENCE_S = 20.0


def pgbouncer() -> str | None:
    """Where the program is: on the PATH, or where Debian puts it."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class PgBouncer:
    """Few connections to the database, for as many as come."""

    def __init__(self, pool: int, settings: Mapping[str, str] | None = None) -> None:
        program = pgbouncer()
        assert program is not None
        self.server = PostgresServer(settings)
        self.port = free_port()
        self._folder = self.server.folder
        self._write("users", '"rota" ""\n')
        where = {"database": self.server.port, "port": self.port, "folder": self._folder}
        self._write("pgbouncer.ini", _CONFIG.format(pool=pool, **where))
        user = owner()
        # It refuses to run as root.
        self._process = subprocess.Popen(
            [program, str(self._folder / "pgbouncer.ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.environ.get("PATH", "")},
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
        )
        self._until_up()

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    def dsn(self, database: str, *ports: int) -> str:
        """The address of a database behind it."""
        port = ports[0] if ports else self.port
        return f"postgresql://rota@127.0.0.1:{port}/{database}?rota_pgbouncer=1"

    def new_database(self) -> str:
        return self.server.new_database()

    def keep_log(self, folder: Path) -> None:
        self.server.keep_log(folder)

    def remove(self) -> None:
        self._process.terminate()
        self._process.wait()
        self.server.remove()

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)
        (self._folder / name).chmod(0o644)

    def _until_up(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, (self._folder / "pgbouncer.log").read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("PgBouncer does not listen")
