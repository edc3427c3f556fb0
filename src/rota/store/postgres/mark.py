"""Marks the leader as present: a lock of the database that ends with the leader's connection.

A process that is killed loses its connections at once, and with them the lock, so the others need
not wait until its silence has lasted for the whole TTL. It is a hint and no more: a leader that
lives may lose its connection too, and then marks itself again as soon as it has another. One that
has never been seen with a mark (an older program, or behind PgBouncer) is judged by its silence.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from rota.store.limits import MARK_RETRY_S
from rota.store.postgres.connect import Connection, Line
from rota.store.protocol import Epoch, StoreError

_FAMILY = 0x526F7461
"""Our own among the advisory locks of a database; the second half of the key is the epoch."""
_HOLD = "SELECT pg_advisory_lock($1, ($2::bigint % 2147483647)::int)"
OBSERVE = f"""
SELECT holder, epoch, nonce, address,
    holder <> '' AND NOT pg_try_advisory_xact_lock_shared({_FAMILY}, (epoch % 2147483647)::int)
FROM rota.leader
"""
"""The lock is let go with the statement. Shared: those who look do not take each other for it."""
OBSERVE_UNMARKED = "SELECT holder, epoch, nonce, address FROM rota.leader"


class SeatMark:
    """The mark of one server; it has one only while it leads."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._epoch: Epoch | None = None
        self._set: tuple[Connection, Epoch] | None = None
        self._again: asyncio.Task[None] | None = None
        self._possible = not line.address.pgbouncer
        line.when_lost = self._lost

    @property
    def query(self) -> str:
        """How the row is read, with the mark where there can be one."""
        return OBSERVE if self._possible else OBSERVE_UNMARKED

    async def hold(self, epoch: Epoch) -> None:
        """This server leads; costs nothing while the connection is the same."""
        self._epoch = epoch
        if self._possible:
            with suppress(StoreError):  # the next renewal tries again
                await self._line.read(self._mark)

    def drop(self) -> None:
        """It leads no longer. What a connection still holds of an old epoch tells nobody anything.

        The epochs are never used again, and the seat's row says that this one is over.
        """
        self._epoch = None
        if self._again is not None:
            self._again.cancel()
            self._again = None

    async def _mark(self, connection: Connection) -> None:
        epoch = self._epoch
        if epoch is None or self._set == (connection, epoch):
            return
        await connection.execute(_HOLD, _FAMILY, epoch)
        self._set = (connection, epoch)

    def _lost(self) -> None:
        if self._epoch is not None and (self._again is None or self._again.done()):
            self._again = asyncio.create_task(self._set_again(), name="rota-seat-mark")

    async def _set_again(self) -> None:
        """At once: the others wait only a moment before one of them takes the seat."""
        while self._epoch is not None:
            try:
                await self._line.read(self._mark)
            except StoreError:
                await asyncio.sleep(MARK_RETRY_S)
            else:
                return
