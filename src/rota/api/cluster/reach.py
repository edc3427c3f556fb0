"""Asks the leader now and then whether it is there, and tells those who can do something about it.

A leader that has been silent here *and* in the store for a third of the TTL need not be waited
for any longer; one that renews its leadership but that no other server reaches should let
another lead. Only one that has been reached before is missed: where servers cannot reach each
other at all, nothing changes.
"""

from __future__ import annotations

import asyncio

import aiohttp
from yarl import URL

from rota.api.limits import REACH_ANSWER_S, REACH_EVERY_S, REACH_LEADING_S, REACH_LOST_MS
from rota.core.model import Millis
from rota.engine.beat import beat
from rota.engine.membership import Membership
from rota.engine.ports import Brain


class Reach:
    """One server's way to the leader, as long as it follows."""

    def __init__(self, brain: Brain, presence: Membership, http: aiohttp.ClientSession) -> None:
        self._brain = brain
        self._presence = presence
        self._http = http
        self.met = 0
        """The epoch whose leader has answered here."""
        self._lost_from: Millis | None = None
        self._asking = asyncio.create_task(self._go_on(), name="rota-reach")

    async def stop(self) -> None:
        """Asks no more."""
        self._asking.cancel()
        await asyncio.gather(self._asking, return_exceptions=True)

    async def _go_on(self) -> None:
        while True:
            if self._brain.ready:
                await beat(REACH_LEADING_S)
            else:
                await asyncio.sleep(REACH_EVERY_S)
            standing = self._brain.standing()
            if not standing.address:
                self._lost_from = None
                await self._tell(0)
                continue
            began = self._brain.clock.steady()
            if await self._answers(standing.address):
                self.met, self._lost_from = standing.epoch, None
            elif self._lost_from is None and self.met == standing.epoch:
                self._lost_from = began
            await self._tell(standing.epoch if self._is_lost() else 0)

    def _is_lost(self) -> bool:
        if self._lost_from is None:
            return False
        return self._brain.clock.steady() - self._lost_from >= REACH_LOST_MS

    async def _tell(self, unreached: int) -> None:
        self._brain.suspect_leader(unreached)
        await self._presence.report_unreachable(unreached)

    async def _answers(self, address: str) -> bool:
        """Whatever it says: it is there."""
        url = URL(f"{address.rstrip('/')}/healthz")
        try:
            async with asyncio.timeout(REACH_ANSWER_S):
                response = await self._http.request(
                    "GET", url, data=None, headers=(), allow_redirects=False
                )
                async with response:
                    return True
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
