"""Tells those who wait for the leader's answer that another server leads now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rota.engine.background import BackgroundTask
from rota.engine.ports import Brain


class Succession:
    """One look for all who wait, however many; none while nobody does."""

    def __init__(self, brain: Brain, when_changed: Callable[[], None], look_s: float) -> None:
        self.changed = asyncio.Event()
        """Set when somebody else leads than at the last look; another one from then on."""
        self._brain = brain
        self._when_changed = when_changed
        self._look_s = look_s
        self._seen = self._who()
        self._waiting = 0
        self._is_awaited = asyncio.Event()
        self._looking = BackgroundTask("rota-forward")
        self._looking.start(self._look_on())

    async def stop(self) -> None:
        """Looks no more."""
        await self._looking.stop()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Whoever leads at its beginning is the one whose successor is told of."""
        self.look()
        self._waiting += 1
        self._is_awaited.set()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._is_awaited.clear()

    async def _look_on(self) -> None:
        while True:
            await self._is_awaited.wait()
            await asyncio.sleep(self._look_s)
            self.look()

    def look(self) -> None:
        """Tells of whom was not known at the last look: who asks somebody looks first."""
        now = self._who()
        if now != self._seen:
            self._seen = now
            self._when_changed()
            self.changed.set()
            self.changed = asyncio.Event()

    def _who(self) -> tuple[bool, str, int]:
        now = self._brain.standing()
        return now.leads, now.address, now.epoch
