"""Cluster of real servers on one PostgreSQL: forwarding, failover and schedules."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.postgres.server import PostgresServer, remove_shared_server, shared_server
from tests.process.cell import PATIENCE_S, UP, Cell, Daemon, free_port, until

pytestmark = [pytest.mark.process, pytest.mark.postgres]

LEADER_TTL = "1s"
NOOP = {"name": "j", "task": {"kind": "noop"}}
MANY = 200


class Server:
    """A process, and a client of it."""

    def __init__(self, node: str, daemon: Daemon, url: str, token: str) -> None:
        self.node = node
        self.daemon = daemon
        self.url = url
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        """One call; the JSON it answers."""
        answer = self.http.request(method, path, json=body)
        assert answer.status_code == expect, answer.text
        return answer.json() if answer.content else None

    @property
    def role(self) -> str:
        """What it says it is; empty while it is not ready."""
        return str(self.http.get("/readyz").json().get("role", ""))


class Cluster(Cell):
    """Servers on a database of their own."""

    def __init__(self, folder: Path, server: PostgresServer | None = None) -> None:
        super().__init__(folder, "4s")
        postgres = server or shared_server()
        self.dsn = postgres.dsn(postgres.new_database())
        made = self.run("tokens", "create", "--store", self.dsn, "--role", "admin", "--json")
        assert made.returncode == 0, made.stderr
        self.admin = str(json.loads(made.stdout)["token"])
        self.servers: list[Server] = []

    def serve(self, node: str, *more: str) -> Server:
        """One more server, once it is ready."""
        port = free_port()
        daemon = self.launch(
            *("server", "--store", self.dsn, "--port", str(port), "--node", node),
            *("--data", str(self.folder / node), "--leader-ttl", LEADER_TTL, *more),
        )
        until(lambda: UP in daemon.text() or daemon.ended(), "a server that is up")
        assert not daemon.ended(), daemon.text()
        server = Server(node, daemon, f"http://127.0.0.1:{port}", self.admin)
        self._clients.append(server.http)
        self.servers.append(server)
        until(lambda: server.role, f"{node} ready")
        return server

    def cluster_seen(self, server: Server) -> Any:
        """What `rota cluster` prints."""
        self.port = int(server.url.rpartition(":")[2])
        run = self.run("cluster", "--json")
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    @property
    def env(self) -> dict[str, str]:
        """With the way to the server."""
        known = {"ROTA_URL": self.url, "ROTA_TOKEN": self.admin} if hasattr(self, "admin") else {}
        return {**super().env, **known}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Nothing started yet but the database."""
    with Cluster(tmp_path) as one:
        yield one


@pytest.fixture(scope="module", autouse=True)
def _postgres_ends() -> Iterator[None]:
    yield
    remove_shared_server()


def test_a_follower_serves_as_the_leader_does_and_outlives_it(cluster: Cluster) -> None:
    leader, follower = cluster.serve("a"), cluster.serve("b")
    assert (leader.role, follower.role) == ("leader", "follower")
    job = follower.ask("POST", "/jobs", NOOP, expect=201)
    for server in (leader, follower):
        assert server.ask("GET", f"/jobs/{job['job_id']}")["status"] == "queued"
    machine = {"name": "w", "resources": {"cpu": 2}}
    worker = follower.ask("POST", "/workers/register", machine, expect=201)["worker_id"]
    lease = f"/workers/{worker}/lease"
    (order,) = follower.ask("POST", lease, {"max": 5, "wait": 0.2})["executions"]
    logs = f"/executions/{order['execution_id']}/logs"
    assert leader.http.post(logs, content=b"hello\n").status_code == 200
    with ThreadPoolExecutor(2) as threads:
        reading = threads.submit(follower.http.get, f"/jobs/{job['job_id']}/logs?follow=true")
        # Held by the follower for the leader when that is killed, and answered by the next one.
        running = {"execution_id": order["execution_id"], "fence": order["fence"]}
        held = {"max": 5, "wait": 1.3, "executions": [running]}
        polling = threads.submit(follower.ask, "POST", lease, held)
        leader.daemon.kill()
        assert polling.result()["lost"] == []
        assert follower.role == "leader"
        ended = {"wait": 0, "completed": [running | {"status": "succeeded"}]}
        assert follower.ask("POST", lease, ended)["lost"] == []
        assert reading.result().text == "hello\n"
    view = cluster.cluster_seen(follower)
    assert (view["leader"], view["durability"]) == ("b", "single")
    assert {node["node"]: node["role"] for node in view["nodes"]} == {
        "a": "follower",
        "b": "leader",
    }


