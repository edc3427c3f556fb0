"""Ledger to scheduler: the one way back, taken at start, after a failed append, at a fail-over."""

from __future__ import annotations

import gc

from rota.core.inputs import Timing
from rota.core.restore import Stored
from rota.core.scheduler import Scheduler
from rota.engine.ports import Clock
from rota.engine.zones import load_zone
from rota.store.protocol import Ledger, Seq, Totals


async def load_scheduler(
    ledger: Ledger, timing: Timing, clock: Clock
) -> tuple[Scheduler, Seq, Totals]:
    """A scheduler that knows all that is durable, the journal's end, and the counts so far."""
    snapshot = await ledger.load()
    now = clock.now()
    scheduler = Scheduler(timing, now, load_zone)
    # A million records are made at once and live long: the collector would only look at them.
    gc.disable()
    try:
        scheduler.restore(
            Stored(
                jobs=snapshot.jobs,
                executions=snapshot.executions,
                workers=snapshot.workers,
                queues=snapshot.queues,
                order_next=snapshot.order_next,
                schedules=snapshot.schedules,
                calendars=snapshot.calendars,
                triggers=snapshot.triggers,
                held=snapshot.held,
            ),
            now,
        )
        gc.freeze()
    finally:
        gc.enable()
    return scheduler, snapshot.seq, snapshot.totals
