"""Cost of open dashboards: throughput with none and with fifty of them.

The watchers are a process of their own that does what the overview does: the page's files, its
first calls, then a stream of digests and the calls that come again. Taken in turns, so that a
machine that is busy otherwise slows both alike; all of it shares the same cores, the watchers' own
work too.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import aiohttp
import psutil

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.table import Row, Scale
from benchmarks.traffic import (
    NOOP,
    Connection,
    finished,
    open_connections,
    run,
    submit_jobs,
    tables_caught_up,
    workers_registered,
)

WATCHERS = 50
BATCH = 1_000
AGAIN_S = 10.0
"""How often the overview asks again for what the digests do not carry."""
FIRST = ("/", "/session", "/stats/history", "/attention", "/cluster")
AGAIN = ("/attention", "/cluster")
READY = "watching"


@dataclass(slots=True)
class Taken:
    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    """Milliseconds of the server's cpu for each thousand jobs: what a busy machine leaves alone."""


def measure(scale: Scale) -> Iterator[Row]:
    """Measures both rates, the server's cost of each job, and the ratio."""
    with workplace() as place, Cell(place / "watched", scale.store) as cell:
        cell.start_worker(*MANY_CPUS)
        alone, watched = run(_in_turns(cell, scale))
    looking = f"{WATCHERS} overviews are open"
    shares = [100 * one / other for one, other in zip(watched.rates, alone.rates, strict=True)]
    yield Row("watched", "nobody looks", alone.rates, "jobs/s")
    yield Row("watched", looking, watched.rates, "jobs/s")
    yield Row("watched", "what is left, each turn by itself", shares, "%", "aim: 95")
    cost = "ms cpu/1,000 jobs"
    yield Row("watched", "the server's work, nobody looks", alone.costs, cost, less_is_better=True)
    yield Row("watched", f"the server's work, {looking}", watched.costs, cost, less_is_better=True)


async def _in_turns(cell: Cell, scale: Scale) -> tuple[Taken, Taken]:
    total, alone, watched = scale.of(8_000, 3_000), Taken(), Taken()
    async with open_connections(cell, 4) as opened:
        await workers_registered(opened[0])
        await _lives(cell, opened, total, Taken())
        for turn in range(scale.of(8, 1)):
            # Who is first changes: the database grows meanwhile, and that must favour neither.
            for look in (turn % 2 == 0, turn % 2 == 1):
                with _watchers(cell) if look else nullcontext():
                    await _lives(cell, opened, total, watched if look else alone)
    return alone, watched


async def _lives(cell: Cell, opened: Sequence[Connection], total: int, taken: Taken) -> None:
    server = psutil.Process(cell.server.pid)
    done = int((await opened[0].ask("GET", "/stats"))["submitted_total"]) + total
    spent, began = server.cpu_times(), time.perf_counter()
    await submit_jobs(opened, NOOP, total, BATCH)
    await finished(opened[0], done)
    await tables_caught_up(opened[0])
    taken.rates.append(total / (time.perf_counter() - began))
    now = server.cpu_times()
    used_s = now.user + now.system - spent.user - spent.system
    taken.costs.append(used_s * 1_000_000 / total)


@contextmanager
def _watchers(cell: Cell) -> Iterator[None]:
    url = f"http://{cell.host}:{cell.port}"
    command = [sys.executable, "-m", "benchmarks.open_dashboards", url, cell.token]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == READY
        try:
            yield
        finally:
            process.terminate()


async def _watch_all(url: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    everywhere = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, headers=headers, connector=everywhere) as session:
        open_streams = asyncio.Semaphore(0)
        watching = [asyncio.create_task(_watch(session, open_streams)) for _ in range(WATCHERS)]
        for _ in range(WATCHERS):
            await open_streams.acquire()
        print(READY, flush=True)
        await asyncio.gather(*watching)


async def _watch(session: aiohttp.ClientSession, opened: asyncio.Semaphore) -> None:
    for path in FIRST:
        await _read(session, path)
    endless = aiohttp.ClientTimeout(total=None)
    async with session.get("/stream?digest=true", timeout=endless) as stream:
        opened.release()
        asked = asyncio.create_task(_ask_again(session))
        async for _ in stream.content:
            if asked.done():
                break


async def _ask_again(session: aiohttp.ClientSession) -> None:
    while True:
        await asyncio.sleep(AGAIN_S)
        for path in AGAIN:
            await _read(session, path)


async def _read(session: aiohttp.ClientSession, path: str) -> None:
    async with session.get(path) as answer:
        await answer.read()


if __name__ == "__main__":
    asyncio.run(_watch_all(sys.argv[1], sys.argv[2]))
