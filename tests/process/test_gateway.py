"""A gateway in front of two real cells: processes, kill -9, freeze, and back."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from rota.gateway.config import make_config
from rota.sdk import Client, Endpoint, Patience
from tests.process.cell import PATIENCE_S, UP, Cell, Daemon, shell, until

pytestmark = pytest.mark.process

NAMES = ("north", "south")
PLAN = make_config([(name, "http://127.0.0.1:1") for name in NAMES])
"""Tenants go by the names of cells, not by their addresses."""


def tenants_of(cell: str, count: int) -> list[str]:
    names = (f"tenant-{number}" for number in range(1000))
    return [name for name in names if PLAN.router.cell_of(name) == cell][:count]


class Fleet:
    """Two cells with one token, and gateways."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self._token = f"rota_{secrets.token_urlsafe(32)}"
        self.cells: dict[str, Cell] = {}
        for name in NAMES:
            (folder / name / "data").mkdir(parents=True)
            self.cells[name] = cell = stack.enter_context(Cell(folder / name))
            token = cell.data / "token"
            token.touch(0o600)
            token.write_text(self._token)
            cell.begin_up("--cell", name)
        for cell in self.cells.values():
            server = cell.server
            until(lambda server=server: UP in server.text() or server.ended(), "a cell")  # type: ignore[misc]  # bound at once
            assert not server.ended(), server.text()

    def gateway(self) -> tuple[Daemon, str]:
        """Another gateway, and its address."""
        cells = [f"--cell={name}={cell.url}" for name, cell in self.cells.items()]
        daemon = self.cells["north"].launch("gateway", "--port", "0", *cells)
        until(lambda: UP in daemon.text() or daemon.ended(), "a gateway that is up")
        assert not daemon.ended(), daemon.text()
        return daemon, daemon.text().split(UP)[1].split()[0]

    def client(self, url: str) -> Client:
        endpoint = Endpoint(url, self._token, "the test", "the test", ())
        patience = Patience(retry_for_s=PATIENCE_S, read_s=PATIENCE_S)
        return self._stack.enter_context(Client(endpoint, patience=patience))

    def http(self, url: str) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self._token}"}
        return self._stack.enter_context(
            httpx2.Client(base_url=url, headers=headers, timeout=PATIENCE_S)
        )


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack)


def listed(client: Client) -> list[str]:
    return [job.job_id for job in client.jobs()]


def submit_all(client: Client, tenants: Sequence[str]) -> list[str]:
    return [client.submit({**shell(f"echo {one}"), "tenant": one}).job_id for one in tenants]


def test_jobs_of_two_cells_run_are_followed_and_survive_the_death_of_one(fleet: Fleet) -> None:
    north, south = fleet.cells["north"], fleet.cells["south"]
    for cell in (north, south):
        cell.worker()
    (_, url), (_, other_url) = fleet.gateway(), fleet.gateway()
    client, other = fleet.client(url), fleet.client(other_url)
    tenants = [*tenants_of("north", 3), *tenants_of("south", 3)]
    jobs = submit_all(client, tenants)
    for tenant, job_id in zip(tenants, jobs, strict=True):
        assert b"".join(other.follow_logs(job_id)).decode() == f"{tenant}\n"
        assert north.until_status(other, job_id, "succeeded").tenant == tenant
    assert listed(other) == sorted(jobs, reverse=True)

    south.server.kill()
    jobs += submit_all(client, tenants_of("north", 2))
    http = fleet.http(url)
    refused = http.get(f"/jobs/{jobs[5]}")
    assert refused.status_code == 503
    assert "cell south is down" in refused.json()["detail"]
    page = http.get("/jobs").json()
    assert [lack["cell"] for lack in page["missing_cells"]] == ["south"]
    assert page["next_cursor"] is not None

    south.up("--cell", "south")
    jobs += submit_all(client, tenants_of("south", 2))
    assert sorted(listed(other)) == sorted(jobs)
    for job_id in jobs:
        north.until_status(other, job_id, "succeeded")


def test_a_gateway_answers_for_a_frozen_cell_and_uses_it_again_when_it_thaws(fleet: Fleet) -> None:
    _, url = fleet.gateway()
    http, client = fleet.http(url), fleet.client(url)
    (here,), (there,) = tenants_of("north", 1), tenants_of("south", 1)
    south = fleet.cells["south"].server
    south.signal(signal.SIGSTOP)
    try:
        job = {**shell("true"), "tenant": there}
        assert http.post("/jobs", json=job).status_code == 503
        assert http.post("/jobs", json={**job, "tenant": here}).status_code == 201
        assert http.get("/stats").json()["missing_cells"][0]["cell"] == "south"
    finally:
        south.signal(signal.SIGCONT)
    made = client.submit({**shell("true"), "tenant": there}).job_id
    assert client.job(made).tenant == there


def test_a_server_keeps_its_cells_name_and_a_gateway_wants_the_right_one(fleet: Fleet) -> None:
    north, south = fleet.cells["north"], fleet.cells["south"]
    wrong = [f"--cell=north={south.url}", f"--cell=south={north.url}"]
    refused = north.run("gateway", "--port", "0", *wrong)
    assert refused.returncode == 1
    assert "it is of the cell south: start its servers with --cell north" in refused.stderr
    north.server.stop()
    renamed = north.run("up", "--port", "0", "--data", str(north.data), "--cell", "west")
    assert renamed.returncode == 1
    assert "this store is the cell 'north'" in renamed.stderr
    north.up()
    health = httpx2.get(f"{north.url}/readyz", trust_env=False).json()
    assert health["cell"] == "north"
