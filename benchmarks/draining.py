"""Draining rates of backlogs of three sizes, over HTTP, until the tables are complete.

The figures are jobs a second over the whole backlog. The largest takes minutes and the smallest
less than a second, on a machine that changes its speed in between: so the smallest is drained many
times, before and after the largest, and the ratio is against all of that together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.database_server import WORN_SEGMENTS, DatabaseServer
from benchmarks.table import Row, Scale, count
from benchmarks.throughput import drained, together
from benchmarks.traffic import run

BATCH = 1_000
JOBS_PER_SEGMENT = 8_000
"""In a file of PostgreSQL's log: two kilobytes each."""
OFTEN = 8
"""Times that the smallest is drained on each side of the largest."""


def measure(scale: Scale) -> Iterator[Row]:
    """Drains few, some, many, some, few jobs, each in a server of its own, so that none drains from
    tables that a larger backlog has filled."""
    few, some, many = scale.of((20_000, 200_000, 2_000_000), (1_000, 2_000, 6_000))
    rates: dict[int, list[float]] = {few: [], some: [], many: []}
    flat = []
    for _ in range(scale.rounds or 1):
        around: list[float] = []
        for size in (few, some, many, some, few):
            taken = _drain(scale, size, OFTEN if size == few else 1)
            rates[size] += taken
            around += taken if size == few else []
        flat.append(rates[many][-1] / _together(around))
    for size, taken in rates.items():
        yield Row("drain", f"{count(size)} waiting", taken, "jobs/s")
    name = f"{count(many)} against {count(few)} waiting"
    yield Row("drain", name, flat, "ratio", "aim: 0.9")


def _drain(scale: Scale, size: int, times: int) -> list[float]:
    with workplace() as place, Cell(place / "data", _store(scale, place, size)) as cell:
        cell.start_worker(*MANY_CPUS)
        run(together(cell, (4, BATCH, BATCH), 1))
        return run(drained(cell, size, times))


def _together(rates: list[float]) -> float:
    return len(rates) / sum(1 / rate for rate in rates)


def _store(scale: Scale, place: Path, size: int) -> str | DatabaseServer:
    """Starts a database with enough files of the write-ahead log for the backlog."""
    if scale.store != "postgres":
        return scale.store
    return DatabaseServer(place, worn_segments=max(WORN_SEGMENTS, size // JOBS_PER_SEGMENT))
