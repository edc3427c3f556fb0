"""A worker's shift: registers, talks until drained, and watches the leases meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from rota.wire.workers import RegisterSpec
from rota.worker.clock import MonotonicClock
from rota.worker.crew import Executor
from rota.worker.polling import PollLoop
from rota.worker.session import Session

WATCH_S = 1.0
"""Leases are looked at this often at least: a suspended machine's timers sleep."""
WATCH_BUSY_S = 0.25
"""The same while anything is held: what has waited here for too long is to go back soon."""


class RunLoop:
    """One worker's session, its conversation and its crew, at work."""

    def __init__(
        self,
        session: Session,
        talk: PollLoop,
        crew: Executor,
        clock: MonotonicClock,
        diary: FilteringBoundLogger,
    ) -> None:
        self._session = session
        self._poll_loop = talk
        self._executor = crew
        self._clock = clock
        self._log = diary

    async def work(self, spec: RegisterSpec, before_leaving: Callable[[], Awaitable[None]]) -> bool:
        """Until drained; False if that came before any server knew this worker.

        A server that forgot it gets to know it anew.
        """
        while await self._poll_loop.register(spec):
            if await self._poll_loop.poll_until_drained(self._executor):
                await before_leaving()
                await self._poll_loop.leave()
                return True
            self._log.warning("the server does not know this worker any more; registers anew")
            self._executor.carry_out(
                self._session.registration_lost("the server does not know this worker")
            )
        return False

    async def watch(self) -> None:
        """Ends what has lost its lease; on the clock that runs through suspend."""
        while True:
            deadline, most_s = self._session.next_deadline(), WATCH_S
            if self._session.held:
                most_s = WATCH_BUSY_S
            left_s = most_s if deadline is None else deadline - self._clock.now()
            await asyncio.sleep(max(0.01, min(most_s, left_s)))
            owed = self._session.pending_reports
            self._executor.carry_out(self._session.expire(self._clock.now()))
            if self._session.pending_reports > owed:
                self._poll_loop.wake()
