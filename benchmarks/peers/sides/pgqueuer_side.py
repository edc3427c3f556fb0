"""PgQueuer's side: asyncpg and uvloop, wide batches; as a program it is the worker."""

from __future__ import annotations

import asyncio
import os

import asyncpg
import start_signal
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries

DSN = os.environ["PEERS_DSN"]
BATCH = 1_000
FETCHED = 500
"""Jobs that the worker takes at a time."""

_runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
_poured = 0


async def _work() -> None:
    async with asyncpg.create_pool(DSN, min_size=2, max_size=4) as pool:
        queue = PgQueuer(AsyncpgPoolDriver(pool))

        @queue.entrypoint("noop")
        async def noop(job: object) -> None:
            """Nothing."""

        @queue.entrypoint("spin")
        async def spin(job: object) -> None:
            start_signal.spin()

        @queue.entrypoint("pickup")
        async def pickup(job: object) -> None:
            start_signal.send()

        await queue.run(batch_size=FETCHED)


async def _open() -> tuple[asyncpg.Connection, Queries]:
    connection = await asyncpg.connect(DSN)
    return connection, Queries(AsyncpgDriver(connection))


def prepare() -> None:
    async def install() -> None:
        connection, queries = await _open()
        await queries.install()
        await connection.close()

    _runner.run(install())


def submit_jobs(kind: str, count: int) -> None:
    global _poured
    _poured += count
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        _runner.run(_ours()[1].enqueue([kind] * size, [None] * size, [0] * size))


def call() -> None:
    _runner.run(_ours()[1].enqueue("pickup", None))


def recorded() -> int:
    """Counts the log, to which a job moves when it ends."""
    left = _runner.run(_ours()[0].fetchval("SELECT count(*) FROM pgqueuer"))
    return _poured - int(left)


_opened: list[tuple[asyncpg.Connection, Queries]] = []


def _ours() -> tuple[asyncpg.Connection, Queries]:
    if not _opened:
        _opened.append(_runner.run(_open()))
    return _opened[0]


if __name__ == "__main__":
    _runner.run(_work())
