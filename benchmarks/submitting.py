"""Submissions a second, each durable before it is answered; nothing runs meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cell import Cell, workplace
from benchmarks.table import Row, Scale
from benchmarks.traffic import (
    NOOP,
    open_connections,
    run,
    submit_jobs,
    submit_keyed,
    tables_caught_up,
)

CONNECTIONS = 64
BATCH = 1_000
BATCH_CONNECTIONS = 4


def measure(scale: Scale) -> Iterator[Row]:
    """Measures single calls from many connections, and batches from a few."""
    with workplace() as place, Cell(place / "data", scale.store) as cell:
        singles = run(_rates(cell, (CONNECTIONS, scale.of(10_000, 2_000), 1), scale))
        keyed = run(_keyed(cell, scale.of(10_000, 2_000), scale))
        batches = run(_rates(cell, (BATCH_CONNECTIONS, scale.of(60_000, 8_000), BATCH), scale))
        one = run(_rates(cell, (1, scale.of(1_000, 200), 1), scale))
    yield Row("submit", "single calls, 1 connection", one, "jobs/s", "each waits for its own sync")
    yield Row("submit", f"single calls, {CONNECTIONS} connections", singles, "jobs/s")
    yield Row("submit", f"with keys, {CONNECTIONS} connections", keyed, "jobs/s")
    yield Row("submit", f"batches of {BATCH:,}, {BATCH_CONNECTIONS} connections", batches, "jobs/s")


async def _rates(cell: Cell, load: tuple[int, int, int], scale: Scale) -> list[float]:
    connections, total, batch = load
    rates = []
    async with open_connections(cell, connections) as opened:
        await submit_jobs(opened, NOOP, batch * connections, batch)
        for _ in range(scale.repeats):
            await tables_caught_up(opened[0])
            rates.append(total / await submit_jobs(opened, NOOP, total, batch))
    return rates


async def _keyed(cell: Cell, total: int, scale: Scale) -> list[float]:
    """Submits every call with its own key, as the SDK does."""
    rates = []
    async with open_connections(cell, CONNECTIONS) as opened:
        for round_ in range(scale.repeats):
            await tables_caught_up(opened[0])
            keys = [f"round-{round_}-{number}" for number in range(total)]
            rates.append(total / await submit_keyed(opened, NOOP, keys))
    return rates
