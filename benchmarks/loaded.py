"""Pickup of a Python function while the system is at half of what it can do, and idle.

First the rate of whole lives of no-op jobs that this machine manages is found. Then half of that
comes in evenly, in small batches, on a worker of its own, while single functions on a second
worker say by a datagram when they run: by their own clock, which all processes of a machine share.
How long it takes until the client has heard of it is a row by itself; peers are compared by that.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.living import together
from benchmarks.pickup import percentile
from benchmarks.table import Row, Scale
from benchmarks.traffic import NOOP, Lane, lanes, run, staffed

SIDES = Path(__file__).parent / "peers" / "sides"
PROBE = {"name": "ring", "queue": "probe"}
EVERY_S = 0.05
"""Between two batches of the background."""
IDLE_S = 0.02
WARM = 5
RUNG_BYTES_MAX = 32
PATIENCE_S = 30.0

Pickup = tuple[float, float]
"""Milliseconds from the sending of a request until its function ran, and until that was heard."""


def measure(scale: Scale) -> Iterator[Row]:
    """Percentiles over single calls, idle and at half load."""
    calls = scale.of(2_000, 60)
    with workplace() as place, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bell:
        bell.bind(("127.0.0.1", 0))
        bell.settimeout(0)
        os.environ["PEERS_BELL"] = str(bell.getsockname()[1])
        paths = (str(SIDES), os.environ.get("PYTHONPATH"))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with Cell(place / "data", scale.store) as cell:
            cell.hire(*MANY_CPUS, "--queue", "default")
            cell.hire("--queue", "probe", "--app", "rota_side:app", "--env", "PEERS_BELL")
            most = max(run(together(cell, (4, scale.of(30_000, 4_000), 1_000), scale.of(3, 1))))
            idle = run(_pickups(cell, bell, calls, 0.0))
            half = run(_pickups(cell, bell, calls, most / 2))
    heard = percentile([heard for _, heard in idle], 50)
    for name, pickups in (("idle", idle), (f"at half load, {most / 2:,.0f} jobs/s", half)):
        taken = [began for began, _ in pickups]
        for share in (50, 99, 99.9):
            value = [percentile(taken, share)]
            yield Row("pickup of a function", f"{name}, p{share:g}", value, "ms", _aim(name, share))
    yield Row("pickup of a function", "idle, until the client has heard, p50", [heard], "ms")


def _aim(name: str, share: float) -> str:
    if name == "idle":
        return {50.0: "aim: 3", 99.0: "aim: 10"}.get(share, "")
    return "aim: 50" if share == 99 else ""


async def _pickups(
    cell: Cell, bell: socket.socket, calls: int, background: float
) -> Sequence[Pickup]:
    taken = []
    async with lanes(cell, 2) as (probe, load):
        await staffed(probe, 2)
        request = probe.request("POST", "/jobs", json.dumps(PROBE).encode())
        async with _background(load, background):
            for number in range(calls + WARM):
                await asyncio.sleep(IDLE_S)
                sent = time.monotonic_ns()
                rung = asyncio.create_task(_rung(bell))
                await probe.send(request)
                async with asyncio.timeout(PATIENCE_S):
                    began, heard = await rung
                if number >= WARM:
                    taken.append(((began - sent) / 1e6, (heard - sent) / 1e6))
    return taken


async def _rung(bell: socket.socket) -> tuple[int, int]:
    """When a function ran, and when it was heard."""
    said = await asyncio.get_running_loop().sock_recv(bell, RUNG_BYTES_MAX)
    return int(said), time.monotonic_ns()


@asynccontextmanager
async def _background(lane: Lane, rate: float) -> AsyncIterator[None]:
    """So many jobs a second, evenly, as long as the block lasts."""
    size = int(rate * EVERY_S)
    if not size:
        yield
        return
    request = lane.request("POST", "/jobs/batch", json.dumps({"jobs": [NOOP] * size}).encode())

    async def pour() -> None:
        due = time.perf_counter()
        while True:
            await lane.send(request)
            due += EVERY_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    pouring = asyncio.create_task(pour())
    try:
        yield
    finally:
        pouring.cancel()
        await asyncio.gather(pouring, return_exceptions=True)
