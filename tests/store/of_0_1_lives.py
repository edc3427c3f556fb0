"""Lives of jobs as 0.1 had them; run by that program, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from rota.core.commands import Completion, MemoryWindow, NewJob, Poll, Register, Submit, Timing
from rota.core.model import (
    ExecutionState,
    JobId,
    Needs,
    Resources,
    RetryPolicy,
    Spec,
    Terms,
    WorkerId,
)
from rota.engine.clock import SystemClock
from rota.engine.leadership import CellMember
from rota.engine.loop import Engine
from rota.engine.metrics import Metrics

TERMS = Terms("noop", "default", "default", 0, Needs(Resources(cpu_milli=1000)), RetryPolicy())
WORKER = WorkerId("of-0.1")
IN_MEMORY = 4
"""Jobs beyond this are spilled."""


async def _opened(where: str) -> Any:
    if where.startswith("postgresql:"):
        from rota.store.postgres.store import open_postgres

        return await open_postgres(where)
    from rota.store.sqlite.store import open_sqlite

    return open_sqlite(Path(where))


async def live(where: str, name: str, count: int) -> None:
    """Runs `count` jobs, and leaves as many queued, most of them spilled."""
    store = await _opened(where)
    clock = SystemClock()
    timing = Timing(window=MemoryWindow(jobs=IN_MEMORY, fifo_group=2))
    engine: Any = Engine(store, clock, timing, Metrics(), CellMember(node="of-0.1", ttl_ms=3_000))
    await engine.start()
    try:
        async with asyncio.timeout(30):
            while not engine.ready:  # noqa: ASYNC110  (that engine tells nobody)
                await asyncio.sleep(0.01)
        worker = Register(
            worker_id=WORKER, session="s", name="w", capacity=Resources(cpu_milli=1000 * count)
        )
        await engine.post(worker)
        await _submit(engine, f"{name}-ran", count)
        execution_id = await _run(engine, count)
        await _submit(engine, f"{name}-waits", count)
        await store.logs.append(execution_id, 0, b"text")
        await store.name_cell("north")
        await store.ledger.put_inbox(b"left for the next leader", "key", [JobId("in-the-inbox")])
    finally:
        await engine.stop()
        await store.close()


async def _submit(engine: Any, name: str, count: int) -> None:
    spec = Spec(TERMS, b'{"kind":"noop"}', engine.clock.now())
    jobs = tuple(NewJob(id=JobId(f"{name}-{number:04}"), spec=spec) for number in range(count))
    await engine.post(Submit(jobs=jobs))


async def _run(engine: Any, count: int) -> Any:
    done: tuple[Completion, ...] = ()
    ended, last = 0, None
    while True:
        poll = Poll(
            poll_id=engine.next_poll_id(),
            worker_id=WORKER,
            max_orders=count,
            until=engine.clock.now() + (0 if ended == count else 5_000),
            completed=done,
        )
        answer = await engine.poll(poll, asyncio.Event())
        if ended == count:
            return last
        done = tuple(
            Completion(
                execution_id=order.execution.id,
                fence=order.execution.fence,
                state=ExecutionState.SUCCEEDED,
            )
            for order in answer.orders
        )
        ended += len(done)
        last = answer.orders[-1].execution.id if answer.orders else last


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], sys.argv[2], int(sys.argv[3])))
