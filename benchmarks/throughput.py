"""Throughput in whole lives of jobs: submitted, run and completed over HTTP, every step durable.

No-op jobs and one worker process. A run ends when all jobs have succeeded and the tables have
caught up with the journal, so that nothing is left to be paid for later.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.table import Row, Scale
from benchmarks.traffic import (
    NOOP,
    SETTLE_S_MAX,
    Connection,
    finished,
    open_connections,
    run,
    submit_jobs,
    tables_caught_up,
    workers_registered,
)

BATCH = 1_000
TOGETHER = "submitted and run together"
AIM = "aim: 5,000"


def measure(scale: Scale) -> Iterator[Row]:
    """Measures batches, single calls, draining a backlog, and a worker with two cpus."""
    with workplace() as place:
        with Cell(place / "wide", scale.store) as cell:
            cell.start_worker(*MANY_CPUS)
            total = scale.of(30_000, 4_000)
            batched = run(together(cell, (4, total, BATCH), scale.repeats))
            waited = run(drained(cell, total, scale.repeats))
            single = run(together(cell, (64, scale.of(10_000, 2_000), 1), scale.repeats))
        with Cell(place / "plain", scale.store) as cell:
            cell.start_worker("--cpu", "2")
            plain = run(together(cell, (4, scale.of(4_000, 1_000), BATCH), scale.repeats))
    yield Row("whole life", f"{TOGETHER}, batches of {BATCH:,}", batched, "jobs/s", AIM)
    yield Row("whole life", f"{TOGETHER}, single calls, 64 connections", single, "jobs/s")
    yield Row("whole life", f"draining {total:,} that waited", waited, "jobs/s", AIM)
    yield Row(
        "whole life", "a worker of 2 cpus: two jobs at a time", plain, "jobs/s", "round trips count"
    )


async def together(cell: Cell, load: tuple[int, int, int], repeats: int) -> list[float]:
    """Submits and runs jobs at the same time; `load` is (connections, jobs, jobs a call)."""
    connections, total, batch = load
    rates = []
    async with open_connections(cell, connections) as opened:
        await workers_registered(opened[0])
        done = await _lives(opened[0])
        await submit_jobs(opened, NOOP, batch * connections, batch)
        done += batch * connections
        await finished(opened[0], done)
        for _ in range(repeats):
            began = time.perf_counter()
            await submit_jobs(opened, NOOP, total, batch)
            done += total
            rates.append(await _rate(opened[0], began, total, done))
    return rates


async def drained(cell: Cell, total: int, repeats: int) -> list[float]:
    """Submits jobs while the queue is paused, then measures their run."""
    rates = []
    async with open_connections(cell, 4) as opened:
        connection = opened[0]
        done = await _lives(connection)
        for _ in range(repeats):
            await connection.ask("POST", "/queues/default/pause")
            await submit_jobs(opened, NOOP, total, BATCH)
            await tables_caught_up(connection)
            done += total
            began = time.perf_counter()
            await connection.ask("POST", "/queues/default/resume")
            rates.append(await _rate(connection, began, total, done))
    return rates


async def _lives(connection: Connection) -> int:
    return int((await connection.ask("GET", "/stats"))["submitted_total"])


async def _rate(connection: Connection, began: float, total: int, done: int) -> float:
    # Nobody is so slow that a thousand jobs take longer than a second, or all of them two minutes.
    await finished(connection, done, max(SETTLE_S_MAX, total / 1_000))
    await tables_caught_up(connection)
    return total / (time.perf_counter() - began)
