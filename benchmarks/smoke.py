"""Regression check: ratios to the raw limit of the same run, compared with committed ones.

Each ratio is processor time of the same lives written by hand divided by processor time of Rota, so
that neither a faster machine nor a busy one changes it much: 0.1 says that Rota takes ten times the
work of the bare driver. What is compared is the best of a few tries. A ratio that has fallen by
more than a third against `ratios.json` fails the run; `python -m benchmarks smoke --keep` keeps the
medians of this one instead.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.lives import store_lives, whole_lives
from benchmarks.raw import (
    postgres_material,
    postgres_projected,
    sqlite_material,
    sqlite_projected,
)
from benchmarks.table import Row, Scale
from benchmarks.throughput import together
from benchmarks.traffic import run
from rota.core.scheduler import Scheduler

KEPT = Path(__file__).with_name("ratios.json")
NAME = "smoke"
TOLERATED = 2 / 3
"""Of what was kept: it may fall by a third."""
TRIES_MAX = 4
"""Within which one must be good enough: a neighbour's burst is over by then."""
LIVES = 6_000
BATCH = 1_000


def measure(scale: Scale) -> Iterator[Row]:
    """Measures a ratio for each part, up to a few times until it is good enough."""
    kept = kept_ratios()
    for setting, take in RATIOS.items():
        before = kept.get(setting)
        taken = _enough(take, None if scale.keep else before)
        note = "" if before is None else f"kept: {before:.1%}"
        yield Row(NAME, setting, [100 * ratio for ratio in taken], "% of raw", note)


def kept_ratios() -> dict[str, float]:
    ratios: dict[str, float] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    return ratios


def keep(rows: Iterable[Row]) -> None:
    """Stores the medians of this run for later comparisons."""
    ratios = {row.setting: round(median(row.values) / 100, 4) for row in rows if row.name == NAME}
    KEPT.write_text(json.dumps(ratios, indent=2) + "\n", "utf-8")


def fallen(rows: Iterable[Row], kept: Mapping[str, float]) -> list[str]:
    """Messages for ratios that are too far below the stored ones."""
    return [
        f"{row.setting}: {row.best:.1f} % of the raw limit, {kept[row.setting]:.1%} was kept: this"
        f" change costs more than a third ({KEPT.name} says what is expected; if it is meant,"
        " take it anew with --keep)"
        for row in rows
        if row.name == NAME
        and row.setting in kept
        and row.best < 100 * kept[row.setting] * TOLERATED
    ]


def _enough(take: Callable[[], float], before: float | None) -> Sequence[float]:
    taken: list[float] = []
    trouble: Exception | None = None
    for _ in range(TRIES_MAX):
        try:
            taken.append(take())
        except (RuntimeError, TimeoutError) as error:
            # On a machine that is far too busy a server loses its database for a moment: one try.
            trouble = error
            continue
        if before is not None and taken[-1] >= before * TOLERATED:
            break
    if not taken and trouble is not None:
        raise trouble
    return taken


def scheduler_ratio(lives: int = LIVES, made: type[Scheduler] = Scheduler) -> float:
    began = time.process_time()
    turns = whole_lives(lives, made)
    spent = time.process_time() - began
    with workplace() as place:
        return sqlite_projected(place, sqlite_material(place / "made", turns)).cpu_s / spent


def store_ratio() -> float:
    turns = whole_lives(LIVES)
    with workplace() as place:
        raw = sqlite_projected(place, sqlite_material(place / "made", turns)).cpu_s
        began = time.process_time()
        asyncio.run(store_lives(place / "data", None, turns))
        return raw / (time.process_time() - began)


def sqlite_ratio() -> float:
    """The ratio of whole lives over HTTP, with server and worker."""
    with workplace() as place:
        raw = sqlite_projected(place, sqlite_material(place / "made", whole_lives(LIVES))).cpu_s
        with Cell(place / "cell") as cell:
            return raw / _lived(cell, cell.start_worker(*MANY_CPUS))


def postgres_ratio() -> float:
    """The same on PostgreSQL, with the database's processor time."""
    turns = whole_lives(LIVES)

    async def by_hand(dsn: str) -> float:
        return (await postgres_projected(dsn, await postgres_material(dsn, turns))).cpu_s

    with workplace() as place, Cell(place / "cell", "postgres") as cell:
        assert cell.database_server is not None
        raw = asyncio.run(by_hand(cell.database_server.new_dsn()))
        return raw / _lived(cell, cell.start_worker(*MANY_CPUS), cell.database_server.processes)


RATIOS: Mapping[str, Callable[[], float]] = {
    "scheduler alone": scheduler_ratio,
    "store alone, SQLite": store_ratio,
    "whole life over HTTP, SQLite": sqlite_ratio,
    "whole life over HTTP, PostgreSQL": postgres_ratio,
}


def _lived(
    cell: Cell, worker: int, others: Callable[[], Sequence[psutil.Process]] = lambda: ()
) -> float:
    """Processor seconds of whole lives, of all processes."""
    server = psutil.Process(cell.server.pid)
    # The background process, which projects, is a child of the server.
    ours = [server, *server.children(recursive=True), psutil.Process(worker)]
    run(together(cell, (1, BATCH, BATCH), 1))
    before = _spent([*ours, *others()])
    # A batch of each connection comes first, to warm up: they are lives as well.
    run(together(cell, (4, LIVES - 4 * BATCH, BATCH), 1))
    after = _spent([*ours, *others()])
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def _spent(part: Iterable[psutil.Process]) -> dict[int, float]:
    """Processor seconds by process; processes of the database that have ended are left out."""
    found = {}
    for one in part:
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            found[one.pid] = times.user + times.system
    return found
