"""Connections to PostgreSQL: what each is for, how long it may wait, how its errors are told.

`?rota_pgbouncer=1` in the address is for PgBouncer in transaction mode. A connection then keeps
nothing between transactions: no named statements, no COPY (whose driver names one), no settings at
its start. The time-outs must be set where the database finds them by itself, once:
`ALTER ROLE rota SET lock_timeout = '2s'`, and the same for `statement_timeout = '60s'` and
`idle_in_transaction_session_timeout = '60s'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec

from rota.store.limits import CONNECT_S, IDLE_IN_TRANSACTION_MS, LOCK_WAIT_MS
from rota.store.protocol import StoreError, StoreFullError, UnknownFateError

T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    # A farewell of the server that came while nobody asked anything leaves the driver so.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
)
"""What a connection that was lost, or never came to be, raises."""
TROUBLE = (*AWAY, asyncpg.PostgresError)
"""All that can go wrong between us and the database."""

_NO_SPACE = ("53100", "53200")
_READ_ONLY = ("25006",)
_LOCKED = ("55P03", "40P01")
_OWN_PREFIX = "rota_"


class Address(msgspec.Struct, frozen=True):
    """Where the database is, and what stands before it."""

    dsn: str
    pgbouncer: bool = False

    @property
    def shown(self) -> str:
        """For people: without the password."""
        parts = urlsplit(self.dsn)
        host = parts.netloc.rpartition("@")[2]
        return f"PostgreSQL at {host}{parts.path}"


def parse_address(dsn: str) -> Address:
    """Takes our own options out of an address; what is left is the driver's."""
    parts = urlsplit(dsn)
    if parts.scheme not in ("postgresql", "postgres"):
        raise StoreError("a PostgreSQL store is named postgresql://user@host:port/database")
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in options if name.startswith(_OWN_PREFIX)}
    unknown = [name for name in own if name != "rota_pgbouncer"]
    if unknown:
        raise StoreError(f"the store's address has an unknown option {unknown[0]!r}")
    others = urlencode([(name, value) for name, value in options if name not in own])
    return Address(
        urlunsplit(parts._replace(query=others)), own.get("rota_pgbouncer", "0") not in ("0", "")
    )


async def connect(address: Address, duty: str, settings: Mapping[str, str]) -> Connection:
    """One connection, with its time-outs; raises StoreError."""
    usual = {
        "application_name": f"rota {duty}",
        "lock_timeout": str(LOCK_WAIT_MS),
        "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
        "jit": "off",
    }
    try:
        return await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_S,
            statement_cache_size=0 if address.pgbouncer else 100,
            server_settings=None if address.pgbouncer else usual | dict(settings),
        )
    except (*TROUBLE, ValueError) as error:
        raise StoreError(f"cannot connect to {address.shown}: {_words(error)}") from error


class Line:
    """One connection with one duty, used by one caller at a time and made again when lost."""

    def __init__(
        self, address: Address, duty: str, deadline_s: float, settings: Mapping[str, str]
    ) -> None:
        self.address = address
        self._duty = duty
        self._deadline_s = deadline_s
        # The database's own limit comes after ours: ours knows not to cancel a commit.
        limit_ms = int(deadline_s * 2_000)
        self._settings = {"statement_timeout": str(limit_ms)} | dict(settings)
        self._connection: Connection | None = None
        self._warnings: list[str] = []
        self._turn = asyncio.Lock()
        self._closed = False

    async def write(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs what commits. Raises UnknownFateError wherever it may have happened after all."""
        async with self._turn:
            connection = await self._connected()
            self._warnings.clear()
            try:
                answer = await self._within_deadline(connection, work)
            except TROUBLE as error:
                raise self._told(error, connection) from error
            if self._warnings:
                # A commit that is told off waiting for its standby succeeds with only a warning.
                raise UnknownFateError(f"{self.address.shown} warned: {self._warnings[0]}")
            return answer

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs what changes nothing that matters."""
        async with self._turn:
            connection = await self._connected()
            try:
                return await self._within_deadline(connection, work)
            except TROUBLE as error:
                raise as_read(self._told(error, connection)) from error

    async def close(self) -> None:
        """Lets go of the connection."""
        async with self._turn:
            self._closed = True
            if self._connection is not None:
                await _close(self._connection)

    async def _connected(self) -> Connection:
        if self._closed:
            raise StoreError("the store is closed")
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self.address, self._duty, self._settings)
            self._connection.add_log_listener(self._note)
        return self._connection

    async def _within_deadline(
        self, connection: Connection, work: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Never cancels: the driver would ask the server to, and a commit must not be asked that.

        Closing the socket instead leaves the server to finish or not; nobody is told a lie.
        """
        task = asyncio.ensure_future(work(connection))
        try:
            await asyncio.wait({task}, timeout=self._deadline_s)
        finally:
            answered = task.done()
            if not answered:
                connection.terminate()
                task.add_done_callback(_looked_at)
        if not answered:
            raise TimeoutError(f"no answer within {self._deadline_s:g} s")
        return task.result()

    def _told(self, error: Exception, connection: Connection) -> StoreError:
        known = told(error, self.address)
        if isinstance(known, UnknownFateError):
            connection.terminate()
        return known

    def _note(self, _connection: object, message: asyncpg.PostgresLogMessage) -> None:
        if message.severity_en == "WARNING":
            self._warnings.append(str(message.message))


def told(error: Exception, address: Address) -> StoreError:
    """An error of a write, for its caller: refused for certain, or of unknown fate."""
    text = f"{address.shown}: {_words(error)}"
    if not isinstance(error, asyncpg.PostgresError) or error.severity_en in ("FATAL", "PANIC"):
        return UnknownFateError(text)
    if isinstance(error, asyncpg.PostgresConnectionError):
        return UnknownFateError(text)
    code = error.sqlstate or ""
    if code in _NO_SPACE:
        return StoreFullError(f"no space left in {text}: free some, it goes on")
    if code in _READ_ONLY:
        return StoreError(f"{address.shown} takes no writes: it is a replica, name the primary")
    if code in _LOCKED:
        return StoreError(f"{text}: somebody holds a lock (pg_stat_activity, pg_locks say who)")
    return StoreError(text)


def as_read(error: StoreError) -> StoreError:
    """The error of a read: whatever it was, nothing happened."""
    return StoreError(str(error)) if isinstance(error, UnknownFateError) else error


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _looked_at(task: asyncio.Future[T]) -> None:
    """Says that nobody missed the outcome of what was given up."""
    if not task.cancelled():
        task.exception()


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=2)
    except TROUBLE:
        connection.terminate()
