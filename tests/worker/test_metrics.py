"""Metrics of a worker for Prometheus."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from rota.worker.agent import WorkerConfig
from tests.worker.cell import Cell
from tests.worker.orders import order, shell
from tests.worker.runner_context import until
from tests.worker.running_agent import RunningAgent


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    one = Cell()
    await one.start()
    yield one
    await one.stop()


def started(cell: Cell, folder: Path, port: int) -> RunningAgent:
    return RunningAgent(
        WorkerConfig(servers=[cell.url], name="t", work_dir=folder, metrics=("127.0.0.1", port))
    )


async def scrape(agent: RunningAgent, **headers: str) -> str:
    url = f"http://127.0.0.1:{agent.agent.metrics_server.port}/metrics"
    async with httpx2.AsyncClient() as http:
        return (await http.get(url, headers=headers)).text


async def test_ended_executions_are_counted_by_status(cell: Cell, tmp_path: Path) -> None:
    agent = started(cell, tmp_path / "w", 0)
    cell.grant(order("e1"), order("e2", shell("exit 3")), order("e3", shell("true")))
    await until(lambda: len(cell.reports) == 3)
    text = await scrape(agent)
    assert 'rota_agent_executions_ended_total{status="succeeded"} 2.0' in text
    assert 'rota_agent_executions_ended_total{status="failed"} 1.0' in text
    assert "rota_agent_executions 0.0" in text
    assert "process_resident_memory_bytes" in text
    assert (await scrape(agent, accept="application/openmetrics-text")).endswith("# EOF\n")
    assert await agent.drained() == 0


async def test_a_worker_whose_metrics_port_is_taken_stops_before_it_takes_a_job(
    cell: Cell, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        agent = started(cell, tmp_path / "w", taken.getsockname()[1])
        assert await agent.ends() == 1
    assert "cannot listen on 127.0.0.1" in agent.log.getvalue()