def test_a_job_is_accepted_once_while_the_leader_is_frozen_and_after_it_thaws(
    cluster: Cluster,
) -> None:
    leader, follower = cluster.serve("a"), cluster.serve("b")
    headers = {"Idempotency-Key": "once"}
    leader.daemon.signal(signal.SIGSTOP)
    try:
        first = follower.http.post("/jobs", json=NOOP, headers=headers)
        until(lambda: follower.role == "leader", "the follower leads")
    finally:
        leader.daemon.signal(signal.SIGCONT)
    assert first.status_code == 201
    until(lambda: leader.role, "the old leader has found its place")
    for server in (leader, follower):
        # Whoever leads on a machine this slow may have to give up leadership in between.
        again = until(partial(_posted, server, headers), "an answer to the same key")
        assert again == first.json()["job_id"]
        # It is in no list before a leader has taken it.
        listed = until(partial(_listed, server), "a leader has taken the job")
        assert [job["job_id"] for job in listed] == [first.json()["job_id"]]


def _listed(server: Server) -> list[Any]:
    answer = server.http.get("/jobs")
    return list(answer.json()["items"]) if answer.status_code == 200 else []


def _posted(server: Server, headers: dict[str, str]) -> str | None:
    answer = server.http.post("/jobs", json=NOOP, headers=headers)
    return str(answer.json()["job_id"]) if answer.status_code == 201 else None


def test_a_leader_that_stops_hands_over_at_once(cluster: Cluster) -> None:
    leader, follower = cluster.serve("a"), cluster.serve("b")
    assert leader.daemon.stop() == 0
    until(lambda: follower.role == "leader", "the follower leads")
    view = follower.ask("GET", "/cluster")
    assert [node["node"] for node in view["nodes"]] == ["b"]
    assert not any("silent" in warning for warning in view["warnings"])


def test_the_schema_is_checked_and_migrated(cluster: Cluster) -> None:
    empty = cluster.dsn.rpartition("/")[0] + "/" + shared_server().new_database()
    missing = cluster.run("migrate", "--store", empty, "--check")
    assert missing.returncode == 1
    assert "0001_baseline.sql" in missing.stdout
    sick = cluster.run("doctor", "--store", empty, "--json")
    assert {check["name"]: check["verdict"] for check in json.loads(sick.stdout)["checks"]} == {
        "store": "ok",
        "schema": "warn",
        "durable": "warn",  # the tests' database does not wait for its disk
        "clock": "ok",
    }
    done = cluster.run("migrate", "--store", empty)
    assert (done.returncode, "took" in done.stdout) == (0, True)
    again = cluster.run("migrate", "--store", empty, "--check")
    assert (again.returncode, again.stdout.endswith("up to date\n")) == (0, True)
    nowhere = cluster.run("doctor", "--store", "postgresql://rota@127.0.0.1:9/none")
    assert nowhere.returncode == 1
    assert "store" in nowhere.stdout


def test_schedules_fire_once_though_the_leader_dies_when_they_are_due(cluster: Cluster) -> None:
    leader, follower = cluster.serve("a"), cluster.serve("b")
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    specs = [{"name": f"s{n}", "at": at.isoformat(), "job": NOOP} for n in range(MANY)]
    follower.ask("POST", "/schedules/deploy", {"owner": "test", "schedules": specs})
    event = {"event": "x.happened", "name": "t", "job": {**NOOP, "name": "heard"}}
    follower.ask("POST", "/triggers", event, expect=201)
    until(lambda: datetime.now(UTC) >= at, "they are due")
    leader.daemon.kill()
    until(lambda: follower.role == "leader", "another leader")

    def names() -> list[str]:
        found = follower.ask("GET", f"/jobs?name={NOOP['name']}&limit={2 * MANY}")["items"]
        return [one["schedule_id"] for one in found]

    until(lambda: len(names()) >= MANY, "all have fired")
    assert len(set(names())) == len(names()) == MANY
    event = {"id": "e1", "source": "/test", "type": "x.happened"}
    assert len(follower.ask("POST", "/events", event, expect=202)["job_ids"]) == 1
