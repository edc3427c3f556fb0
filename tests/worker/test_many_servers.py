"""An agent and the servers of a cell that fail, freeze, change leaders and come back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rota.worker.agent import WorkerConfig
from tests.worker.cell import Cell
from tests.worker.fake_servers import FakeServer, fake_servers
from tests.worker.orders import order, shell
from tests.worker.runner_context import until
from tests.worker.running_agent import RunningAgent, Starter


@pytest.fixture
def cell() -> Cell:
    return Cell(ttl=15.0, poll_wait_max=0.2)


@pytest.fixture
async def servers(cell: Cell) -> AsyncIterator[Sequence[FakeServer]]:
    async with fake_servers(cell, 3) as servers:
        yield servers


@pytest.fixture
async def start(servers: Sequence[FakeServer], tmp_path: Path) -> AsyncIterator[Starter]:
    running: list[RunningAgent] = []

    def begin(*given: FakeServer, **changes: object) -> RunningAgent:
        settings: dict[str, object] = {
            "servers": [server.url for server in given or servers],
            "name": "tester",
            "work_dir": tmp_path / "work",
            "containers": "none",
            "grace_s": 0.5,
            "silence_s": 0.3,
        }
        running.append(RunningAgent(WorkerConfig(**{**settings, **changes})))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for server in servers:
        server.thaw()
    for one in running:
        if not one.task.done():
            await one.stopped()


async def a_poll_at(server: FakeServer) -> None:
    """Until the worker has asked there once more."""
    before = server.polls
    await until(lambda: server.polls > before)


async def test_the_leader_that_a_follower_names_is_asked_from_then_on(
    cell: Cell, servers: Sequence[FakeServer], start: Starter
) -> None:
    servers[0].leader = servers[2].url
    worker = start()
    await until(lambda: servers[2].polls > 2)
    assert servers[0].seen == ["/workers/register"]
    assert servers[1].seen == []
    assert len(cell.registrations) == 1, "it is the cell's worker, not a server's"
    assert servers[2].url in worker.log.getvalue()


async def test_a_leader_that_was_not_configured_is_followed_unless_that_is_switched_off(
    servers: Sequence[FakeServer], start: Starter
) -> None:
    servers[0].leader = servers[1].leader = servers[2].url
    start(servers[0], name="follows")
    await until(lambda: servers[2].polls > 0)
    servers[2].seen.clear()
    await a_poll_at(servers[2])
    start(servers[1], name="stays", follow_leader=False)
    await until(lambda: servers[1].polls > 3)


async def test_a_worker_that_cannot_reach_the_leader_stays_with_a_server_that_forwards(
    cell: Cell, servers: Sequence[FakeServer], start: Starter
) -> None:
    servers[0].leader = servers[2].url
    await servers[2].close()
    worker = start(servers[0])
    await until(lambda: servers[0].polls > 1)
    await servers[2].open()
    cell.grant(order("e1"))
    await until(lambda: "e1" in cell.reports)
    polls = servers[0].polls
    await until(lambda: servers[0].polls > polls + 2)
    assert servers[2].seen == [], "it is named in every answer, and not tried each time"
    assert len(cell.registrations) == 1
    assert not worker.task.done()


async def test_without_a_leader_all_servers_are_asked_until_there_is_one(
    cell: Cell, servers: Sequence[FakeServer], start: Starter, tmp_path: Path
) -> None:
    worker = start()
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    script = f"touch {ready}; until [ -e {go_on} ]; do sleep 0.02; done"
    cell.grant(order("e1", shell(script)))
    await until(ready.exists)
    for server in servers:
        server.mode = "no leader"
        server.seen.clear()
    go_on.touch()
    await until(lambda: all(server.polls > 0 for server in servers))
    servers[1].mode = "serves"
    await until(lambda: "e1" in cell.reports)
    assert cell.reports["e1"].status == "succeeded"
    assert len(cell.registrations) == 1
    assert not worker.task.done()


@pytest.mark.parametrize("trouble", ["gone", "frozen", "no leader", "nonsense"])
async def test_a_job_outlives_the_server_it_came_from(
    cell: Cell, servers: Sequence[FakeServer], start: Starter, tmp_path: Path, trouble: str
) -> None:
    worker = start(servers[0], servers[1])
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    script = f"touch {ready}; until [ -e {go_on} ]; do sleep 0.02; done; echo done"
    cell.grant(order("e1", shell(script)))
    await until(ready.exists)
    if trouble == "gone":
        await servers[0].close()
    elif trouble == "frozen":
        servers[0].freeze()
    else:
        servers[0].mode = trouble  # type: ignore[assignment]
    await until(lambda: servers[1].polls > 0)
    go_on.touch()
    await until(lambda: "e1" in cell.reports)
    assert cell.reports["e1"].status == "succeeded"
    await until(lambda: bytes(cell.logs.get("e1", b"")) == b"done\n")
    assert len(cell.registrations) == 1
    assert not worker.task.done()


async def test_two_frozen_servers_of_three_cost_no_lease(tmp_path: Path) -> None:
    cell = Cell(ttl=2.0)
    async with fake_servers(cell, 3) as servers:
        urls = [server.url for server in servers]
        worker = RunningAgent(WorkerConfig(servers=urls, work_dir=tmp_path / "w", silence_s=0.2))
        cell.grant(order("e1", shell("exec sleep 600"), lease_expires_in=2.0))
        await until(lambda: "e1" in cell.named)
        deadline = worker.agent._session.deadline("e1") or 0.0
        servers[0].freeze()
        servers[1].freeze()
        await until(lambda: (worker.agent._session.deadline("e1") or 0.0) > deadline + 2.0)
        assert worker.agent._session.held == 1
        assert "lease ran out" not in worker.log.getvalue()
        assert await worker.stopped() == 0


async def test_an_order_that_a_frozen_server_forwards_late_does_not_start_twice(
    cell: Cell, servers: Sequence[FakeServer], start: Starter, tmp_path: Path
) -> None:
    start(servers[0], servers[1])
    await until(lambda: servers[0].polls > 0)
    servers[0].freeze()
    await until(lambda: servers[1].polls > 0)
    starts, go_on = tmp_path / "starts", tmp_path / "go-on"
    script = f"echo x >> {starts}; until [ -e {go_on} ]; do sleep 0.02; done"
    cell.grant(order("e1", shell(script)), order("e2", shell(f"echo x >> {starts}")))
    await until(lambda: "e2" in cell.reports)
    calls_before = len(cell.calls)
    servers[0].thaw()  # its poll of old says that the worker has nothing, and asks for work
    await until(lambda: len(cell.calls) > calls_before)
    await a_poll_at(servers[1])
    go_on.touch()
    await until(lambda: "e1" in cell.reports)
    assert starts.read_text() == "x\nx\n"


async def test_an_order_given_to_a_poll_that_was_abandoned_is_not_lost(
    cell: Cell, servers: Sequence[FakeServer], start: Starter
) -> None:
    start(servers[0], servers[1])
    await until(lambda: servers[0].polls > 0)
    servers[0].freeze()
    await until(lambda: servers[1].polls > 0)
    await servers[1].close()
    servers[0].thaw()
    cell.grant(*(order(f"e{number}") for number in range(20)))
    await servers[1].open()
    await until(lambda: len(cell.reports) == 20)


async def test_a_failed_upload_does_not_make_the_worker_change_servers(
    cell: Cell, servers: Sequence[FakeServer], start: Starter
) -> None:
    servers[0].refuses = "/executions/"
    start(servers[0], servers[1])
    cell.grant(order("e1", shell("echo hello")))
    await until(lambda: any("/logs" in path for path in servers[0].seen))
    await a_poll_at(servers[0])
    servers[0].refuses = ""
    await until(lambda: "e1" in cell.reports)
    assert bytes(cell.logs["e1"]) == b"hello\n"
    assert servers[1].seen == []


async def test_a_heartbeat_goes_to_another_server_while_a_poll_hangs(
    cell: Cell, servers: Sequence[FakeServer], start: Starter
) -> None:
    cell.ttl = cell.poll_wait_max = 3.0
    servers[0].leader = servers[1].url  # polls go there
    start(servers[0], servers[1], silence_s=5.0)
    cell.grant(order("e1", shell("exec sleep 600")))
    await until(lambda: "e1" in cell.named)
    cell.slow_s = 1.2  # longer than a heartbeat's interval
    servers[1].refuses = "/workers/worker-1/heartbeat"
    await until(lambda: bool(cell.heartbeats))
    assert "/workers/worker-1/heartbeat" in servers[0].seen


async def test_a_leaving_worker_deregisters_at_any_server_that_answers(
    cell: Cell, servers: Sequence[FakeServer], start: Starter
) -> None:
    worker = start()
    await until(lambda: servers[0].polls > 0)
    await servers[0].close()
    assert await worker.drained() == 0
    assert cell.verbs[-1] == "leave"


async def _storm(dice: random.Random, servers: Sequence[FakeServer], over: asyncio.Event) -> None:
    """Something goes wrong and right again, all the time; one server is always of use."""
    open_doors = dict.fromkeys(servers, True)
    while not over.is_set():
        server = dice.choice(servers[1:])
        act = dice.choice(("freeze", "thaw", "no leader", "serve", "close", "open", "name"))
        if act == "close" and open_doors[server]:
            await server.close()
            open_doors[server] = False
        elif act == "open" and not open_doors[server]:
            await server.open()
            open_doors[server] = True
        elif act == "freeze":
            server.freeze()
        elif act == "no leader":
            server.thaw()
            server.mode = "no leader"
        elif act == "name":
            dice.choice(servers).leader = dice.choice((None, *(one.url for one in servers)))
        else:
            server.thaw()
        await asyncio.sleep(dice.uniform(0.0, 0.1))
    for server in servers:
        server.thaw()
        if not open_doors[server]:
            await server.open()


@pytest.mark.parametrize("seed", range(3))
async def test_through_random_faults_every_job_starts_once_and_its_report_arrives(
    cell: Cell, servers: Sequence[FakeServer], start: Starter, tmp_path: Path, seed: int
) -> None:
    dice, over = random.Random(seed), asyncio.Event()
    worker = start(concurrency=6)
    starts = tmp_path / "starts"
    starts.touch()
    keys = [f"e{number}" for number in range(40)]
    weather = asyncio.create_task(_storm(dice, servers, over))
    for key in keys:
        script = f"echo {key} >> {starts}; sleep {dice.uniform(0, 0.1):.2f}"
        cell.grant(order(key, shell(script)))
        await asyncio.sleep(dice.uniform(0, 0.05))
    await until(lambda: set(keys) <= cell.reports.keys() or worker.task.done())
    over.set()
    await weather
    assert sorted(starts.read_text().split()) == sorted(keys)
    assert {report.status for report in cell.reports.values()} == {"succeeded"}
    assert len(cell.registrations) == 1
    await until(lambda: worker.agent._session.pending_reports == 0)
