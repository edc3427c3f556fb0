"""Tokens of a real cell: two servers on one PostgreSQL accept the same ones and show no secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.postgres.cell import Cell as Database
from tests.process.cell import UP, Cell, Daemon, until

pytestmark = [pytest.mark.process, pytest.mark.postgres]


class Pair:
    """Two servers, `a` and `b`, and what they said."""

    def __init__(self, cell: Cell) -> None:
        self.dsn = Database().dsn
        self._cell = cell
        self.admin = self.made("--role", "admin", "--store", self.dsn)["token"]
        self.daemons = [self._server(name) for name in "ab"]
        self.urls = [self._url(daemon) for daemon in self.daemons]

    def made(self, *options: str) -> dict[str, str]:
        """A token, made by the command line."""
        ran = self._cell.run("tokens", "create", "--json", *options)
        assert ran.returncode == 0, ran.stderr
        answer: dict[str, str] = json.loads(ran.stdout)
        return answer

    def ask(self, server: int, method: str, path: str, token: str = "", **more: object) -> int:
        """The status that one of them answers."""
        return self.answer(server, method, path, token, **more).status_code

    def answer(
        self, server: int, method: str, path: str, token: str = "", **more: object
    ) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{self.urls[server]}{path}"
        return httpx2.request(method, url, headers=headers, timeout=30, **more)  # type: ignore[arg-type]

    def _server(self, name: str) -> Daemon:
        folder = str(self._cell.folder / name)
        options = ("--store", self.dsn, "--node", name, "--data", folder, "--port", "0")
        return self._cell.launch("server", *options)

    def _url(self, daemon: Daemon) -> str:
        until(lambda: UP in daemon.text() or daemon.ended(), "a server that is up")
        assert not daemon.ended(), daemon.text()
        return daemon.text().split(UP)[1].split()[0]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Cell(tmp_path) as cell:
        yield Pair(cell)


def test_two_servers_accept_the_same_tokens_and_show_no_secret(pair: Pair, tmp_path: Path) -> None:
    assert not list(tmp_path.glob("*/token")), "a server of a cell makes no token by itself"
    assert [pair.ask(server, "GET", "/tokens", pair.admin) for server in (0, 1)] == [200, 200]
    made = pair.answer(0, "POST", "/tokens", pair.admin, json={"role": "viewer"}).json()
    assert pair.ask(1, "GET", "/queues", made["token"]) == 200, "good at once, everywhere"
    assert pair.ask(1, "PUT", "/queues/q", made["token"], json={}) == 403
    signed = pair.answer(0, "POST", "/session", made["token"])
    value = signed.headers["set-cookie"].split(";")[0].partition("=")[2]
    port = pair.urls[1].rpartition(":")[2]
    browser = {"Cookie": f"rota_session_{port}={value}"}
    assert httpx2.get(f"{pair.urls[1]}/queues", headers=browser).status_code == 200

    assert pair.ask(0, "DELETE", f"/tokens/{made['token_id']}", pair.admin) == 204
    until(lambda: pair.ask(1, "GET", "/queues", made["token"]) == 401, "the end of a token")
    assert httpx2.get(f"{pair.urls[1]}/queues", headers=browser).status_code == 401

    def trail() -> list[str]:
        items = pair.answer(1, "GET", "/audit", pair.admin).json()["items"]
        return [f"{one['method']} {one['route']} {one['status']}" for one in items]

    wanted = {"POST /tokens 201", "PUT /queues/{name} 403", "DELETE /tokens/{token_id} 204"}
    until(lambda: wanted <= set(trail()), "entries of both servers")
    for daemon in pair.daemons:
        assert daemon.stop() == 0
    text = "".join(daemon.text() for daemon in pair.daemons)
    for secret in (pair.admin, made["token"], value):
        assert secret not in text
