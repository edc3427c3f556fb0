"""The durability level: what an accepted job would survive, asked of the store again and again.

A database changes its worth behind a server's back: a standby is lost, a replica becomes the
primary. So the answer is never older than a few seconds.
"""

from __future__ import annotations

import structlog

from rota.engine.background import BackgroundTask
from rota.engine.beat import beat
from rota.engine.limits import DURABILITY_LOOK_S
from rota.store.protocol import ONE_DISK, DurabilityLevel, Store, StoreError

log = structlog.get_logger("rota.engine")


class DurabilityMonitor:
    """The durability level as of the last look, and what follows from it."""

    def __init__(self, store: Store, required: DurabilityLevel = DurabilityLevel.SINGLE) -> None:
        self.required = required
        self._store = store
        self._found = ONE_DISK
        self._task = BackgroundTask("rota-durability")

    @property
    def level(self) -> DurabilityLevel:
        """What an accepted job survives."""
        return self._found.level

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should worry an operator."""
        return self._found.warnings

    @property
    def refusal(self) -> str:
        """Why nothing is accepted for now; empty: it is."""
        if self.level is self.required or self.level.rank >= self.required.rank:
            return ""
        return (
            f"the database gives {self.level} where --require-durability asks for {self.required}:"
            " nothing is accepted until its standbys are back"
        )

    async def start(self) -> None:
        """Asks once, and goes on asking."""
        await self.look()
        self._task.start(self._watch())

    async def stop(self) -> None:
        """Asks no more."""
        await self._task.stop()

    async def look(self) -> None:
        """Asks the store now."""
        before, self._found = self._found, await self._store.durability()
        if self.level.rank < before.level.rank:
            log.warning("durability_dropped", level=self.level.value, before=before.level.value)
        elif self.level is not before.level:
            log.info("durability", level=self.level.value, before=before.level.value)
        for warning in self.warnings:
            if warning not in before.warnings:
                log.warning("durability_at_risk", reason=warning)

    async def _watch(self) -> None:
        while True:
            await beat(DURABILITY_LOOK_S)
            try:
                await self.look()
            except StoreError:
                continue  # the engine says that the store is away; what was known stands till then
