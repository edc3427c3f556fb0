"""Restart time of a server with many waiting jobs, and its memory afterwards.

The jobs come in over HTTP. Ready is: from the start of the process until `/readyz` says ok. The
system's file cache is warm, as it is after a crash of the process but not of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.cell import Cell, workplace
from benchmarks.table import Row, Scale, count
from benchmarks.traffic import NOOP, open_connections, run, submit_jobs, tables_caught_up, until

BATCH = 10_000


def measure(scale: Scale) -> Iterator[Row]:
    """Measures an empty server, one after a clean stop, and one that was killed while writing."""
    waiting = scale.of(1_000_000, 20_000)
    with workplace() as place:
        cell = Cell(place / "data", scale.store)
        empty = [_ready(cell) for _ in range(scale.repeats)]
        empty_rss = cell.rss
        filling = run(_fill(cell, waiting))
        run(_settled(cell))
        ready = [_ready(cell) for _ in range(scale.repeats)]
        loaded_rss = cell.rss
        run(_fill(cell, BATCH * scale.of(4, 1)))
        cell.kill()  # what was answered is in the journal, and most of it not yet in the tables
        killed = [_ready(cell)]
        cell.stop()
    setting = f"{count(waiting)} waiting"
    yield Row("submit", f"{count(BATCH)} a batch, until {setting}", [filling], "jobs/s")
    yield Row("restart", "nothing waiting", empty, "s", less_is_better=True)
    yield Row("restart", setting, ready, "s", "aim: 10", less_is_better=True)
    yield Row("restart", f"{setting}, killed while writing", killed, "s", less_is_better=True)
    per_job = [(loaded_rss - empty_rss) / waiting]
    yield Row("memory", f"server restarted, {setting}, by RSS", per_job, "bytes/job")


def _ready(cell: Cell) -> float:
    cell.stop()
    began = time.perf_counter()
    cell.start()
    run(_answering(cell))
    return time.perf_counter() - began


async def _answering(cell: Cell) -> None:
    async with open_connections(cell, 1) as (connection,):

        async def ready() -> bool:
            return bool((await connection.ask("GET", "/readyz"))["status"] == "ok")

        await until(ready)


async def _fill(cell: Cell, total: int) -> float:
    async with open_connections(cell, 2) as opened:
        return total / await submit_jobs(opened, NOOP, total, BATCH)


async def _settled(cell: Cell) -> None:
    async with open_connections(cell, 1) as (connection,):
        await tables_caught_up(connection)
