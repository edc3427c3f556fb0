"""Agent as a whole, against a server that restarts, forgets, loses answers and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.worker.agent import ResourceOverrides, WorkerConfig
from tests.worker.cell import Cell
from tests.worker.orders import order, shell
from tests.worker.runner_context import until
from tests.worker.running_agent import RunningAgent, Starter


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    cell = Cell()
    await cell.start()
    yield cell
    await cell.stop()


@pytest.fixture
async def start(cell: Cell, tmp_path: Path) -> AsyncIterator[Starter]:
    running: list[RunningAgent] = []

    def begin(**changes: object) -> RunningAgent:
        settings: dict[str, object] = {
            "servers": [cell.url],
            "token": "t0ken",
            "name": "tester",
            "work_dir": tmp_path / "work",
            "containers": "none",
            "grace_s": 1.0,
        }
        running.append(RunningAgent(WorkerConfig(**{**settings, **changes})))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for one in running:
        if not one.task.done():
            await one.stopped()


async def test_noops_are_acknowledged_in_batches(cell: Cell, start: Starter) -> None:
    cell.grant(*(order(f"e{number}") for number in range(5000)))
    start()
    await until(lambda: len(cell.reports) == 5000)
    assert all(report.status == "succeeded" for report in cell.reports.values())
    assert cell.reports_received == 5000, "none was sent twice"
    assert len(cell.calls) < 20


async def test_a_prefetched_order_starts_in_its_turn_or_goes_back(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    cell.spare_max = 10
    start(spare=4)
    waits = shell(f"until [ -e {tmp_path / 'go'} ]; do sleep 0.01; done")
    cell.grant(order("slow", waits), order("late", behind="slow"))
    await until(lambda: "late" in cell.reports)
    assert cell.reports["late"].status == "returned"
    assert "slow" not in cell.reports
    assert {call.spare for call in cell.calls} <= {3, 4}
    (tmp_path / "go").touch()
    cell.grant(order("next", behind="slow"))
    await until(lambda: "next" in cell.reports)
    assert (cell.reports["slow"].status, cell.reports["next"].status) == ("succeeded",) * 2


async def test_a_command_runs_and_its_output_arrives(cell: Cell, start: Starter) -> None:
    start()
    script = 'echo hello; echo "0.5 half" > "$ROTA_PROGRESS"; echo f > "$ROTA_ARTIFACTS/f.txt"'
    cell.grant(order("e1", shell(script)))
    await until(lambda: "e1" in cell.reports)
    assert cell.reports["e1"].status == "succeeded"
    assert bytes(cell.logs["e1"]) == b"hello\n"
    assert cell.progress == [("e1", 0.5)]
    assert cell.files == {"f.txt": b"f\n"}


async def test_a_report_does_not_wait_for_the_open_poll_to_end(tmp_path: Path) -> None:
    cell = Cell(ttl=600)
    await cell.start()
    agent = RunningAgent(WorkerConfig(servers=[cell.url], name="t", work_dir=tmp_path / "w"))
    go_on = tmp_path / "go-on"
    cell.grant(order("e1", shell(f"until [ -e {go_on} ]; do sleep 0.02; done")))
    await until(lambda: "e1" in cell.named)
    go_on.touch()
    await until(lambda: "e1" in cell.reports)
    carrying = next(call for call in cell.calls if call.completed)
    assert carrying.executions is None, "an order may be on its way: nothing is denied"
    assert await agent.drained() == 0
    await cell.stop()


async def test_a_worker_registers_what_it_detects_unless_configured_otherwise(
    cell: Cell, start: Starter
) -> None:
    start(
        resources=ResourceOverrides(cpu=64, custom={"licence": 2}),
        capabilities=["ssd"],
        queues=["mine"],
    )
    await until(lambda: bool(cell.registrations))
    (spec,) = cell.registrations
    assert (spec.name, spec.queues, spec.resources.cpu) == ("tester", ["mine"], 64)
    assert spec.resources.custom == {"licence": 2}
    assert spec.resources.memory.bytes > 0
    assert spec.resources.storage.bytes > 0
    assert {"linux", "ssd"} <= set(spec.capabilities)


async def test_a_lost_answer_loses_neither_report_nor_order(cell: Cell, start: Starter) -> None:
    cell.lose_answers = 1
    cell.grant(order("e1"))
    start()
    await until(lambda: "e1" in cell.reports)
    cell.lose_answers = 2
    cell.grant(order("e2"), order("e3"))
    await until(lambda: {"e2", "e3"} <= cell.reports.keys())


async def test_a_job_goes_on_through_a_restart_of_the_server(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    start()
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    script = f"touch {ready}; until [ -e {go_on} ]; do sleep 0.02; done; echo done"
    cell.grant(order("e1", shell(script)))
    await until(ready.exists)
    await cell.stop()
    go_on.touch()
    await cell.start()
    await until(lambda: "e1" in cell.reports)
    assert cell.reports["e1"].status == "succeeded"
    assert bytes(cell.logs["e1"]) == b"done\n"
    assert len(cell.registrations) == 1, "it is still the same worker"


async def test_a_job_is_stopped_when_the_server_is_away_longer_than_its_lease(
    tmp_path: Path,
) -> None:
    cell = Cell(ttl=1.0)
    await cell.start()
    agent = RunningAgent(WorkerConfig(servers=[cell.url], name="t", work_dir=tmp_path / "w"))
    ready = tmp_path / "ready"
    cell.grant(order("e1", shell(f"touch {ready}; exec sleep 600"), lease_expires_in=1.0))
    await until(ready.exists)
    await cell.stop()
    await until(lambda: agent.agent._session.held == 0)
    assert "its lease ran out" in agent.log.getvalue()
    await cell.start()
    cell.grant(order("e2"))
    await until(lambda: "e2" in cell.reports)
    assert "e1" not in cell.reports, "its report is not wanted"
    assert await agent.drained() == 0
    await cell.stop()


async def test_a_cancelled_job_is_stopped_and_reported(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    start()
    ready = tmp_path / "ready"
    cell.grant(order("e1", shell(f"touch {ready}; exec sleep 600")))
    await until(ready.exists)
    cell.ask_to_stop("e1")
    await until(lambda: "e1" in cell.reports)
    assert cell.reports["e1"].status == "cancelled"


async def test_an_execution_that_the_server_took_back_is_ended_without_a_report(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    worker = start()
    ready = tmp_path / "ready"
    cell.grant(order("e1", shell(f"touch {ready}; exec sleep 600")))
    await until(ready.exists)
    cell.take_back("e1")
    await until(lambda: worker.agent._session.held == 0)
    assert await worker.drained() == 0
    assert cell.reports == {}


async def test_a_forgotten_worker_stops_its_jobs_and_comes_back_as_a_new_one(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    worker = start()
    ready = tmp_path / "ready"
    cell.grant(order("e1", shell(f"touch {ready}; exec sleep 600")))
    await until(ready.exists)
    cell.refuse.append((404, {}))
    cell.take_back("nothing")  # ends the open poll
    await until(lambda: len(cell.registrations) == 2)
    await until(lambda: worker.agent._session.held == 0)
    cell.grant(order("e2"))
    await until(lambda: "e2" in cell.reports)
    assert cell.calls[-1].session == "session-of-worker-2"


async def test_a_superseded_worker_stops_everything_and_says_why(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    worker = start()
    ready = tmp_path / "ready"
    cell.grant(order("e1", shell(f"touch {ready}; exec sleep 600")))
    await until(ready.exists)
    cell.refuse.append((409, {}))
    cell.take_back("nothing")
    assert await worker.ends() == 1
    assert "another process has registered as worker worker-1" in worker.log.getvalue()


async def test_a_worker_with_a_wrong_token_stops_and_says_why(cell: Cell, start: Starter) -> None:
    cell.token = "another"
    worker = start()
    assert await worker.ends() == 1
    assert "does not accept this worker's token" in worker.log.getvalue()


async def test_a_worker_waits_for_a_server_that_has_not_started_yet(
    start: Starter, cell: Cell, tmp_path: Path
) -> None:
    await cell.stop()
    worker = start()
    await until(lambda: "no server is available" in worker.log.getvalue())
    await cell.start()
    await until(lambda: bool(cell.calls))


async def test_a_worker_that_never_reached_a_server_stops_at_once(
    start: Starter, cell: Cell
) -> None:
    await cell.stop()
    worker = start()
    await until(lambda: "no server is available" in worker.log.getvalue())
    assert await worker.drained() == 0


async def test_the_next_server_is_asked_when_one_is_away_or_does_not_lead(
    start: Starter, cell: Cell
) -> None:
    follower = Cell()
    await follower.start()
    follower.refuse = [(503, {"Retry-After": "1"})] * 1000
    gone = Cell()
    await gone.start()
    await gone.stop()
    cell.grant(order("e1"))
    start(servers=[gone.url, follower.url, cell.url])
    await until(lambda: "e1" in cell.reports)
    await follower.stop()


async def test_in_the_first_moments_without_a_leader_servers_are_asked_again_soon(
    start: Starter, cell: Cell
) -> None:
    cell.refuse = [(503, {"Retry-After": "30"})] * 3
    start()
    await until(lambda: bool(cell.calls))


async def test_a_busy_server_is_left_alone_as_long_as_it_asks(start: Starter, cell: Cell) -> None:
    cell.refuse = [(429, {"Retry-After": "1"})]
    loop = asyncio.get_running_loop()
    began = loop.time()
    start()
    await until(lambda: bool(cell.calls))
    assert loop.time() - began >= 1


async def test_a_busy_server_is_waited_for_though_there_is_another(
    start: Starter, cell: Cell
) -> None:
    cell.refuse = [(429, {"Retry-After": "1"})]
    other = Cell()
    await other.start()
    loop = asyncio.get_running_loop()
    began = loop.time()
    start(servers=[cell.url, other.url])
    await until(lambda: bool(cell.calls))
    assert loop.time() - began >= 1
    assert other.registrations == []
    await other.stop()


async def test_a_drained_worker_lets_its_jobs_finish_and_deregisters(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    worker = start()
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    script = f"touch {ready}; until [ -e {go_on} ]; do sleep 0.02; done"
    cell.grant(order("e1", shell(script)))
    await until(ready.exists)
    worker.agent.request_stop()
    await until(lambda: cell.verbs == ["drain"] and cell.calls[-1].max == 0)
    cell.grant(order("e2"))
    go_on.touch()
    assert await worker.ends() == 0
    assert cell.reports["e1"].status == "succeeded"
    assert "e2" not in cell.reports
    assert cell.verbs == ["drain", "leave"]
    assert list((tmp_path / "work").iterdir()) == [], "no folder is left"


async def test_a_second_signal_stops_the_jobs_and_deregistering_gives_them_back(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    worker = start()
    ready = tmp_path / "ready"
    cell.grant(order("e1", shell(f"touch {ready}; exec sleep 600")))
    await until(ready.exists)
    worker.agent.request_stop()
    worker.agent.request_stop()
    assert await worker.ends() == 0
    assert "e1" not in cell.reports, "a report would count as an attempt"
    assert cell.verbs == ["drain", "leave"]


async def test_a_leaving_worker_does_not_wait_for_ever_to_deliver_its_reports(
    tmp_path: Path,
) -> None:
    cell = Cell(ttl=1.0)
    await cell.start()
    agent = RunningAgent(WorkerConfig(servers=[cell.url], name="t", work_dir=tmp_path / "w"))
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    script = f"touch {ready}; until [ -e {go_on} ]; do sleep 0.02; done"
    cell.grant(order("e1", shell(script)))
    await until(ready.exists)
    await cell.stop()
    go_on.touch()
    await until(lambda: agent.agent._session.pending_reports == 1)
    assert await agent.drained() == 1
    assert "leaving with undelivered reports" in agent.log.getvalue()


async def test_a_server_that_is_slow_to_answer_polls_gets_heartbeats_meanwhile(
    tmp_path: Path,
) -> None:
    cell = Cell(ttl=1.5)
    await cell.start()
    agent = RunningAgent(WorkerConfig(servers=[cell.url], name="t", work_dir=tmp_path / "w"))
    cell.grant(order("e1", shell("exec sleep 600")))
    await until(lambda: "e1" in cell.named)
    cell.slow_s = 0.8
    await until(lambda: bool(cell.heartbeats))
    assert cell.heartbeats[0].session == "session-of-worker-1"
    assert cell.heartbeats[0].executions is None
    cell.slow_s = 0
    agent.agent.request_stop()
    assert await agent.drained() == 0
    await cell.stop()


async def test_a_task_of_an_unknown_kind_is_reported_as_failed(cell: Cell, start: Starter) -> None:
    start()
    cell.grant(order("e1", {"kind": "quantum"}))
    await until(lambda: "e1" in cell.reports)
    assert cell.reports["e1"].status == "failed"
    assert b"cannot run the task" in bytes(cell.reports["e1"].error)


async def test_two_agents_share_a_folder_and_remove_what_dead_agents_left(
    cell: Cell, start: Starter, tmp_path: Path
) -> None:
    stale = tmp_path / "work" / "agent-dead"
    stale.mkdir(parents=True, mode=0o700)
    (stale.parent).chmod(0o700)
    (stale / "lock").touch()
    (stale / "secret").touch()
    start(name="one")
    start(name="two")
    assert not stale.exists()
    assert len(list(stale.parent.iterdir())) == 2
