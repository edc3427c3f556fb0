"""Cost of an idle system: processor time and memory of server and worker, and queries."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil

from benchmarks.cell import Cell, workplace
from benchmarks.table import Row, Scale
from benchmarks.traffic import (
    NOOP,
    finished,
    open_connections,
    run,
    submit_jobs,
    workers_registered,
)

SETTLE_S = 8
"""After the last job: what was put off until later is done by then."""
MIB = 1 << 20
_COMMITS = """
SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""


def measure(scale: Scale) -> Iterator[Row]:
    """Measures one server and one worker without jobs, after a thousand jobs."""
    seconds = scale.of(60, 5)
    with workplace() as place, Cell(place / "data", scale.store) as cell:
        worker = psutil.Process(cell.start_worker())
        server = psutil.Process(cell.server.pid)
        run(_used(cell))
        time.sleep(SETTLE_S if not scale.quick else 1)
        parts = {"server": server, "worker": worker}
        before = {name: _cpu(process) for name, process in parts.items()}
        asked, began = _transactions(cell), time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - began
        asked = _transactions(cell) - asked
        cores = {name: (_cpu(one) - before[name]) / took for name, one in parts.items()}
        memory = {name: _family_rss(process) for name, process in parts.items()}
    for name, share in cores.items():
        yield Row("idle", f"{name}: processor", [100 * share], "% of a core", "aim: 1")
    for name, rss in memory.items():
        note = "aim: 100, its processes together"
        yield Row("idle", f"{name}: memory", [rss / MIB], "MiB", note)
    if cell.database_server is not None:
        yield Row("idle", "transactions of the database", [max(0, asked) / took], "1/s")


async def _used(cell: Cell) -> None:
    async with open_connections(cell, 1) as opened:
        await workers_registered(opened[0])
        await submit_jobs(opened, NOOP, 1_000, 1_000)
        await finished(opened[0], 1_000)


def _cpu(process: psutil.Process) -> float:
    """Processor time with child processes, such as the worker's supervisor."""
    family = [process, *process.children(recursive=True)]
    return sum(times.user + times.system for times in (one.cpu_times() for one in family))


def _family_rss(process: psutil.Process) -> int:
    return sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))


def _transactions(cell: Cell) -> int:
    """Transactions so far, by the database's statistics."""
    return int(cell.database_server.sql(_COMMITS)) if cell.database_server is not None else 0
