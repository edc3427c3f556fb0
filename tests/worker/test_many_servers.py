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
async def doors(cell: Cell) -> AsyncIterator[Sequence[FakeServer]]:
    async with fake_servers(cell, 3) as doors:
        yield doors


@pytest.fixture
async def start(doors: Sequence[FakeServer], tmp_path: Path) -> AsyncIterator[Starter]:
    running: list[RunningAgent] = []

    def begin(*given: FakeServer, **changes: object) -> RunningAgent:
        settings: dict[str, object] = {
            "servers": [door.url for door in given or doors],
            "name": "tester",
            "work_dir": tmp_path / "work",
            "containers": "none",
            "grace_s": 0.5,
            "silence_s": 0.3,
        }
        running.append(RunningAgent(WorkerConfig(**{**settings, **changes})))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for door in doors:
        door.thaw()
    for one in running:
        if not one.task.done():
            await one.stopped()


async def a_poll_at(door: FakeServer) -> None:
    """Until the worker has asked there once more."""
    before = door.polls
    await until(lambda: door.polls > before)


async def test_the_leader_that_a_follower_names_is_asked_from_then_on(
    cell: Cell, doors: Sequence[FakeServer], start: Starter
) -> None:
    doors[0].leader = doors[2].url
    worker = start()
    await until(lambda: doors[2].polls > 2)
    assert doors[0].seen == ["/workers/register"]
    assert doors[1].seen == []
    assert len(cell.registrations) == 1, "it is the cell's worker, not a server's"
    assert doors[2].url in worker.said.getvalue()


async def test_a_leader_that_was_not_given_is_followed_too_unless_told_otherwise(
    doors: Sequence[FakeServer], start: Starter
) -> None:
    doors[0].leader = doors[1].leader = doors[2].url
    start(doors[0], name="follows")
    await until(lambda: doors[2].polls > 0)
    doors[2].seen.clear()
    await a_poll_at(doors[2])
    start(doors[1], name="stays", follow_leader=False)
    await until(lambda: doors[1].polls > 3)


async def test_a_leader_that_cannot_be_reached_is_left_to_those_who_forward(
    cell: Cell, doors: Sequence[FakeServer], start: Starter
) -> None:
    doors[0].leader = doors[2].url
    await doors[2].close()
    worker = start(doors[0])
    await until(lambda: doors[0].polls > 1)
    await doors[2].open()
    cell.grant(order("e1"))
    await until(lambda: "e1" in cell.reports)
    polls = doors[0].polls
    await until(lambda: doors[0].polls > polls + 2)
    assert doors[2].seen == [], "it is named in every answer, and not tried each time"
    assert len(cell.registrations) == 1
    assert not worker.task.done()


async def test_without_a_leader_all_are_asked_until_there_is_one(
    cell: Cell, doors: Sequence[FakeServer], start: Starter, tmp_path: Path
) -> None:
    worker = start()
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    script = f"touch {ready}; until [ -e {go_on} ]; do sleep 0.02; done"
    cell.grant(order("e1", shell(script)))
    await until(ready.exists)
    for door in doors:
        door.mode = "no leader"
        door.seen.clear()
    go_on.touch()
    await until(lambda: all(door.polls > 0 for door in doors))
    doors[1].mode = "serves"
    await until(lambda: "e1" in cell.reports)
    assert cell.reports["e1"].status == "succeeded"
    assert len(cell.registrations) == 1
    assert not worker.task.done()


@pytest.mark.parametrize("trouble", ["gone", "frozen", "no leader", "nonsense"])
async def test_a_job_outlives_the_server_it_came_from(
    cell: Cell, doors: Sequence[FakeServer], start: Starter, tmp_path: Path, trouble: str
) -> None:
    worker = start(doors[0], doors[1])
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    script = f"touch {ready}; until [ -e {go_on} ]; do sleep 0.02; done; echo done"
    cell.grant(order("e1", shell(script)))
    await until(ready.exists)
    if trouble == "gone":
        await doors[0].close()
    elif trouble == "frozen":
        doors[0].freeze()
    else:
        doors[0].mode = trouble  # type: ignore[assignment]
    await until(lambda: doors[1].polls > 0)
    go_on.touch()
    await until(lambda: "e1" in cell.reports)
    assert cell.reports["e1"].status == "succeeded"
    await until(lambda: bytes(cell.logs.get("e1", b"")) == b"done\n")
    assert len(cell.registrations) == 1
    assert not worker.task.done()


async def test_two_frozen_servers_of_three_cost_no_lease(tmp_path: Path) -> None:
    cell = Cell(ttl=2.0)
    async with fake_servers(cell, 3) as doors:
        servers = [door.url for door in doors]
        worker = RunningAgent(WorkerConfig(servers=servers, work_dir=tmp_path / "w", silence_s=0.2))
        cell.grant(order("e1", shell("exec sleep 600"), lease_expires_in=2.0))
        await until(lambda: "e1" in cell.named)
        deadline = worker.agent._session.deadline("e1") or 0.0
        doors[0].freeze()
        doors[1].freeze()
        await until(lambda: (worker.agent._session.deadline("e1") or 0.0) > deadline + 2.0)
        assert worker.agent._session.held == 1
        assert "lease ran out" not in worker.said.getvalue()
        assert await worker.stopped() == 0


