"""Snapshot to scheduler: the one way back, at start, after a failed append, at a fail-over."""

from __future__ import annotations

import asyncio
import gc

from rota.core.commands import Timing
from rota.core.model import Instant
from rota.core.restore import Stored
from rota.core.scheduler import Scheduler
from rota.engine.zones import load_zone
from rota.store.protocol import Snapshot


async def build_scheduler(snapshot: Snapshot, timing: Timing, now: Instant) -> Scheduler:
    """A scheduler that knows all that is in the snapshot.

    In a thread: hundreds of thousands of jobs take seconds, in which the seat must be renewed.
    """
    return await asyncio.to_thread(_build, snapshot, timing, now)


def _build(snapshot: Snapshot, timing: Timing, now: Instant) -> Scheduler:
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
                order_next=snapshot.next_arrival_number,
                policy=snapshot.settings.policy,
                tenants=snapshot.settings.tenants,
                runtimes=snapshot.settings.runtimes,
                spill_queues=snapshot.spill_counts,
                schedules=snapshot.schedules,
                calendars=snapshot.calendars,
                triggers=snapshot.triggers,
                buffered_events=snapshot.buffered_events,
            ),
            now,
        )
        gc.freeze()
    finally:
        gc.enable()
    return scheduler
