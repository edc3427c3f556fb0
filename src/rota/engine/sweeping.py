"""Removes objects that are nobody's any more, uploads that nobody goes on with, unused bundles.

The leader empties the storage of what the book says is doomed; each server tidies its own disk.
"""

from __future__ import annotations

import asyncio

import structlog

from rota.core.model import Instant, Millis
from rota.engine.chore import Chore
from rota.engine.limits import SWEEP_EVERY_S
from rota.engine.ports import Brain
from rota.store.files.blobs import Blobs
from rota.store.files.spool import Spool
from rota.store.limits import DOOMED_AT_ONCE, UPLOAD_KEPT_S
from rota.store.protocol import StoreError
from rota.store.protocols.objects import BundleQuery, ObjectBook

log = structlog.get_logger("rota.engine")


class Sweeping:
    """Runs beside the engine for as long as the server does."""

    def __init__(
        self,
        book: ObjectBook | None,
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
        self._chore = Chore("rota-sweeping")

    def start(self) -> None:
        """From now on."""
        self._chore.start(self._run())

    async def stop(self) -> None:
        """In the middle of a round too: the next one goes on."""
        await self._chore.stop()

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
            keys = await self._book.doomed(now, DOOMED_AT_ONCE)
            if not keys:
                break
            await self._blobs.drop(keys)
            await self._book.gone(keys)
            gone += len(keys)
        if gone:
            log.info("objects_removed", objects=gone)
        return gone

    async def _drop_unused(self, book: ObjectBook, since: Instant) -> None:
        while self._brain.standing().leads:
            found = await book.find_bundles(BundleQuery(unused_since=since, limit=DOOMED_AT_ONCE))
            if not found:
                break
            for bundle in found:
                await book.drop_bundle(bundle.id)
            log.info("unused_bundles_dropped", bundles=len(found), since=since)
