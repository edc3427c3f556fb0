"""Lower bounds for the other figures: what each part takes by itself, in the same run.

The same whole lives in batches of 1,000 as in living.py: decided by the scheduler alone; their
journal records inserted by the database alone; the same records appended and projected by our store
alone. And syncs of the disk a second.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import asyncpg

from benchmarks.cell import workplace
from benchmarks.database_server import DatabaseServer
from benchmarks.lives import store_lives, whole_lives
from benchmarks.raw import (
    Material,
    Taken,
    postgres_in_place,
    postgres_material,
    postgres_projected,
    sqlite_material,
    sqlite_projected,
)
from benchmarks.table import Row, Scale
from rota.core.outcome import AnyWrite

SYNC_BYTES = 4096


@dataclass(slots=True)
class Rates:
    decided: list[float] = field(default_factory=list)
    synced: list[float] = field(default_factory=list)
    appended: list[float] = field(default_factory=list)
    projected: list[float] = field(default_factory=list)
    in_place: list[float] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)
    journal_bytes: float = 0.0


def measure(scale: Scale) -> Iterator[Row]:
    """Measures the disk, the database by hand, the store, the scheduler."""
    rates = Rates()
    for _ in range(scale.repeats):
        _round(rates, scale)
    note = f"{rates.journal_bytes:.0f} bytes of journal a life"
    alone = "alone, whole lives in batches of 1,000"
    yield Row("floor", f"write of {SYNC_BYTES:,} bytes and fdatasync", rates.synced, "1/s")
    database = scale.store.replace("sqlite", "SQLite").replace("postgres", "PostgreSQL")
    raw = f"{database} {alone}"
    yield Row("floor", f"{raw}: journal inserts", rates.appended, "jobs/s", note)
    yield Row("floor", f"{raw}: journal and projection by hand", rates.projected, "jobs/s")
    if rates.in_place:
        yield Row("floor", f"{raw}: tables updated in place", rates.in_place, "jobs/s")
    yield Row("floor", f"store {alone}: append and project", rates.stored, "jobs/s")
    yield Row("floor", f"scheduler {alone}", rates.decided, "jobs/s")


def _round(rates: Rates, scale: Scale) -> None:
    lives = scale.of(30_000, 4_000)
    began = time.process_time()
    turns = whole_lives(lives)
    rates.decided.append(lives / (time.process_time() - began))
    with workplace() as place, _database(place, scale) as dsn:
        rates.synced.append(sync_rate(place, scale.of(1_000, 100)))
        if dsn is None:
            material = sqlite_material(place / "made", turns)
            appended = insert_seconds(place, material.bodies)
            projected = sqlite_projected(place, material)
        else:
            material, appended, projected = asyncio.run(_by_postgres(dsn, turns, rates))
        rates.journal_bytes = material.journal_bytes
        rates.appended.append(lives / appended)
        rates.projected.append(lives / projected.seconds)
    with workplace() as place, _database(place, scale) as dsn:
        rates.stored.append(
            lives / asyncio.run(store_lives(None if dsn else place / "data", dsn, turns))
        )


async def _by_postgres(
    dsn: str, turns: Sequence[Sequence[AnyWrite]], rates: Rates
) -> tuple[Material, float, Taken]:
    material = await postgres_material(dsn, turns)
    appended = await insert_seconds_postgres(dsn, material.bodies)
    projected = await postgres_projected(dsn, material)
    in_place = await postgres_in_place(dsn, material)
    rates.in_place.append(len(material.jobs) / in_place.seconds)
    return material, appended, projected


@contextmanager
def _database(place: Path, scale: Scale) -> Iterator[str | None]:
    if scale.store == "sqlite":
        yield None
        return
    database_server = DatabaseServer(place)
    try:
        yield database_server.dsn
    finally:
        database_server.remove()


def sync_rate(place: Path, times: int) -> float:
    """Syncs a second."""
    page = os.urandom(SYNC_BYTES)
    file = os.open(place / "synced", os.O_WRONLY | os.O_CREAT)
    try:
        began = time.perf_counter()
        for _ in range(times):
            os.write(file, page)
            os.fdatasync(file)
        return times / (time.perf_counter() - began)
    finally:
        os.close(file)


def insert_seconds(place: Path, bodies: Sequence[bytes]) -> float:
    """Inserts each record in a durable transaction; returns the seconds."""
    connection = apsw.Connection(str(place / "journal.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE journal (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    began = time.perf_counter()
    for body in bodies:
        connection.execute("INSERT INTO journal (body) VALUES (?)", (body,))
    took = time.perf_counter() - began
    connection.close()
    return took


async def insert_seconds_postgres(dsn: str, bodies: Sequence[bytes]) -> float:
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE raw.alone (seq bigint PRIMARY KEY, body bytea NOT NULL)")
    began = time.perf_counter()
    for seq, body in enumerate(bodies):
        await connection.execute("INSERT INTO raw.alone VALUES ($1, $2)", seq, body)
    took = time.perf_counter() - began
    await connection.close()
    return took
