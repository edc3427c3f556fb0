"""A backlog far larger than the scheduler keeps in memory: submitted, drained, loaded at a restart.

Engine and store as in a server, without HTTP: jobs come in batches, and one worker takes and
completes a thousand at a time. The clock of each stage stops when the tables have caught up, so
that nothing is left to be paid for later. Memory is that of the process, with what the allocator
keeps. The large backlog and a small one are drained in turns.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.cell import workplace
from benchmarks.fleet import HOUR_MS, completion
from benchmarks.new_process import in_new_process
from benchmarks.table import Row, Scale, count
from rota.api.ids import IdMint
from rota.core.commands import Completion, MemoryWindow, NewJob, Poll, Register, Submit, Timing
from rota.core.limits import WINDOW_JOBS
from rota.core.model import JobId, Needs, Resources, RetryPolicy, Spec, Terms, WorkerId
from rota.engine.clock import SystemClock
from rota.engine.leadership import CellMember
from rota.engine.loop import Engine
from rota.engine.metrics import Metrics
from rota.store.postgres.store import open_postgres
from rota.store.protocol import Store
from rota.store.sqlite.store import open_sqlite
from tests.postgres.server import PostgresServer

BATCH = 10_000
IN_HAND = 1_000
WORKER = WorkerId("worker")
TERMS = Terms("noop", "default", "default", 0, Needs(Resources(cpu_milli=1000)), RetryPolicy())
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Settings: the store, the number of waiting jobs in memory, the number of repeats."""

    address: str
    window: int
    repeats: int = 1


def measure(scale: Scale) -> Iterator[Row]:
    """Measures ten million jobs on SQLite and PostgreSQL, and a hundred thousand with little
    memory."""
    waiting, window = scale.of((10_000_000, WINDOW_JOBS), (100_000, 10_000))
    with workplace() as folder:
        places = [Place(str(folder / name), window, scale.repeats) for name in ("small", "large")]
        yield from figures("SQLite", places, waiting)
    with postgres() as server:
        addresses = [server.dsn(server.new_database()) for _ in range(2)]
        places = [Place(address, window, scale.repeats) for address in addresses]
        yield from figures("PostgreSQL", places, waiting)


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer({"shared_buffers": "512MB", "max_wal_size": "8GB"}, quick=False)
    try:
        yield server
    finally:
        server.remove()


def figures(store: str, places: Sequence[Place], waiting: int) -> Iterator[Row]:
    """Fills the large backlog, drains it and a small one, then restarts with the rest."""
    large = places[1]
    accepted, memory, rates = in_new_process(fill_and_drain, *places, waiting)
    ready_s, ready_memory = in_new_process(restart, large)
    name = f"{store}, {count(waiting)} waiting, window {count(large.window)}"
    few = f"{count(large.window // 2)} waiting"
    yield Row("backlog", f"{name}: accepted, {count(BATCH)} a batch", [accepted], "jobs/s")
    for stage, used in zip(("empty", "filled", "drained in part"), memory, strict=True):
        yield Row("backlog", f"{name}: memory, {stage}", [used / MIB], "MiB")
    yield Row("backlog", f"{store}, {few}: drained", [small for small, _ in rates], "jobs/s")
    yield Row("backlog", f"{name}: drained", [rate for _, rate in rates], "jobs/s")
    ratios = [rate / small for small, rate in rates]
    yield Row("backlog", f"{name}: drained, against {few}", ratios, "ratio", "aim: 1")
    yield Row("backlog", f"{name}: started again", [ready_s], "s", less_is_better=True)
    yield Row("backlog", f"{name}: memory, started again", [ready_memory / MIB], "MiB")


def fill_and_drain(
    small: Place, large: Place, waiting: int
) -> tuple[float, tuple[int, int, int], list[tuple[float, float]]]:
    """Returns (jobs accepted a second, memory by stage, jobs run a second of both backlogs)."""
    return asyncio.run(_fill_and_drain(small, large, waiting))


async def _fill_and_drain(
    small: Place, large: Place, waiting: int
) -> tuple[float, tuple[int, int, int], list[tuple[float, float]]]:
    async with serving(large) as (engine, store):
        empty = _memory()
        began = time.perf_counter()
        await fill(engine, waiting)
        await tables_caught_up(store)
        accepted = waiting / (time.perf_counter() - began)
        filled = _memory()
        worker = Worker(engine, store)
        await worker.rate(large.window)  # what was in memory when jobs began to be spilled
        drained = _memory()
        async with serving(small) as (other, other_store):
            rates = []
            colleague = Worker(other, other_store)
            for _ in range(large.repeats):
                # In turns, for the machine may be slower in one minute than in another.
                await fill(other, large.window // 2)
                small_rate = await colleague.rate(large.window // 2)
                rates.append((small_rate, await worker.rate(large.window // 2)))
        return accepted, (empty, filled, drained), rates


def restart(place: Place) -> tuple[float, int]:
    """Returns (seconds until the engine decides again, memory then)."""
    return asyncio.run(_restart(place))


async def _restart(place: Place) -> tuple[float, int]:
    began = time.perf_counter()
    async with serving(place):
        return time.perf_counter() - began, _memory()


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[tuple[Engine, Store]]:
    store: Store
    if place.address.startswith("postgresql:"):
        store = await open_postgres(place.address)
    else:
        store = open_sqlite(Path(place.address))
    timing = Timing(lease_ttl_ms=HOUR_MS, window=MemoryWindow(jobs=place.window))
    engine = Engine(store, SystemClock(), timing, Metrics(), CellMember(node="bench"))
    await engine.start()
    try:
        yield engine, store
    finally:
        await engine.stop()
        await store.close()


async def tables_caught_up(store: Store) -> None:
    await store.queries.jobs([JobId("none")])


async def fill(engine: Engine, total: int) -> None:
    """Submits from two callers at once, so that they share commits."""
    mint, left = IdMint(), iter(range(0, total, BATCH))

    async def submit() -> None:
        for _ in left:
            now = engine.clock.now()
            spec = Spec(TERMS, b'{"kind":"noop"}', now)
            ids = [JobId(mint.mint(now)) for _ in range(BATCH)]
            await engine.post(Submit(jobs=tuple(NewJob(id=one, spec=spec) for one in ids)))

    await asyncio.gather(submit(), submit())


class Worker:
    """Takes a thousand jobs at a time, and reports them with its next poll."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._done: tuple[Completion, ...] | None = None

    async def rate(self, total: int) -> float:
        if self._done is None:
            await self._register()
        await tables_caught_up(self._store)
        began = time.perf_counter()
        ran = 0
        while ran < total:
            poll = Poll(
                poll_id=self._engine.next_poll_id(),
                worker_id=WORKER,
                max_orders=min(IN_HAND, total - ran),
                until=self._engine.clock.now() + HOUR_MS,
                completed=self._done or (),
            )
            answer = await self._engine.poll(poll, asyncio.Event())
            self._done = tuple(completion(order.execution) for order in answer.orders)
            ran += len(self._done)
        await tables_caught_up(self._store)
        return ran / (time.perf_counter() - began)

    async def _register(self) -> None:
        capacity = Resources(cpu_milli=2_000 * IN_HAND)
        register = Register(worker_id=WORKER, session="s", name="w", capacity=capacity)
        await self._engine.post(register)


def _memory() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)
