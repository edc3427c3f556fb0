"""Durability monitoring: asks the store every few seconds which failures an accepted job survives.

The answer changes without a server's doing: the database loses a standby, or a replica becomes the
primary.
"""

from __future__ import annotations

from itertools import count

import structlog

from rota.engine.background import BackgroundTask
from rota.engine.beat import beat
from rota.engine.limits import DURABILITY_LOOK_S, LOSSES_LOOK_EVERY
from rota.store.protocol import ONE_DISK, DurabilityLevel, Losses, Store, StoreError

log = structlog.get_logger("rota.engine")


class DurabilityMonitor:
    """Holds the durability level of the last check, and refuses jobs while it is too low."""

    def __init__(self, store: Store, required: DurabilityLevel = DurabilityLevel.SINGLE) -> None:
        self.required = required
        self._store = store
        self._found = ONE_DISK
        self._task = BackgroundTask("rota-durability")
        self.losses = Losses()
        """What failovers of the database have lost, as of some seconds ago."""

    @property
    def level(self) -> DurabilityLevel:
        """The failures that an accepted job survives."""
        return self._found.level

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that an operator should look at."""
        return self._found.warnings

    @property
    def refusal(self) -> str:
        """The reason why no job is accepted now; empty when jobs are accepted."""
        if self.level.rank >= self.required.rank:
            return ""
        return (
            f"the database's durability is {self.level}, --require-durability asks for"
            f" {self.required}: no job is accepted until its standbys are back"
        )

    async def start(self) -> None:
        """Checks once, then every few seconds."""
        await self.look()
        await self.look_for_losses()
        self._task.start(self._watch())

    async def stop(self) -> None:
        await self._task.stop()

    async def look(self) -> None:
        """Asks the store now, and logs what changed."""
        before, self._found = self._found, await self._store.durability()
        if self.level.rank < before.level.rank:
            log.warning("durability_dropped", level=self.level.value, before=before.level.value)
        elif self.level is not before.level:
            log.info("durability", level=self.level.value, before=before.level.value)
        for warning in self.warnings:
            if warning not in before.warnings:
                log.warning("durability_at_risk", reason=warning)

    async def look_for_losses(self) -> Losses:
        """Asks which records failovers have lost."""
        self.losses = await self._store.journal.losses()
        return self.losses

    async def _watch(self) -> None:
        for number in count(1):
            await beat(DURABILITY_LOOK_S)
            try:
                await self.look()
                if number % LOSSES_LOOK_EVERY == 0:
                    await self.look_for_losses()
            except StoreError:
                continue  # the engine reports that the store is away; the last level stays
