"""A real pair of PostgreSQL servers with failover by Patroni and etcd.

`tools/install_ha.py` brings the programs. They run as the user that the tests' PostgreSQL runs as.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.chaos.cluster import freeze_tree
from tests.postgres.server import as_user, binaries, free_port, owner, reachable
from tests.process.cell import until

SITE = Path(__file__).parents[2] / ".venv-ha"
TTL_S = 20
"""The least that Patroni takes: a primary silent for so long has lost its place."""
FAILOVER_S = 3.0 * TTL_S
SETTINGS = {
    "max_connections": 60,
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",
    "wal_level": "replica",
    "hot_standby": "on",
    "unix_socket_directories": "",
}


class Member:
    def __init__(self, pair: Pair, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.rest = free_port()
        self.data = pair.folder / name
        self._pair = pair
        self._file = pair.folder / f"{name}.json"
        self._file.write_text(json.dumps(self._settings(pair)))
        self.process: subprocess.Popen[bytes] | None = None

    def _settings(self, pair: Pair) -> dict[str, Any]:
        trust = ["local all all trust", "host all all 127.0.0.1/32 trust",
                 "host replication all 127.0.0.1/32 trust"]  # fmt: skip
        replicated = {"ttl": TTL_S, "loop_wait": 2, "retry_timeout": 5, "synchronous_mode": True}
        return {
            "scope": "rota",
            "name": self.name,
            "restapi": {
                "listen": f"127.0.0.1:{self.rest}",
                "connect_address": f"127.0.0.1:{self.rest}",
            },
            "etcd3": {"hosts": f"127.0.0.1:{pair.etcd_port}"},
            "bootstrap": {
                "dcs": replicated | {"postgresql": {"use_pg_rewind": True}},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.data),
                "bin_dir": str(pair.bin),
                "pgpass": str(pair.folder / f"{self.name}.pgpass"),
                "authentication": {
                    "superuser": {"username": "rota"},
                    "replication": {"username": "copier"},
                    "rewind": {"username": "rewinder"},
                },
                "parameters": SETTINGS,
                "pg_hba": trust,
            },
            "watchdog": {"mode": "off"},
        }

    def start(self) -> None:
        self.process = self._pair.spawn(
            [self._pair.python, "-m", "patroni", str(self._file)], self.name
        )

    def role(self) -> str:
        """`primary`, `sync_standby`, `replica`, or nothing."""
        try:
            known = httpx2.get(f"http://127.0.0.1:{self.rest}/patroni", timeout=2.0).json()
        except (httpx2.HTTPError, ValueError):
            return ""
        if known.get("state") != "running":
            return ""
        return "sync_standby" if known.get("sync_standby") else str(known.get("role", ""))

    def pids(self) -> list[int]:
        """Process ids: Patroni first, then the database, which may outlive it."""
        assert self.process is not None
        found = [self.process.pid]
        postmaster = self.data / "postmaster.pid"
        if postmaster.exists():
            found.append(int(postmaster.read_text().split()[0]))
        return [*found, *(child for pid in found for child in _children(pid))]

    def kill(self) -> str:
        pids = list(dict.fromkeys(self.pids()))
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert self.process is not None
        self.process.wait()
        self.process = None  # its number may be somebody else's from now on
        psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], 10)
        return f"{self.name}: {len(pids)} processes killed"

    def freeze(self, seconds: float) -> str:
        """Freezes all processes; the member wakes as a former primary."""
        pids = list(dict.fromkeys(self.pids()))
        freeze_tree(pids, seconds)
        return f"{self.name}: {len(pids)} processes stood still for {seconds:g} s"


class Pair:
    def __init__(self) -> None:
        self._user = owner()
        self.folder = Path(tempfile.mkdtemp(prefix="rota-ha-"))
        self.bin = reachable(binaries(), self.folder, self._user)
        self.python = (SITE / "python.txt").read_text()
        self._site = self.folder / "site"
        shutil.copytree(SITE, self._site)
        self.etcd_port = free_port()
        self._spawned: list[subprocess.Popen[bytes]] = []
        self.members = [Member(self, "db1"), Member(self, "db2")]
        self._own()

    def _own(self) -> None:
        if self._user is not None:
            for path in (self.folder, *self.folder.glob("*.json")):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    @staticmethod
    def lacking() -> str:
        """What is missing to run a pair; empty if nothing."""
        if not SITE.exists() or shutil.which("etcd") is None:
            return "Patroni and etcd come with `make chaos-ha`"
        return ""

    def spawn(self, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        """Starts a program as the database's user, with its output in a file."""
        with (self.folder / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self._site), "LC_ALL": "C"},
                user=None if self._user is None else self._user.pw_uid,
                group=None if self._user is None else self._user.pw_gid,
                extra_groups=None if self._user is None else [],
                start_new_session=True,
            )
        self._spawned.append(process)
        return process

    def start(self) -> None:
        """Starts everything and waits for a primary with a synchronous standby."""
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{free_port()}"
        etcd = shutil.which("etcd")
        assert etcd is not None
        self.spawn(
            [etcd, "--name", "e", "--data-dir", str(self.folder / "etcd"),
             "--listen-client-urls", client, "--advertise-client-urls", client,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", f"e={peer}"],
            "etcd",
        )  # fmt: skip
        self.members[0].start()
        until(lambda: self.primary(), "a primary", FAILOVER_S)
        self.members[1].start()
        self.until_paired()

    def primary(self) -> Member | None:
        return next((one for one in self.members if one.role() in ("primary", "master")), None)

    def until_paired(self) -> None:
        """Waits until commits are synchronous: only then a failover loses nothing."""
        until(
            lambda: sorted(one.role() for one in self.members) == ["primary", "sync_standby"],
            f"a pair; they are {[one.role() for one in self.members]}",
            2 * FAILOVER_S,
        )

    def until_primary_is_not(self, old: Member) -> Member:
        def look() -> Member | None:
            found = self.primary()
            return found if found is not None and found is not old else None

        found = until(look, f"a primary that is not {old.name}", FAILOVER_S)
        assert found is not None
        return found

    def new_database(self) -> str:
        found = self.primary()
        assert found is not None
        self.sql(found, "CREATE DATABASE cell")
        return "cell"

    def sql(self, member: Member, statement: str) -> str:
        dsn = f"postgresql://rota@127.0.0.1:{member.port}/postgres"
        done = as_user(
            [str(self.bin / "psql"), "-X", "-A", "-t", "-q", "-d", dsn, "-c", statement], self._user
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.strip()

    def dsn(self, database: str, *ports: int) -> str:
        """The address of both members through these ports; the primary is chosen."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports or self.ports)
        return f"postgresql://rota@{hosts}/{database}?target_session_attrs=read-write"

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(member.port for member in self.members)

    def keep_log(self, folder: Path) -> None:
        for log in self.folder.glob("*.log"):
            shutil.copy(log, folder / f"ha-{log.name}")

    def remove(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.kill()
        for process in self._spawned:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
