"""Whole lives of jobs in batches of 1,000: the writes of the scheduler, appended to a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fleet import START, completion
from rota.core.commands import Completion, NewJob, Poll, Register, Submit, Timing
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
from rota.store.postgres.store import open_postgres
from rota.store.protocol import GENESIS
from rota.store.sqlite.store import open_sqlite

BATCH = 1_000
WORKER = WorkerId("worker")
TERMS = Terms("noop", "default", "default", 0, Needs(Resources(cpu_milli=1000)), RetryPolicy())


def whole_lives(total: int, made: type[Scheduler] = Scheduler) -> list[list[AnyWrite]]:
    """Returns the writes of each turn: submitted, claimed, and completed with the next claims."""
    scheduler = made(Timing(), START)
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


async def store_lives(
    data: Path | None, dsn: str | None, turns: Sequence[Sequence[AnyWrite]]
) -> float:
    """Encodes, appends and projects lives as the server does; returns the rate."""
    assert (data is None) != (dsn is None), "a folder or an address"
    store = open_sqlite(data) if data is not None else await open_postgres(dsn or "")
    try:
        epoch = await store.journal.claim("bench")
        began = time.perf_counter()
        head = GENESIS
        for number, writes in enumerate(turns, 1):
            head = await store.journal.append(epoch, head, START + number, writes)
        await store.queries.jobs([JobId("none")])  # a read waits until the tables have it all
        return time.perf_counter() - began
    finally:
        await store.close()
