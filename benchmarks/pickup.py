"""Pickup time from sending a submission to the start of the job's process, on an idle system.

The job is `date`, which prints the time at which it runs: the same machine, so the same clock. The
time that exec and the dynamic linker take is in the figure, and a bare start of the same program
from a warm Python process is shown beside it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator, Sequence

from benchmarks.cell import Cell, workplace
from benchmarks.table import Row, Scale
from benchmarks.traffic import Connection, open_connections, run, until, workers_registered

ARGV = ["date", "+%s%N"]
JOB = {"name": "when", "task": {"kind": "command", "argv": ARGV}}
IDLE_S = 0.03
"""Between two jobs: the system has nothing else to do."""
FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


def measure(scale: Scale) -> Iterator[Row]:
    tries = scale.of(300, 40)
    with workplace() as place, Cell(place / "data", scale.store) as cell:
        cell.start_worker()
        pickups, answers = run(_pickups(cell, tries))
    bare = [_bare_start() for _ in range(tries)]
    for share, aim in ((50, "aim: 15"), (99, "")):
        took = [percentile(pickups, share)]
        yield Row("pickup", f"request sent to process start, p{share}", took, "ms", aim)
    yield Row("pickup", "of which: request sent to answer, p50", [percentile(answers, 50)], "ms")
    yield Row("pickup", "a bare start of the same program, p50", [percentile(bare, 50)], "ms")


async def _pickups(cell: Cell, tries: int) -> tuple[list[float], list[float]]:
    pickups, answers = [], []
    async with open_connections(cell, 1) as (connection,):
        await workers_registered(connection)
        request = connection.request("POST", "/jobs", json.dumps(JOB).encode())
        for number in range(tries + 3):
            await asyncio.sleep(IDLE_S)
            sent = time.time_ns()
            job_id = json.loads(await connection.send(request))["job_id"]
            answered = time.time_ns()
            started = await _start_of(connection, job_id)
            if number >= 3:  # the first ones warm up the worker
                pickups.append((started - sent) / 1e6)
                answers.append((answered - sent) / 1e6)
    return pickups, answers


async def _start_of(connection: Connection, job_id: str) -> int:
    async def over() -> bool:
        return (await connection.ask("GET", f"/jobs/{job_id}"))["status"] in FINAL

    await until(over)
    return int(await connection.send(connection.request("GET", f"/jobs/{job_id}/logs")))


def _bare_start() -> float:
    sent = time.time_ns()
    return (int(subprocess.run(ARGV, capture_output=True, check=True).stdout) - sent) / 1e6


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]
