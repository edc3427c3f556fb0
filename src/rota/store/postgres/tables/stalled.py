"""Ends transactions of servers that stand still and keep others waiting for the fold's turn.

A server that is frozen, or cut off without a word, in the middle of a fold holds the lock on
`folded_seq` until the database gives its connection up, a minute later: nobody could read what is
new, and the next leader could hardly begin. Its transaction is of no use to anybody: whoever gets
the turn folds the same records, and the one that wakes finds its connection gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from rota.store.limits import PROJECTION_STALLED_LOOK_S
from rota.store.postgres.connect import Address, Connection, DedicatedConnection
from rota.store.protocol import StoreError

R = TypeVar("R")

_END_STALLED = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE pid = ANY (pg_blocking_pids($1)) AND application_name LIKE 'rota %'
    AND state <> 'idle' AND wait_event = 'ClientRead'
    AND clock_timestamp() - state_change > $2 * interval '1 second'
"""
"""Only who waits for its own client to say something, and has for long: a slow statement is left
alone. A role may end what is its own, so no right is needed that the servers do not have."""


class ProjectionLock:
    """Waits for the turn of one connection, on another one."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._aside = DedicatedConnection(address, "aside", address.limits.follow_deadline_s, {})
        self._pid = 0

    def taken_by(self, connection: Connection) -> None:
        """This connection is about to wait."""
        self._pid = connection.get_server_pid()

    async def until(self, work: Coroutine[Any, Any, R]) -> R:
        """What comes of it; meanwhile those are ended that stand still in its way."""
        waiting = asyncio.ensure_future(work)
        try:
            while True:
                await asyncio.wait({waiting}, timeout=PROJECTION_STALLED_LOOK_S)
                if waiting.done():
                    return waiting.result()
                with suppress(StoreError):
                    await self._end_stalled()
        finally:
            waiting.cancel()

    async def close(self) -> None:
        """Lets go of the connection."""
        await self._aside.close()

    async def _end_stalled(self) -> None:
        # Behind PgBouncer nobody knows which connection of the database is whose.
        if self._pid and not self._address.pgbouncer:
            stalled_s = self._address.limits.projection_stalled_s
            await self._aside.read(lambda c: c.fetchval(_END_STALLED, self._pid, stalled_s))
