"""A few connections to PostgreSQL that only read, shared by all readers of this server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import asyncpg

from rota.store.limits import CONNECT_S, POSTGRES_READERS, READ_DEADLINE_S
from rota.store.postgres.connect import Address, Connection, connect
from rota.store.postgres.trouble import (
    CONNECTION_ERRORS,
    DATABASE_ERRORS,
    as_read_error,
    as_store_error,
)
from rota.store.protocol import StoreError

R = TypeVar("R")


class ReaderPool:
    """Reads that fail for a lost connection are made again once, on another."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._timeline = 0

    async def open(self) -> None:
        """Connects."""
        try:
            self._pool = await asyncpg.create_pool(
                min_size=0,
                max_size=POSTGRES_READERS,
                connect=self._connect,
                reset=_reset,
            )
        except DATABASE_ERRORS as error:
            raise as_read_error(as_store_error(error, self._address.shown)) from error

    async def run(
        self, read: Callable[[Connection], Awaitable[R]], within_s: float = READ_DEADLINE_S
    ) -> R:
        """What `read` answers."""
        try:
            return await self._run(read, within_s)
        except TimeoutError as error:
            raise as_read_error(as_store_error(error, self._address.shown)) from error
        except CONNECTION_ERRORS:
            pass
        except DATABASE_ERRORS as error:
            raise as_read_error(as_store_error(error, self._address.shown)) from error
        try:
            return await self._run(read, within_s)
        except DATABASE_ERRORS as error:
            raise as_read_error(as_store_error(error, self._address.shown)) from error

    async def close(self) -> None:
        """Gives the reads under way a moment, then lets go."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                async with asyncio.timeout(self._address.limits.close_s):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    async def _run(self, read: Callable[[Connection], Awaitable[R]], within_s: float) -> R:
        if self._pool is None:
            raise StoreError("the store is closed")
        pool, now = self._pool, self._address.identity.timeline
        if self._timeline != now:
            # The idle ones may lead to what was the primary before.
            self._timeline = now
            await pool.expire_connections()
        connection = await pool.acquire(timeout=within_s)
        try:
            # The server's own limit does not help where the server itself has stopped.
            async with asyncio.timeout(within_s):
                return await read(connection)  # type: ignore[arg-type]  # a proxy of one
        except TimeoutError:
            connection.terminate()
            raise TimeoutError(f"no answer within {within_s:g} s") from None
        finally:
            # After a cancelled read the pool waits for the server to hear of it. If it does not,
            # the connection is thrown away, and what the caller is told stays what it was.
            with suppress(*DATABASE_ERRORS):
                await pool.release(connection, timeout=self._address.limits.close_s)

    async def _connect(self, *_args: object, **_options: object) -> Connection:
        settings = {
            "default_transaction_read_only": "on",
            "statement_timeout": str(int(READ_DEADLINE_S * 1000)),
            # A page is a short walk along an index: helpers would take longer to come than it does.
            "max_parallel_workers_per_gather": "0",
            "jit": "off",
            # How rare a label or a name is decides where to begin, and a plan for all has no idea.
            "plan_cache_mode": "force_custom_plan",
        }
        return await connect(self._address, "read", settings)


async def _reset(connection: Connection) -> None:
    """Readers use single statements, so there is nothing to reset; checked, for it is cheap."""
    if connection.is_in_transaction():
        await connection.reset(timeout=CONNECT_S)
