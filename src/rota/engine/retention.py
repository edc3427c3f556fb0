"""Retention: deletes old finished work, unused bundles, unowned objects and broken uploads.

The leader deletes work, and objects that the object index marks for deletion; each server deletes
uploads on its own disk. The store deletes in bounded pieces; this module decides when, and from
which age on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import structlog

from rota.core.model import Instant, Millis
from rota.engine.background import BackgroundTask
from rota.engine.limits import ENGINE_LIMITS, RETENTION_PAUSE_S, SWEEP_EVERY_S, EngineLimits
from rota.store.limits import OBJECT_DELETIONS_AT_ONCE, UPLOAD_KEPT_S
from rota.store.object_index import BundleQuery, ObjectIndex
from rota.store.protocol import Dropped, StoreError

if TYPE_CHECKING:
    # The background process imports this module, and has no use for what these bring along.
    from rota.engine.ports import Brain, Clock
    from rota.store.files.blobs import Blobs
    from rota.store.files.uploads import Spool

log = structlog.get_logger("rota.engine")


class HasOldWork(Protocol):
    """Store, or the part of it that deletes finished work."""

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops a bounded part of the work that ended before then."""
        ...


class Retention:
    """Deletes finished work that is too old to keep, while the server runs."""

    def __init__(
        self,
        store: HasOldWork,
        clock: Clock,
        leads: Callable[[], bool],
        age_ms: Millis | None,
        limits: EngineLimits = ENGINE_LIMITS,
    ) -> None:
        """Sets the age; `age_ms` None: finished work is kept for ever.

        `leads` says whether this server leads: others leave the work to it.
        """
        self._limits = limits
        self._store = store
        self._leads = leads
        self._age_ms = age_ms
        self._wall_clock = _SteadyWallClock(clock)
        self._task = BackgroundTask("rota-retention")

    def start(self) -> None:
        if self._age_ms is not None:
            self._task.start(self._run(self._age_ms))

    async def stop(self) -> None:
        """Stops, also in the middle of a round: the next one continues."""
        await self._task.stop()

    async def _run(self, age_ms: Millis) -> None:
        while True:
            await asyncio.sleep(self._limits.retention_every_s)
            try:
                await self.forget(self._wall_clock.now() - age_ms)
            except StoreError as error:
                log.warning("old_work_not_dropped", reason=str(error))

    async def forget(self, before: Instant) -> int:
        """Deletes all work that finished before then, while this server leads; returns how many
        jobs."""
        jobs = 0
        more = True
        while more and self._leads():
            dropped = await self._store.drop_before(before)
            jobs, more = jobs + dropped.jobs, dropped.more
            if more:
                # Other users of the store come in between.
                await asyncio.sleep(RETENTION_PAUSE_S)
        if jobs:
            log.info("old_work_dropped", jobs=jobs, before=before)
        return jobs


class _SteadyWallClock:
    """Wall clock that ignores being set forward, which must not make kept work old at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.steady()

    def now(self) -> Instant:
        """Returns wall time, at most as far as time has passed since the start."""
        return min(self._clock.now(), self._clock.steady() + self._offset)


class StorageSweep:
    """Deletes unowned objects and uploads, and unused bundles, while the server runs."""

    def __init__(
        self,
        index: ObjectIndex | None,
        blobs: Blobs,
        spool: Spool,
        brain: Brain,
        bundle_age_ms: Millis | None,
    ) -> None:
        """Sets the age; `bundle_age_ms` None: unused bundles are kept."""
        self._index = index
        self._blobs = blobs
        self._spool = spool
        self._brain = brain
        self._bundle_age_ms = bundle_age_ms
        self._task = BackgroundTask("rota-storage-sweep")

    def start(self) -> None:
        self._task.start(self._run())

    async def stop(self) -> None:
        """Stops, also in the middle of a round: the next one continues."""
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                await self.sweep(self._brain.clock.now())
            except StoreError as error:
                log.warning("storage_not_swept", reason=str(error))

    async def sweep(self, now: Instant) -> int:
        """Runs one round; returns how many objects it deleted."""
        await self._spool.sweep(UPLOAD_KEPT_S, now / 1000)
        deleted = 0
        if self._index is None:
            return deleted
        if self._bundle_age_ms is not None:
            await self._drop_unused(self._index, now - self._bundle_age_ms)
        while self._brain.standing().leads:
            keys = await self._index.deletions_due(now, OBJECT_DELETIONS_AT_ONCE)
            if not keys:
                break
            await self._blobs.drop(keys)
            await self._index.confirm_deleted(keys)
            deleted += len(keys)
        if deleted:
            log.info("objects_removed", objects=deleted)
        return deleted

    async def _drop_unused(self, index: ObjectIndex, since: Instant) -> None:
        while self._brain.standing().leads:
            found = await index.find_bundles(
                BundleQuery(unused_since=since, limit=OBJECT_DELETIONS_AT_ONCE)
            )
            if not found:
                break
            for bundle in found:
                await index.drop_bundle(bundle.id)
            log.info("unused_bundles_dropped", bundles=len(found), since=since)
