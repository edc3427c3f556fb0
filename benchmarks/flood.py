"""Effect of a flood of output on the scheduler: rate of no-op jobs beside it, in one run.

On a small machine the flood's own programs take cores from the server, whatever becomes of their
output. So there are three states, in turn: quiet, the same programs printing into nowhere, and
printing into their logs. The last against the middle one is what logs cost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.table import Row, Scale
from benchmarks.traffic import (
    NOOP,
    Connection,
    open_connections,
    run,
    submit_jobs,
    tables_caught_up,
    until,
    workers_registered,
)

BATCH = 1_000
QUEUE = "flood"
AT_ONCE = 2
PRINT = "head -c 20000000 /dev/zero | tr '\\0' x | fold -w 99"
NOWHERE, LOGGED = f"{PRINT} > /dev/null", PRINT
STATES = (None, NOWHERE, LOGGED)


def measure(scale: Scale) -> Iterator[Row]:
    with workplace() as place, Cell(place / "flood", scale.store) as cell:
        cell.start_worker(*MANY_CPUS, "--queue", "default")
        cell.start_worker("--cpu", str(AT_ONCE), "--queue", QUEUE)
        total = scale.of(20_000, 3_000)
        rates = run(_rates(cell, total, max(scale.repeats, 3)))
    quiet, nowhere, logged = (rates[state] for state in STATES)
    yield Row("flood", "whole lives, nobody prints", quiet, "jobs/s")
    yield Row("flood", f"{AT_ONCE} programs print into nowhere", nowhere, "jobs/s")
    yield Row("flood", f"{AT_ONCE} programs print into their logs", logged, "jobs/s")
    yield Row("flood", "logs against nowhere", _ratio(logged, nowhere), "times", "aim: near 1")
    yield Row("flood", "logs against quiet", _ratio(logged, quiet), "times")


def _ratio(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]


async def _rates(cell: Cell, total: int, rounds: int) -> dict[str | None, list[float]]:
    rates: dict[str | None, list[float]] = {state: [] for state in STATES}
    async with open_connections(cell, 4) as opened:
        await workers_registered(opened[0], 2)
        await opened[0].ask("PUT", f"/queues/{QUEUE}", {})
        await _rate(opened, total)
        for _ in range(rounds):
            for state in STATES:
                pressing = asyncio.create_task(_print_flood(cell, state))
                rates[state].append(await _rate(opened, total))
                pressing.cancel()
                await asyncio.gather(pressing, return_exceptions=True)
                await _stopped(opened[0])
    return rates


async def _rate(opened: Sequence[Connection], total: int) -> float:
    began = time.perf_counter()
    await submit_jobs(opened, NOOP, total, BATCH)
    await _empty(opened[0], "default")
    await tables_caught_up(opened[0])
    return total / (time.perf_counter() - began)


async def _print_flood(cell: Cell, script: str | None) -> None:
    """Runs programs that print, until it is cancelled."""
    if script is None:
        return
    task = {"kind": "command", "argv": ["sh", "-c", script]}
    async with open_connections(cell, 1) as (connection,):
        while True:
            depth = (await connection.ask("GET", f"/queues/{QUEUE}"))["depth"]
            if depth["queued"] < AT_ONCE:
                await connection.ask(
                    "POST", "/jobs", {"name": "flood", "queue": QUEUE, "task": task}
                )
            await asyncio.sleep(0.05)


async def _stopped(connection: Connection) -> None:
    await connection.ask("POST", "/jobs/bulk", {"action": "cancel", "filter": {"queue": QUEUE}})
    await _empty(connection, QUEUE)


async def _empty(connection: Connection, queue: str) -> None:
    async def none_live() -> bool:
        depth = (await connection.ask("GET", f"/queues/{queue}"))["depth"]
        return not any(depth.values())

    await until(none_live)
