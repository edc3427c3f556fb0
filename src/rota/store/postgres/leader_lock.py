"""Advisory lock of the leader: with it leader election notices at once that a leader is dead.

A process that is killed loses its connections and with them the lock, so other servers need not
wait for the whole TTL. It is only a hint: a leader that lives may lose its connection too, and
takes the lock again as soon as it has another. A leader that was never seen with the lock (behind
PgBouncer) is judged by its silence.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from rota.store.limits import LEADER_LOCK_RETRY_S
from rota.store.postgres.connect import Connection, DedicatedConnection
from rota.store.protocol import Epoch, StoreError

_FAMILY = 0x526F7461
"""First half of the lock's key, Rota's own; the second half is the epoch."""
_HOLD = "SELECT pg_advisory_lock($1, ($2::bigint % 2147483647)::int)"
OBSERVE = f"""
SELECT holder, epoch, nonce, address,
    holder <> '' AND NOT pg_try_advisory_xact_lock_shared({_FAMILY}, (epoch % 2147483647)::int)
FROM rota.leader
"""
"""The lock is released with the statement. It is shared, so that observers do not mistake each
other for the leader."""
OBSERVE_WITHOUT_LOCK = "SELECT holder, epoch, nonce, address FROM rota.leader"


class LeaderLock:
    """Advisory lock of one server, which holds it only while it leads."""

    def __init__(self, connection: DedicatedConnection) -> None:
        self._connection = connection
        self._epoch: Epoch | None = None
        self._held: tuple[Connection, Epoch] | None = None
        self._retry: asyncio.Task[None] | None = None
        self._possible = not connection.address.pgbouncer
        connection.when_lost = self._lost

    @property
    def query(self) -> str:
        """The statement that reads the row, with the lock where there can be one."""
        return OBSERVE if self._possible else OBSERVE_WITHOUT_LOCK

    async def hold(self, epoch: Epoch) -> None:
        """Takes the lock for this epoch; costs nothing while the connection is the same."""
        self._epoch = epoch
        if self._possible:
            with suppress(StoreError):  # the next renewal tries again
                await self._connection.read(self._lock)

    def drop(self) -> None:
        """Stops holding it. What a connection still holds of an old epoch does no harm.

        Epochs are never used again, and the leader's row says that this one is over.
        """
        self._epoch = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _lock(self, connection: Connection) -> None:
        epoch = self._epoch
        if epoch is None or self._held == (connection, epoch):
            return
        await connection.execute(_HOLD, _FAMILY, epoch)
        self._held = (connection, epoch)

    def _lost(self) -> None:
        if self._epoch is not None and (self._retry is None or self._retry.done()):
            self._retry = asyncio.create_task(self._lock_again(), name="rota-leader-lock")

    async def _lock_again(self) -> None:
        """Retries without delay: other servers wait only a moment before one of them claims."""
        while self._epoch is not None:
            try:
                await self._connection.read(self._lock)
            except StoreError:
                await asyncio.sleep(LEADER_LOCK_RETRY_S)
            else:
                return