async def test_what_a_frozen_server_passes_on_late_starts_nothing_a_second_time(
    cell: Cell, doors: Sequence[FakeServer], start: Starter, tmp_path: Path
) -> None:
    start(doors[0], doors[1])
    await until(lambda: doors[0].polls > 0)
    doors[0].freeze()
    await until(lambda: doors[1].polls > 0)
    starts, go_on = tmp_path / "starts", tmp_path / "go-on"
    script = f"echo x >> {starts}; until [ -e {go_on} ]; do sleep 0.02; done"
    cell.grant(order("e1", shell(script)), order("e2", shell(f"echo x >> {starts}")))
    await until(lambda: "e2" in cell.reports)
    heard = len(cell.calls)
    doors[0].thaw()  # its poll of old says that the worker has nothing, and asks for work
    await until(lambda: len(cell.calls) > heard)
    await a_poll_at(doors[1])
    go_on.touch()
    await until(lambda: "e1" in cell.reports)
    assert starts.read_text() == "x\nx\n"


async def test_an_order_given_to_a_poll_that_was_abandoned_is_not_lost(
    cell: Cell, doors: Sequence[FakeServer], start: Starter
) -> None:
    start(doors[0], doors[1])
    await until(lambda: doors[0].polls > 0)
    doors[0].freeze()
    await until(lambda: doors[1].polls > 0)
    await doors[1].close()
    doors[0].thaw()
    cell.grant(*(order(f"e{number}") for number in range(20)))
    await doors[1].open()
    await until(lambda: len(cell.reports) == 20)


async def test_an_upload_that_fails_does_not_move_the_conversation(
    cell: Cell, doors: Sequence[FakeServer], start: Starter
) -> None:
    doors[0].refuses = "/executions/"
    start(doors[0], doors[1])
    cell.grant(order("e1", shell("echo hello")))
    await until(lambda: any("/logs" in path for path in doors[0].seen))
    await a_poll_at(doors[0])
    doors[0].refuses = ""
    await until(lambda: "e1" in cell.reports)
    assert bytes(cell.logs["e1"]) == b"hello\n"
    assert doors[1].seen == []


async def test_a_heartbeat_is_heard_by_another_server_while_a_poll_hangs(
    cell: Cell, doors: Sequence[FakeServer], start: Starter
) -> None:
    cell.ttl = cell.poll_wait_max = 3.0
    doors[0].leader = doors[1].url  # polls go there
    start(doors[0], doors[1], silence_s=5.0)
    cell.grant(order("e1", shell("exec sleep 600")))
    await until(lambda: "e1" in cell.named)
    cell.slow_s = 1.2  # longer than a heartbeat's interval
    doors[1].refuses = "/workers/worker-1/heartbeat"
    await until(lambda: bool(cell.beats))
    assert "/workers/worker-1/heartbeat" in doors[0].seen


async def test_it_says_goodbye_to_whoever_listens(
    cell: Cell, doors: Sequence[FakeServer], start: Starter
) -> None:
    worker = start()
    await until(lambda: doors[0].polls > 0)
    await doors[0].close()
    assert await worker.drained() == 0
    assert cell.verbs[-1] == "leave"


async def _storm(dice: random.Random, doors: Sequence[FakeServer], over: asyncio.Event) -> None:
    """Something goes wrong and right again, all the time; one server is always of use."""
    open_doors = dict.fromkeys(doors, True)
    while not over.is_set():
        door = dice.choice(doors[1:])
        act = dice.choice(("freeze", "thaw", "no leader", "serve", "close", "open", "name"))
        if act == "close" and open_doors[door]:
            await door.close()
            open_doors[door] = False
        elif act == "open" and not open_doors[door]:
            await door.open()
            open_doors[door] = True
        elif act == "freeze":
            door.freeze()
        elif act == "no leader":
            door.thaw()
            door.mode = "no leader"
        elif act == "name":
            dice.choice(doors).leader = dice.choice((None, *(one.url for one in doors)))
        else:
            door.thaw()
        await asyncio.sleep(dice.uniform(0.0, 0.1))
    for door in doors:
        door.thaw()
        if not open_doors[door]:
            await door.open()


@pytest.mark.parametrize("seed", range(3))
async def test_through_any_storm_every_job_starts_once_and_its_end_is_heard(
    cell: Cell, doors: Sequence[FakeServer], start: Starter, tmp_path: Path, seed: int
) -> None:
    dice, over = random.Random(seed), asyncio.Event()
    worker = start(concurrency=6)
    starts = tmp_path / "starts"
    starts.touch()
    keys = [f"e{number}" for number in range(40)]
    weather = asyncio.create_task(_storm(dice, doors, over))
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
