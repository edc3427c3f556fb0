"""What each part takes by itself, in the same run: the floor under the other figures.

The same whole lives in batches of 1,000 as in living.py: decided by the scheduler alone; their
journal records inserted by the database alone; the same records appended and folded by our store
alone. And how often the disk can be told to keep something for good.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import asyncpg

from benchmarks.backing import Backing
from benchmarks.cell import workplace
from benchmarks.fleet import START, completion
from benchmarks.table import Row, Scale
from rota.core.inputs import Completion, NewJob, Poll, Register, Submit, Timing
from rota.core.model import (
    JobId,
    Needs,
    PollId,
    Resources,
    RetryPolicy,
    Spec,
    Terms,
    WorkerId,
)
from rota.core.outcome import AnyWrite
from rota.core.scheduler import Scheduler
from rota.store.journal import encode_record
from rota.store.postgres import open_postgres
from rota.store.protocol import Seq
from rota.store.sqlite import open_sqlite

BATCH = 1_000
WORKER = WorkerId("worker")
TERMS = Terms("noop", "default", "default", 0, Needs(Resources(cpu_milli=1000)), RetryPolicy())
SYNC_BYTES = 4096


def measure(scale: Scale) -> Iterator[Row]:
    """The disk, SQLite, the store, the scheduler."""
    lives = scale.of(30_000, 4_000)
    decided, synced, inserted, stored = [], [], [], []
    bodies: list[bytes] = []
    for _ in range(scale.repeats):
        began = time.process_time()
        turns = whole_lives(lives)
        decided.append(lives / (time.process_time() - began))
        bodies = [encode_record(writes) for writes in turns]
        with workplace() as place:
            synced.append(sync_rate(place, scale.of(1_000, 100)))
            with _database(place, scale) as dsn:
                if dsn is None:
                    inserted.append(lives / insert_seconds(place, bodies))
                else:
                    inserted.append(lives / asyncio.run(insert_seconds_postgres(dsn, bodies)))
                stored.append(lives / asyncio.run(store_seconds(place, dsn, turns)))
    size = sum(len(body) for body in bodies) / lives
    note = f"{size:.0f} bytes of journal a life"
    alone = "alone, whole lives in batches of 1,000"
    yield Row("floor", f"write of {SYNC_BYTES:,} bytes and fdatasync", synced, "1/s")
    database = scale.store.replace("sqlite", "SQLite").replace("postgres", "PostgreSQL")
    yield Row("floor", f"{database} {alone}: journal inserts", inserted, "jobs/s", note)
    yield Row("floor", f"store {alone}: append and fold", stored, "jobs/s")
    yield Row("floor", f"scheduler {alone}", decided, "jobs/s")


@contextmanager
def _database(place: Path, scale: Scale) -> Iterator[str | None]:
    """The address of a PostgreSQL, if that is what is measured."""
    if scale.store == "sqlite":
        yield None
        return
    backing = Backing(place)
    try:
        yield backing.dsn
    finally:
        backing.remove()


def whole_lives(total: int) -> list[list[AnyWrite]]:
    """The writes of each turn: submitted, claimed, and completed with the next ones claimed."""
    scheduler = Scheduler(Timing(), START)
    capacity = Resources(cpu_milli=1000 * BATCH)
    turns = [
        scheduler.step(
            Register(worker_id=WORKER, session="s", name="w", capacity=capacity), START
        ).writes
    ]
    held: tuple[Poll, ...] = (_poll(0, ()),)
    for number in range(0, total, BATCH):
        now = START + number
        submitted = scheduler.turn([_submit(number, now)], now)
        claimed = scheduler.turn(held, now)
        orders = claimed.answers[0].orders
        assert len(orders) == BATCH
        held = (_poll(number + 1, [completion(order.execution) for order in orders]),)
        turns += [submitted.writes, claimed.writes]
    turns.append(scheduler.turn(held, START + total).writes)
    return turns


def _submit(first: int, now: int) -> Submit:
    ids = (f"{now:013x}-{first + i:08x}" for i in range(BATCH))
    spec = Spec(TERMS, b'{"kind":"noop"}', now)
    return Submit(jobs=tuple(NewJob(id=JobId(job_id), spec=spec) for job_id in ids))


def _poll(number: int, completed: Sequence[Completion]) -> Poll:
    return Poll(
        poll_id=PollId(number),
        worker_id=WORKER,
        max_orders=BATCH,
        until=START + 10**9,
        completed=tuple(completed),
    )


def sync_rate(place: Path, times: int) -> float:
    """How often a second something can be made durable."""
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
    """One durable transaction a record, and nothing else."""
    connection = apsw.Connection(str(place / "raw.db"))
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
    """The same by PostgreSQL."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE raw (seq bigint PRIMARY KEY, body bytea NOT NULL)")
    began = time.perf_counter()
    for seq, body in enumerate(bodies):
        await connection.execute("INSERT INTO raw VALUES ($1, $2)", seq, body)
    took = time.perf_counter() - began
    await connection.close()
    return took


async def store_seconds(place: Path, dsn: str | None, turns: Sequence[Sequence[AnyWrite]]) -> float:
    """Encoded, appended and folded into the tables, as the server does it."""
    store = open_sqlite(place / "data") if dsn is None else await open_postgres(dsn)
    try:
        epoch = await store.ledger.claim("bench")
        began = time.perf_counter()
        for number, writes in enumerate(turns, 1):
            await store.ledger.append(epoch, Seq(number), START + number, writes)
        await store.catalog.jobs([JobId("none")])  # a read waits until the tables have it all
        return time.perf_counter() - began
    finally:
        await store.close()
