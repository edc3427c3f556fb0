"""What a flood of output costs the scheduler: whole lives of no-op jobs beside it, in one run.

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
from benchmarks.traffic import NOOP, Lane, folded, lanes, pour, run, staffed, until

BATCH = 1_000
QUEUE = "flood"
AT_ONCE = 2
PRINT = "head -c 20000000 /dev/zero | tr '\\0' x | fold -w 99"
NOWHERE, LOGGED = f"{PRINT} > /dev/null", PRINT
STATES = (None, NOWHERE, LOGGED)


def measure(scale: Scale) -> Iterator[Row]:
    """Rates in the three states, and their ratios."""
    with workplace() as place, Cell(place / "flood", scale.store) as cell:
        cell.hire(*MANY_CPUS, "--queue", "default")
        cell.hire("--cpu", str(AT_ONCE), "--queue", QUEUE)
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
    async with lanes(cell, 4) as opened:
        await staffed(opened[0], 2)
        await opened[0].ask("PUT", f"/queues/{QUEUE}", {})
        await _rate(opened, total)
        for _ in range(rounds):
            for state in STATES:
                pressing = asyncio.create_task(_press(cell, state))
                rates[state].append(await _rate(opened, total))
                pressing.cancel()
                await asyncio.gather(pressing, return_exceptions=True)
                await _stopped(opened[0])
    return rates


async def _rate(opened: Sequence[Lane], total: int) -> float:
    began = time.perf_counter()
    await pour(opened, NOOP, total, BATCH)
    await _empty(opened[0], "default")
    await folded(opened[0])
    return total / (time.perf_counter() - began)


async def _press(cell: Cell, script: str | None) -> None:
    """Keeps programs printing until it is cancelled."""
    if script is None:
        return
    task = {"kind": "command", "argv": ["sh", "-c", script]}
    async with lanes(cell, 1) as (lane,):
        while True:
            depth = (await lane.ask("GET", f"/queues/{QUEUE}"))["depth"]
            if depth["queued"] < AT_ONCE:
                await lane.ask("POST", "/jobs", {"name": "flood", "queue": QUEUE, "task": task})
            await asyncio.sleep(0.05)


async def _stopped(lane: Lane) -> None:
    await lane.ask("POST", "/jobs/bulk", {"action": "cancel", "filter": {"queue": QUEUE}})
    await _empty(lane, QUEUE)


async def _empty(lane: Lane, queue: str) -> None:
    async def none_live() -> bool:
        depth = (await lane.ask("GET", f"/queues/{queue}"))["depth"]
        return not any(depth.values())

    await until(none_live)
