"""A worker's shift: registers, talks until drained, and watches the leases meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from rota.wire.workers import RegisterSpec
from rota.worker.clock import Clock
from rota.worker.crew import Crew
from rota.worker.polling import Conversation
from rota.worker.session import Session

WATCH_S = 1.0
"""Leases are looked at this often at least: a suspended machine's timers sleep."""
WATCH_BUSY_S = 0.25
"""The same while anything is held: what has waited here for too long is to go back soon."""


class Shift:
    """One worker's session, its conversation and its crew, at work."""

    def __init__(
        self,
        session: Session,
        talk: Conversation,
        crew: Crew,
        clock: Clock,
        diary: FilteringBoundLogger,
    ) -> None:
        self._session = session
        self._talk = talk
        self._crew = crew
        self._clock = clock
        self._diary = diary

    async def work(self, spec: RegisterSpec, before_leaving: Callable[[], Awaitable[None]]) -> bool:
        """Until drained; False if that came before any server knew this worker.

        A server that forgot it gets to know it anew.
        """
        while await self._talk.register(spec):
            if await self._talk.talk(self._crew):
                await before_leaving()
                await self._talk.leave()
                return True
            self._diary.warning("the server does not know this worker any more; registers anew")
            self._crew.obey(self._session.forgotten("the server does not know this worker"))
        return False

    async def watch(self) -> None:
        """Ends what has lost its lease; on the clock that runs through suspend."""
        while True:
            deadline, most_s = self._session.next_deadline(), WATCH_S
            if self._session.held:
                most_s = WATCH_BUSY_S
            left_s = most_s if deadline is None else deadline - self._clock.now()
            await asyncio.sleep(max(0.01, min(most_s, left_s)))
            owed = self._session.owed
            self._crew.obey(self._session.expire(self._clock.now()))
            if self._session.owed > owed:
                self._talk.wake()
