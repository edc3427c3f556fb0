"""Forgets finished work that is older than an operator wants to keep it; the leader does it.

The store drops it in bounded pieces; here is only when, and how old is old.
"""

from __future__ import annotations

import asyncio

import structlog

from rota.core.model import Instant, Millis
from rota.engine.chore import Chore
from rota.engine.limits import ENGINE_LIMITS, RETENTION_PAUSE_S, EngineLimits
from rota.engine.ports import Brain, Clock
from rota.store.protocol import Store, StoreError

log = structlog.get_logger("rota.engine")


class Retention:
    """Runs beside the engine for as long as the server does."""

    def __init__(
        self,
        store: Store,
        brain: Brain,
        age_ms: Millis | None,
        limits: EngineLimits = ENGINE_LIMITS,
    ) -> None:
        """`age_ms` None: everything is kept for ever."""
        self._limits = limits
        self._store = store
        self._brain = brain
        self._age_ms = age_ms
        self._days = _Calendar(brain.clock)
        self._chore = Chore("rota-retention")

    def start(self) -> None:
        """From now on."""
        if self._age_ms is not None:
            self._chore.start(self._run(self._age_ms))

    async def stop(self) -> None:
        """In the middle of a round too: the next one goes on."""
        await self._chore.stop()

    async def _run(self, age_ms: Millis) -> None:
        while True:
            await asyncio.sleep(self._limits.retention_every_s)
            try:
                await self.forget(self._days.now() - age_ms)
            except StoreError as error:
                log.warning("old_work_not_dropped", reason=str(error))

    async def forget(self, before: Instant) -> int:
        """All that ended before then, as long as this server leads; answers how many jobs went."""
        jobs = 0
        more = True
        while more and self._brain.standing().leads:
            dropped = await self._store.drop_before(before)
            jobs, more = jobs + dropped.jobs, dropped.more
            if more:
                # Whoever waits for the store goes first.
                await asyncio.sleep(RETENTION_PAUSE_S)
        if jobs:
            log.info("old_work_dropped", jobs=jobs, before=before)
        return jobs


class _Calendar:
    """The wall clock, but for leaps ahead: whoever sets it a year forward must not make all that
    is kept a year old."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.steady()

    def now(self) -> Instant:
        """Never further than time has passed since the start."""
        return min(self._clock.now(), self._clock.steady() + self._offset)
