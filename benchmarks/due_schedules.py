"""Lateness of many schedules that are due at the same instant, and when all their jobs have run."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.table import Row, Scale, count
from benchmarks.traffic import (
    NOOP,
    Connection,
    finished,
    open_connections,
    run,
    tables_caught_up,
    workers_registered,
)

CONNECTIONS = 32
_BUCKET = re.compile(r'^rota_schedule_lateness_seconds_bucket\{le="([^"]+)"\} (\S+)', re.M)


def measure(scale: Scale) -> Iterator[Row]:
    schedules = scale.of(10_000, 200)
    with workplace() as place, Cell(place / "data", scale.store) as cell:
        cell.start_worker(*MANY_CPUS)
        made_s, within, all_ran_s = run(_fired(cell, schedules, scale.of(60, 10)))
    name = f"{count(schedules)} due at once"
    yield Row("schedules", f"{name}: made before", [schedules / made_s], "1/s")
    for share, late_s in within.items():
        note = "upper bound of the histogram's step"
        yield Row("schedules", f"{name}: lateness, p{share}", [late_s * 1_000], "ms", note)
    yield Row("schedules", f"{name}: until all jobs had run", [all_ran_s], "s")


async def _fired(
    cell: Cell, schedules: int, ahead_s: float
) -> tuple[float, dict[int, float], float]:
    async with open_connections(cell, CONNECTIONS) as opened:
        await workers_registered(opened[0])
        due = datetime.now(UTC) + timedelta(seconds=ahead_s)
        began = time.perf_counter()
        await _make(opened, schedules, due)
        made_s = time.perf_counter() - began
        left_s = (due - datetime.now(UTC)).total_seconds()
        if left_s < 0:
            raise RuntimeError(f"{schedules} schedules took {made_s:.0f} s to make: too late")
        await asyncio.sleep(left_s)
        await finished(opened[0], schedules)
        await tables_caught_up(opened[0])
        all_ran_s = (datetime.now(UTC) - due).total_seconds()
        text = (await opened[0].send(opened[0].request("GET", "/metrics"))).decode()
    return made_s, {share: _lateness(text, share) for share in (50, 99)}, all_ran_s


async def _make(opened: list[Connection], schedules: int, due: datetime) -> None:
    left = iter(range(schedules))

    async def lane_of(connection: Connection) -> None:
        for number in left:
            spec = {"name": f"due-{number}", "at": due.isoformat(), "job": NOOP}
            await connection.send(
                connection.request("POST", "/schedules", json.dumps(spec).encode())
            )

    await asyncio.gather(*(lane_of(connection) for connection in opened))


def _lateness(metrics: str, share: int) -> float:
    """Upper bound in seconds of the histogram step with that share of the jobs."""
    steps = [(float(bound), float(there)) for bound, there in _BUCKET.findall(metrics)]
    total = steps[-1][1]
    return next(bound for bound, there in steps if there >= total * share / 100)
