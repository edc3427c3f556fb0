"""Whole lives of jobs in the words of the program before; run by it, in a process of its own."""

from __future__ import annotations

import asyncio
import sys

from rota.core.inputs import Completion, NewJob, Poll, Register, Submit, Timing
from rota.core.model import (
    ExecutionState,
    JobId,
    JobState,
    Needs,
    Resources,
    RetryPolicy,
    Spec,
    Terms,
    WorkerId,
)
from rota.engine.clock import SystemClock
from rota.engine.loop import Engine
from rota.engine.observe import Counts
from rota.store.postgres import open_postgres  # where it was then
from rota.store.protocol import JobQuery

TERMS = Terms("noop", "default", "default", 0, Needs(Resources(cpu_milli=1000)), RetryPolicy())
WORKER = WorkerId("previous")


async def live(dsn: str, name: str, count: int) -> None:
    """Claims, submits, runs, completes, and reads what came of it, also what others left."""
    store = await open_postgres(dsn)
    clock = SystemClock()
    engine = Engine(store.ledger, clock, Timing(), Counts(), "previous")
    before = len(await store.catalog.find_jobs(JobQuery(limit=10_000)))
    await engine.start()
    try:
        await _lives(engine, name, count)
        found = await store.catalog.find_jobs(JobQuery(limit=10_000))
        assert len(found) == before + count, (before, len(found))
        own = [job for job in found if job.id.startswith(name)]
        assert {job.life.state for job in own} == {JobState.SUCCEEDED}
        await store.logs.append(own[0].life.execution_id, 0, b"text")
        assert (await store.logs.read(own[0].life.execution_id, 0, 9)).data == b"text"
        await store.ledger.put_inbox(b"left for the next leader")
    finally:
        await engine.stop()
        await store.close()


async def _lives(engine: Engine, name: str, count: int) -> None:
    now = engine.clock.now()
    await engine.post(
        Register(
            worker_id=WORKER, session="s", name="w", capacity=Resources(cpu_milli=1000 * count)
        )
    )
    spec = Spec(TERMS, b'{"kind":"noop"}', now)
    jobs = tuple(NewJob(id=JobId(f"{name}-{number:04}"), spec=spec) for number in range(count))
    await engine.post(Submit(jobs=jobs))
    done: tuple[Completion, ...] = ()
    while True:
        answer = await engine.poll(
            Poll(
                poll_id=engine.next_poll_id(),
                worker_id=WORKER,
                max_orders=count,
                until=engine.clock.now() + (0 if done else 5_000),
                completed=done,
            )
        )
        if done and not answer.orders:
            return
        done = tuple(
            Completion(
                execution_id=order.execution.id,
                fence=order.execution.fence,
                state=ExecutionState.SUCCEEDED,
            )
            for order in answer.orders
        )


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], sys.argv[2], int(sys.argv[3])))
