"""`command` jobs a second, compared with a loop that starts the same program and waits for it.

Both run `true`, two at a time, taking turns. A job has a folder, limits, a log, and a
supervisor that ends its whole process tree; the bare loop has none of these.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.cell import Cell, workplace
from benchmarks.table import Row, Scale
from benchmarks.traffic import (
    finished,
    open_connections,
    run,
    submit_jobs,
    tables_caught_up,
    workers_registered,
)

ARGV = ["true"]
JOB = {"name": "true", "task": {"kind": "command", "argv": ARGV}}
AT_ONCE = 2
LOOK_S = 0.05
"""Programs take their time: to ask for their end as often as for that of no-op jobs would be a good
part of the server's work."""


def measure(scale: Scale) -> Iterator[Row]:
    total = scale.of(3_000, 200)
    with workplace() as place, Cell(place / "data", scale.store) as cell:
        cell.start_worker("--cpu", str(AT_ONCE))
        ours, bare = run(_in_turns(cell, total, scale.repeats))
    yield Row("command", f"`true`, {AT_ONCE} at a time", ours, "jobs/s")
    yield Row("command", f"bare spawn and wait, {AT_ONCE} at a time", bare, "1/s")
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    yield Row("command", "jobs against bare", ratios, "ratio", "aim: 0.5")


async def _in_turns(cell: Cell, total: int, repeats: int) -> tuple[list[float], list[float]]:
    ours, bare = [], []
    async with open_connections(cell, 1) as opened:
        connection, done = opened[0], 0
        await workers_registered(connection)
        for turn in range(repeats + 1):
            count = total if turn else 20  # the first warms up
            began = time.perf_counter()
            await submit_jobs(opened, JOB, count, min(count, 1_000))
            done += count
            await finished(connection, done, look_s=LOOK_S)
            await tables_caught_up(connection)
            if turn:
                ours.append(count / (time.perf_counter() - began))
                bare.append(count / await asyncio.to_thread(_bare_seconds, count))
    return ours, bare


def _bare_seconds(count: int) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda _: _spawn_and_wait(), range(count)))
    return time.perf_counter() - began


def _spawn_and_wait() -> None:
    os.waitpid(os.posix_spawnp(ARGV[0], ARGV, os.environ), 0)
