"""Is draining flat? Backlogs of three sizes, drained over HTTP until the tables have it all.

The figures are jobs a second over the whole backlog; the ratio is that of the largest against the
smallest, of the same round.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.backing import WORN_SEGMENTS, Backing
from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.living import drained, together
from benchmarks.table import Row, Scale, count
from benchmarks.traffic import run

BATCH = 1_000
JOBS_PER_SEGMENT = 8_000
"""In a file of PostgreSQL's log: two kilobytes each."""


def measure(scale: Scale) -> Iterator[Row]:
    """Each backlog in a server of its own: none is drained from tables that others have filled."""
    sizes = scale.of((20_000, 200_000, 2_000_000), (2_000, 6_000))
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(scale.rounds or 1):
        for size in sizes:
            with workplace() as place, Cell(place / "data", _store(scale, place, size)) as cell:
                cell.hire(*MANY_CPUS)
                run(together(cell, (4, BATCH, BATCH), 1))
                rates[size] += run(drained(cell, size, 1))
    for size in sizes:
        yield Row("drain", f"{count(size)} waiting", rates[size], "jobs/s")
    flat = [most / few for few, most in zip(rates[sizes[0]], rates[sizes[-1]], strict=True)]
    name = f"{count(sizes[-1])} against {count(sizes[0])} waiting"
    yield Row("drain", name, flat, "ratio", "aim: 0.9")


def _store(scale: Scale, place: Path, size: int) -> str | Backing:
    """A database that has as many files of its log as the backlog takes, coming and going."""
    if scale.store != "postgres":
        return scale.store
    return Backing(place, worn_segments=max(WORN_SEGMENTS, size // JOBS_PER_SEGMENT))
