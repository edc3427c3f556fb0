"""Bytes for each job, of the write-ahead log and of disk, and bloat of the tables.

Whole lives over HTTP. *Kept* is what remains on disk for a finished job, with its execution, its
indexes and its part of the journal; *live tables* is what those tables have on disk that hold
nothing when all jobs have ended: bloat.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.table import Row, Scale, count
from benchmarks.throughput import together
from benchmarks.traffic import run

BATCH = 1_000
PORTION = 100_000
"""So many wait at most. What a long backlog leaves behind is another question: space that the
database gives back when it next cleans up."""
MIB = 1 << 20
_LIVE = """
SELECT sum(pg_total_relation_size(c.oid))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE nspname = 'rota' AND relname IN ('jobs_live', 'jobs_shelved', 'executions_live', 'inbox')
"""


def measure(scale: Scale) -> Iterator[Row]:
    """Fills tables and files with a first load, then measures a second one."""
    lives = scale.of(int(os.environ.get("ROTA_LIVES", "1000000")), 4_000)
    with workplace() as place, Cell(place / "data", scale.store) as cell:
        cell.start_worker(*MANY_CPUS)
        run(together(cell, (4, BATCH, BATCH), 1))
        logged, kept = _logged(cell), _kept(cell)
        portion = min(lives, PORTION)
        run(together(cell, (4, portion, BATCH), lives // portion))
        made = lives + 4 * BATCH  # one of each connection comes first, to warm up
        logged, kept = _logged(cell) - logged, _kept(cell) - kept
        live = int(cell.database_server.sql(_LIVE)) if cell.database_server is not None else None
    name = f"{count(lives)} whole lives"
    if live is not None:
        yield Row("footprint", f"{name}: write-ahead log", [logged / made], "bytes/job")
        yield Row("footprint", f"{name}: live tables afterwards", [live / MIB], "MiB")
    yield Row("footprint", f"{name}: kept on disk", [kept / made], "bytes/job")


def _logged(cell: Cell) -> int:
    if cell.database_server is None:
        return 0
    return int(cell.database_server.sql("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


def _kept(cell: Cell) -> int:
    if cell.database_server is not None:
        return int(cell.database_server.sql("SELECT pg_database_size(current_database())"))
    return sum(path.stat().st_size for path in cell.data.glob("*.db*"))
