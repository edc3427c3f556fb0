"""Procrastinate's side: psycopg, LISTEN and NOTIFY; as a program it is the worker."""

from __future__ import annotations

import asyncio
import os

import psycopg
import start_signal
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

DSN = os.environ["PEERS_DSN"]
BATCH = 1_000
AT_ONCE = 20
WORKS = __name__ == "__main__"

app = App(connector=PsycopgConnector(conninfo=DSN) if WORKS else SyncPsycopgConnector(conninfo=DSN))


@app.task(name="noop")
async def noop() -> None:
    """Nothing."""


@app.task(name="spin")
async def spin() -> None:
    start_signal.spin()


@app.task(name="pickup")
async def pickup() -> None:
    start_signal.send()


KINDS = {"noop": noop, "spin": spin}


def prepare() -> None:
    with app.open():
        app.schema_manager.apply_schema()


def submit_jobs(kind: str, count: int) -> None:
    app.open()
    for first in range(0, count, BATCH):
        KINDS[kind].batch_defer(*({} for _ in range(min(BATCH, count - first))))


def call() -> None:
    pickup.defer()


_counting: list[psycopg.Connection] = []


def recorded() -> int:
    if not _counting:
        _counting.append(psycopg.connect(DSN, autocommit=True))
    found = (
        _counting[0]
        .execute(
            "SELECT count(*) FROM procrastinate_jobs"
            " WHERE status = 'succeeded' AND task_name <> 'pickup'"
        )
        .fetchone()
    )
    return int(found[0]) if found else 0


async def _work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=AT_ONCE, install_signal_handlers=False)


if WORKS:
    asyncio.run(_work())
