"""Retention: drops finished work, unused bundles, unowned objects and broken uploads when old.

The leader drops work and deletes from the storage what the object index marks for deletion; each
server tidies the uploads on its own disk. The store drops in bounded pieces; here is only when, and
how old is old.
"""

from __future__ import annotations

import asyncio

import structlog

from rota.core.model import Instant, Millis
from rota.engine.background import BackgroundTask
from rota.engine.limits import ENGINE_LIMITS, RETENTION_PAUSE_S, SWEEP_EVERY_S, EngineLimits
from rota.engine.ports import Brain, Clock
from rota.store.files.blobs import Blobs
from rota.store.files.uploads import Spool
from rota.store.limits import OBJECT_DELETIONS_AT_ONCE, UPLOAD_KEPT_S
from rota.store.object_index import BundleQuery, ObjectIndex
from rota.store.protocol import Store, StoreError

log = structlog.get_logger("rota.engine")


class Retention:
    """Drops finished work; runs beside the engine for as long as the server does."""

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
        self._days = _SteadyWallClock(brain.clock)
        self._task = BackgroundTask("rota-retention")

    def start(self) -> None:
        """From now on."""
        if self._age_ms is not None:
            self._task.start(self._run(self._age_ms))

    async def stop(self) -> None:
        """In the middle of a round too: the next one goes on."""
        await self._task.stop()

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


class _SteadyWallClock:
    """The wall clock, but for leaps ahead: whoever sets it a year forward must not make all that
    is kept a year old."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.steady()

    def now(self) -> Instant:
        """Never further than time has passed since the start."""
        return min(self._clock.now(), self._clock.steady() + self._offset)


class StorageSweep:
    """Removes objects and uploads that are nobody's, and unused bundles; runs beside the engine for
    as long as the server does."""

    def __init__(
        self,
        book: ObjectIndex | None,
        blobs: Blobs,
        spool: Spool,
        brain: Brain,
        bundle_age_ms: Millis | None,
    ) -> None:
        """`bundle_age_ms` None: bundles are kept until somebody removes them."""
        self._book = book
        self._blobs = blobs
        self._spool = spool
        self._brain = brain
        self._bundle_age_ms = bundle_age_ms
        self._task = BackgroundTask("rota-sweeping")

    def start(self) -> None:
        """From now on."""
        self._task.start(self._run())

    async def stop(self) -> None:
        """In the middle of a round too: the next one goes on."""
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                await self.sweep(self._brain.clock.now())
            except StoreError as error:
                log.warning("storage_not_swept", reason=str(error))

    async def sweep(self, now: Instant) -> int:
        """One round; answers how many objects went."""
        await self._spool.sweep(UPLOAD_KEPT_S, now / 1000)
        gone = 0
        if self._book is None:
            return gone
        if self._bundle_age_ms is not None:
            await self._drop_unused(self._book, now - self._bundle_age_ms)
        while self._brain.standing().leads:
            keys = await self._book.deletions_due(now, OBJECT_DELETIONS_AT_ONCE)
            if not keys:
                break
            await self._blobs.drop(keys)
            await self._book.confirm_deleted(keys)
            gone += len(keys)
        if gone:
            log.info("objects_removed", objects=gone)
        return gone

    async def _drop_unused(self, book: ObjectIndex, since: Instant) -> None:
        while self._brain.standing().leads:
            found = await book.find_bundles(
                BundleQuery(unused_since=since, limit=OBJECT_DELETIONS_AT_ONCE)
            )
            if not found:
                break
            for bundle in found:
                await book.drop_bundle(bundle.id)
            log.info("unused_bundles_dropped", bundles=len(found), since=since)
