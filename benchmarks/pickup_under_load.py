"""Pickup of a Python function on an idle system, and at half of the maximum load.

First the rate of whole lives of no-op jobs that this machine manages is found. Then half of that
comes in evenly, in small batches, on a worker of its own, while single functions on a second worker
say by a datagram when they run: by their own clock, which all processes of a machine share. How
long it takes until the client has received of it is a row by itself; peers are compared by that.
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
from benchmarks.pickup import percentile
from benchmarks.table import Row, Scale
from benchmarks.throughput import together
from benchmarks.traffic import NOOP, Connection, open_connections, run, workers_registered

SIDES = Path(__file__).parent / "peers" / "sides"
PROBE = {"name": "pickup", "queue": "probe"}
EVERY_S = 0.05
"""Between two batches of the background."""
IDLE_S = 0.02
WARM = 5
SIGNAL_BYTES_MAX = 32
PATIENCE_S = 30.0

Pickup = tuple[float, float]
"""Milliseconds from sending a request until its function ran, and until its signal arrived."""


def measure(scale: Scale) -> Iterator[Row]:
    """Measures percentiles of single calls, idle and at half load."""
    calls = scale.of(2_000, 60)
    with workplace() as place, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as signals:
        signals.bind(("127.0.0.1", 0))
        signals.settimeout(0)
        os.environ["PEERS_SIGNAL_PORT"] = str(signals.getsockname()[1])
        paths = (str(SIDES), os.environ.get("PYTHONPATH"))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with Cell(place / "data", scale.store) as cell:
            cell.start_worker(*MANY_CPUS, "--queue", "default")
            cell.start_worker(
                "--queue", "probe", "--app", "rota_side:app", "--env", "PEERS_SIGNAL_PORT"
            )
            most = max(run(together(cell, (4, scale.of(30_000, 4_000), 1_000), scale.of(3, 1))))
            idle = run(_pickups(cell, signals, calls, 0.0))
            half = run(_pickups(cell, signals, calls, most / 2))
    received = percentile([received for _, received in idle], 50)
    for name, pickups in (("idle", idle), (f"at half load, {most / 2:,.0f} jobs/s", half)):
        taken = [began for began, _ in pickups]
        for share in (50, 99, 99.9):
            value = [percentile(taken, share)]
            yield Row("pickup of a function", f"{name}, p{share:g}", value, "ms", _aim(name, share))
    yield Row("pickup of a function", "idle, until the client has received, p50", [received], "ms")


def _aim(name: str, share: float) -> str:
    if name == "idle":
        return {50.0: "aim: 3", 99.0: "aim: 10"}.get(share, "")
    return "aim: 50" if share == 99 else ""


async def _pickups(
    cell: Cell, signal: socket.socket, calls: int, background: float
) -> Sequence[Pickup]:
    taken = []
    async with open_connections(cell, 2) as (probe, load):
        await workers_registered(probe, 2)
        request = probe.request("POST", "/jobs", json.dumps(PROBE).encode())
        async with _background(load, background):
            for number in range(calls + WARM):
                await asyncio.sleep(IDLE_S)
                sent = time.monotonic_ns()
                started = asyncio.create_task(_started_at(signal))
                await probe.send(request)
                async with asyncio.timeout(PATIENCE_S):
                    began, received = await started
                if number >= WARM:
                    taken.append(((began - sent) / 1e6, (received - sent) / 1e6))
    return taken


async def _started_at(signal: socket.socket) -> tuple[int, int]:
    """When a function started, and when its signal was received."""
    datagram = await asyncio.get_running_loop().sock_recv(signal, SIGNAL_BYTES_MAX)
    return int(datagram), time.monotonic_ns()


@asynccontextmanager
async def _background(connection: Connection, rate: float) -> AsyncIterator[None]:
    """Submits so many jobs a second, evenly, while the block runs."""
    size = int(rate * EVERY_S)
    if not size:
        yield
        return
    request = connection.request(
        "POST", "/jobs/batch", json.dumps({"jobs": [NOOP] * size}).encode()
    )

    async def submit_jobs() -> None:
        due = time.perf_counter()
        while True:
            await connection.send(request)
            due += EVERY_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    pouring = asyncio.create_task(submit_jobs())
    try:
        yield
    finally:
        pouring.cancel()
        await asyncio.gather(pouring, return_exceptions=True)
