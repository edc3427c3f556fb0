"""Keeps the seat while this server leads: renews it, and calls when it is no longer trusted.

It watches by a timer of its own and not by the renewal's answer: that may never come.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from rota.engine.limits import RENEWALS_PER_TTL
from rota.engine.seat import LeaderElection
from rota.store.protocol import FencedError, StoreError

log = structlog.get_logger("rota.engine")


class LeadershipRenewal:
    """Runs beside the loop for the length of one reign."""

    def __init__(self, seat: LeaderElection, changed: Callable[[], None]) -> None:
        self._election = seat
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to renew; nothing to do where there are no others."""
        if self._election.member.ttl_ms is not None:
            self._set_alarm()
            self._task = asyncio.create_task(self._run(), name="rota-seat")

    async def stop(self) -> None:
        """Renews no more."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        ttl_ms = self._election.member.ttl_ms
        assert ttl_ms is not None
        usual_s = pause_s = ttl_ms / RENEWALS_PER_TTL / 1000
        while self._election.is_held:
            await asyncio.sleep(pause_s)
            try:
                await self._election.renew()
            except FencedError:
                pass
            except StoreError as error:
                log.warning("not_renewed", epoch=self._election.epoch, reason=str(error))
                pause_s = usual_s / 4  # the next connection may be a better one
                continue
            pause_s = usual_s
            self._set_alarm()
            self._changed()

    def _set_alarm(self) -> None:
        """Rings when the trust ends, if nothing renews it before."""
        if self._alarm is not None:
            self._alarm.cancel()
        left_ms = self._election.trusted_for_ms()
        if left_ms is not None:
            loop = asyncio.get_running_loop()
            # A moment later, so that it is over by the clock it is measured with.
            self._alarm = loop.call_later((left_ms + 1) / 1000, self._changed)
