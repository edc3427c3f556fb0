"""A cell of several servers as real processes, with a proxy on every connection.

A node reaches the database through its `back`. Workers and other nodes reach the node through its
`front`, clients reach all nodes through a load balancer.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

import httpx2
import msgspec
import psutil

from rota.sdk import Client, Endpoint, Patience
from rota.wire.service import ClusterView
from tests.chaos.proxy import Proxy
from tests.postgres.server import PostgresServer
from tests.process.cell import UP, Cell, Daemon, free_port, until

READ_S = 8.0
"""A client asks elsewhere after this: its server may be frozen, and no connection says so."""
ASK_S = 2.0
LOOK_S = 0.1
AWAY = "PostgreSQL at"
"""In the last words of a server that was started while the database was away, or locked."""
ELECTED_S = 45.0
"""A new leader must be there by then, on the slowest machine, whatever became of the old one."""
SETTINGS = {"max_connections": "50", "log_min_messages": "warning", "log_line_prefix": "%m [%p] "}


class DatabaseServer(Protocol):
    """The database of a cell: one server or a pair that fails over."""

    @property
    def ports(self) -> tuple[int, ...]: ...

    def dsn(self, database: str, *ports: int) -> str:
        """The address of a database through these ports (of proxies)."""
        ...

    def new_database(self) -> str: ...

    def keep_log(self, folder: Path) -> None: ...

    def remove(self) -> None: ...


@dataclass(slots=True)
class Node:
    """One server of the cell, running or not."""

    name: str
    port: int
    front: Proxy
    backs: Sequence[Proxy]
    """One for each server of the database."""
    daemon: Daemon | None = None
    asked: httpx2.Client = field(default_factory=lambda: httpx2.Client(timeout=ASK_S))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.front.port}"

    def leader_epoch(self, token: str) -> int | None:
        """The epoch if this server says that it leads, else None."""
        here = f"http://127.0.0.1:{self.port}"
        try:
            ready = self.asked.get(f"{here}/readyz")
            if ready.status_code != 200 or ready.json().get("role") != "leader":
                return None
            answer = self.asked.get(
                f"{here}/cluster", headers={"Authorization": f"Bearer {token}"}
            ).raise_for_status()
        except (httpx2.HTTPError, ValueError):
            return None
        view = msgspec.json.decode(answer.content, type=ClusterView)
        return view.epoch if view.leader == self.name else None


class Cluster(Cell):
    def __init__(
        self,
        folder: Path,
        *,
        size: int = 3,
        lease_ttl: str = "4s",
        database_server: DatabaseServer | None = None,
    ) -> None:
        super().__init__(folder, lease_ttl)
        self.database_server = database_server or PostgresServer(SETTINGS, quick=False)
        self.database = self.database_server.new_database()
        self.nodes = [self._node(f"n{number}") for number in range(1, size + 1)]
        self.balancer = Proxy(*(node.port for node in self.nodes), port=self.port)
        self.log_of: dict[str, str] = {}
        """Whose words are in which file."""
        self._token = ""

    def _node(self, name: str) -> Node:
        port = free_port()
        backs = [Proxy(port) for port in self.database_server.ports]
        return Node(name, port, front=Proxy(port), backs=backs)

    @property
    def token(self) -> str:
        if not self._token:
            made = self.run("tokens", "create", "--store", self.dsn, "--role", "admin", "--json")
            assert made.returncode == 0, made.stderr
            self._token = str(json.loads(made.stdout)["token"])
        return self._token

    @property
    def dsn(self) -> str:
        return self.database_server.dsn(self.database)

    @property
    def env(self) -> dict[str, str]:
        """The environment of workers, with their token."""
        return {**super().env, "ROTA_TOKEN": self._token} if self._token else super().env

    # Processes

    def begin(self, node: Node) -> Daemon:
        dsn = self.database_server.dsn(self.database, *(back.port for back in node.backs))
        node.daemon = self.launch(
            *("server", "--store", dsn, "--port", str(node.port), "--node", node.name),
            *("--data", str(self.folder / node.name), "--lease-ttl", self.lease_ttl),
            *("--address", node.url),
        )
        self.log_of[node.daemon.said.name] = node.name
        return node.daemon

    def start(self, *nodes: Node) -> None:
        for node in nodes:
            self.begin(node)
        for node in nodes:
            self.until_up(node)

    def until_up(self, node: Node) -> None:
        """Waits until the server listens; starts it again if it found no database and exited."""

        def look() -> bool:
            assert node.daemon is not None
            if node.daemon.ended():
                assert AWAY in node.daemon.text(), node.daemon.text()
                time.sleep(LOOK_S)
                self.begin(node)
            return UP in node.daemon.text()

        until(look, f"{node.name} that is up", ELECTED_S)

    def start_all(self) -> None:
        assert self.token
        self.start(*self.nodes)
        self.leader()

    def worker(self, name: str = "w", *more: str) -> Daemon:
        servers = [word for node in self.nodes for word in ("--server", node.url)]
        worker = self.launch(
            *("worker", *servers, "--name", name, "--work-dir", str(self.folder / "work")),
            *("--grace", "1s", *more),
        )
        self.workers.append(worker)
        self.log_of[worker.said.name] = name
        return worker

    def client(self, patience_s: float = READ_S) -> Client:
        """A client of the load balancer that retries until `patience_s` is over."""
        endpoint = Endpoint(self.url, self.token, "the test", "the test", ())
        patience = Patience(retry_for_s=patience_s, read_s=READ_S, connect_s=ASK_S)
        client = Client(endpoint, patience=patience)
        self._clients.append(client)
        return client

    def client_of_all_servers(self) -> Client:
        """A client that knows every server, with default patience."""
        first, *others = [f"http://127.0.0.1:{node.port}" for node in self.nodes]
        endpoint = Endpoint(first, self.token, "the test", "the test", (), others=tuple(others))
        client = Client(endpoint, patience=Patience(retry_for_s=READ_S))
        self._clients.append(client)
        return client

    # Who leads

    def known_leader(self) -> tuple[Node, int] | None:
        """The server that says it leads, and its epoch; the newest if there are two."""
        reigns = [
            (epoch, node)
            for node in self.nodes
            if node.daemon is not None and not node.daemon.ended()
            if (epoch := node.leader_epoch(self.token)) is not None
        ]
        if not reigns:
            return None
        epoch, node = max(reigns, key=lambda leader_epoch: leader_epoch[0])
        return node, epoch

    def leader(self, after_epoch: int = 0) -> tuple[Node, int]:
        def look() -> tuple[Node, int] | None:
            time.sleep(LOOK_S)  # each look makes every server answer
            seen = self.known_leader()
            return seen if seen is not None and seen[1] > after_epoch else None

        found = until(look, f"a leader after epoch {after_epoch}", ELECTED_S)
        assert found is not None
        return found

    # The end

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.database_server.keep_log(self.folder)
        try:
            super().__exit__(kind, error, trace)
        finally:
            for node in self.nodes:
                node.asked.close()
                for wire in (node.front, *node.backs):
                    wire.close()
            self.balancer.close()
            self.database_server.remove()


def tree(daemon: Daemon) -> list[int]:
    """The ids of a process and all its descendants."""
    top = psutil.Process(daemon.pid)
    return [daemon.pid, *(child.pid for child in top.children(recursive=True))]


def freeze_tree(pids: list[int], seconds: float) -> tuple[float, float]:
    """Freezes the processes for so long; returns the period by the boot clock."""
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    _signal_all(pids, signal.SIGSTOP)
    time.sleep(seconds)
    _signal_all(pids, signal.SIGCONT)
    return began, time.clock_gettime(time.CLOCK_BOOTTIME)


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
