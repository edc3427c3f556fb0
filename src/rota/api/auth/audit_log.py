"""Audit log: collects who changed what, and writes it in batches off the request's path."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import structlog

from rota.api.limits import (
    API_LIMITS,
    AUDIT_AGE_MS,
    AUDIT_BATCH,
    AUDIT_PRUNE_S,
    AUDIT_STOP_S,
    ApiLimits,
)
from rota.engine.ports import Clock
from rota.store.protocol import StoreError
from rota.store.tokens import AuditEntry, AuditQuery, TokenStore

log = structlog.get_logger(__name__)


class AuditLog:
    """Audit log, written to the store in batches: entries wait in memory for less than a second.

    A crash loses those; a clean stop loses none. A write of unknown outcome is made again, so an
    entry may be there twice, but is not missing.
    """

    def __init__(
        self,
        store: TokenStore,
        clock: Clock,
        age_ms: int = AUDIT_AGE_MS,
        limits: ApiLimits = API_LIMITS,
    ) -> None:
        self._limits = limits
        self._store = store
        self._clock = clock
        self._age_ms = age_ms
        self._pending: deque[AuditEntry] = deque()
        self._lost = 0
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._lock = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._writing = asyncio.create_task(self._run(), name="rota-audit")

    async def stop(self) -> None:
        """Writes the remaining entries, if the store takes them soon."""
        self._stopping.set()
        self._wake.set()
        try:
            async with asyncio.timeout(AUDIT_STOP_S):
                if self._writing is not None:
                    await self._writing
                await self.flush()
        except (StoreError, TimeoutError) as error:
            log.error("audit entries lost", count=len(self._pending), cause=repr(error))

    def add(self, entry: AuditEntry) -> None:
        """Adds an entry without waiting."""
        if not self._age_ms:
            return
        self._pending.append(entry)
        if len(self._pending) > self._limits.audit_pending_max:
            self._pending.popleft()
            self._lost += 1
        self._wake.set()

    async def flush(self) -> None:
        async with self._lock:
            while self._pending:
                await self._write(min(len(self._pending), AUDIT_BATCH))
            if self._lost:
                log.error(
                    "audit entries lost",
                    count=self._lost,
                    cause="the store was unavailable for too long",
                )
                self._lost = 0

    async def read(self, query: AuditQuery) -> list[AuditEntry]:
        """Reads a page, newest first, with all that this server added before."""
        await self.flush()
        return await self._store.audit(query)

    async def _write(self, count: int) -> None:
        batch = [self._pending[number] for number in range(count)]
        oldest = self._clock.now() - self._age_ms
        await self._store.add_audit(batch, oldest)
        for entry in batch:
            # `add` may have dropped some from a full queue meanwhile.
            if self._pending and self._pending[0] is entry:
                self._pending.popleft()

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(AUDIT_PRUNE_S):
                    await self._wake.wait()
            tidy = not self._wake.is_set()
            self._wake.clear()
            await self._pause(self._limits.audit_gather_s)
            try:
                await self.flush()
                if tidy:
                    await self._store.add_audit((), self._clock.now() - self._age_ms)
            except StoreError as error:
                log.warning(
                    "audit entries not written, will retry",
                    count=len(self._pending),
                    cause=str(error),
                )
                self._wake.set()
                await self._pause(self._limits.audit_retry_s)
            except Exception as error:  # the top of the loop: it must go on
                log.error("writing the audit log failed", exc_info=error)
                await self._pause(self._limits.audit_retry_s)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
