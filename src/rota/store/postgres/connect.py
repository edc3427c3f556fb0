"""Connections to PostgreSQL: dedicated ones that write, and a connection pool for readers.

With several hosts in an address the primary is found without waiting for dead ones: the driver
would ask one after the other under one timeout, which a host that vanished silently would use up.

`?rota_pgbouncer=1` in the address is for PgBouncer in transaction mode. A connection then keeps
nothing between transactions: no named statements, no COPY (for which the driver names one), no
settings at its start. The timeouts must be set in the database, once:
`ALTER ROLE rota SET lock_timeout = '2s'`, and the same for `statement_timeout = '60s'` and
`idle_in_transaction_session_timeout = '60s'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec
from asyncpg.connect_utils import SessionAttribute

from rota.store.limits import (
    CLOSE_S,
    CONNECT_S,
    IDLE_IN_TRANSACTION_MS,
    LOCK_WAIT_MS,
    NEXT_HOST_S,
    POSTGRES_READERS,
    READ_DEADLINE_S,
    STORE_LIMITS,
    StoreLimits,
)
from rota.store.postgres.errors import (
    CONNECTION_ERRORS,
    DATABASE_ERRORS,
    as_read_error,
    as_store_error,
    breaks_connection,
    describe,
)
from rota.store.protocol import OtherDatabaseError, StoreError, UnknownFateError

C = TypeVar("C")


def address_of_each_host(dsn: str) -> list[str]:
    """Returns the same address, once for each host that it names."""
    parts = urlsplit(dsn)
    who, at, hosts = parts.netloc.rpartition("@")
    return [
        urlunsplit(parts._replace(netloc=f"{who}{at}{host}")) for host in hosts.split(",") if host
    ] or [dsn]


async def first_to_connect(
    dsns: Sequence[str], attempt: Callable[[str], Awaitable[C]], drop: Callable[[C], None]
) -> C:
    """Returns the first connection that `attempt` makes; raises the last failure if all fail.

    Each host has a moment before the next one is tried too. Later connections are dropped.
    """
    waiting = list(dsns)
    trying: dict[asyncio.Future[C], None] = {}
    failure: BaseException | None = None
    try:
        while waiting or trying:
            if waiting:
                trying[asyncio.ensure_future(attempt(waiting.pop(0)))] = None
            patience_s = NEXT_HOST_S if waiting else None
            done, _ = await asyncio.wait(
                trying, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                del trying[one]
            connected = [one for one in done if one.exception() is None]
            if connected:
                _drop_others(connected[1:], drop)
                return connected[0].result()
            failure = next((one.exception() for one in done), failure)
    finally:
        for late in trying:
            late.add_done_callback(lambda ended: _drop_others([ended], drop))
            late.cancel()
    assert failure is not None, "an address names at least one host"
    raise failure


def _drop_others(ended: Sequence[asyncio.Future[C]], drop: Callable[[C], None]) -> None:
    for one in ended:
        if not one.cancelled() and one.exception() is None:
            drop(one.result())


T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_OWN_PREFIX = "rota_"
_SYSTEM = "SELECT system_identifier::text FROM pg_control_system()"
_TIMELINE = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"


class Identity:
    """Identity of the database; the first connection of a store sets it."""

    def __init__(self) -> None:
        self._system: str | None = None
        self.timeline = 0
        """Connections that were made on an older timeline lead to a former primary."""

    async def check(self, connection: Connection, shown: str) -> None:
        """Refuses a connection to another database, or to a former primary."""
        system: str = await connection.fetchval(_SYSTEM)
        if self._system is not None and system != self._system:
            raise OtherDatabaseError(
                f"{shown} is another database now (system {system}, before {self._system}): point"
                " the address back, or restart the servers if it was moved on purpose"
            )
        timeline = await _timeline(connection)
        if timeline < self.timeline:
            # Every promotion increments it. What is written here would be lost when it rejoins.
            raise StoreError(
                f"{shown} was the primary once (timeline {timeline}, now it is {self.timeline}):"
                " stop it, or let it rejoin as a replica"
            )
        self._system, self.timeline = system, timeline


async def _timeline(connection: Connection) -> int:
    try:
        return int(await connection.fetchval(_TIMELINE))
    except asyncpg.PostgresConnectionError:
        raise
    except asyncpg.PostgresError:
        # Some services that are only compatible with PostgreSQL have no timelines.
        return 0


class Address(msgspec.Struct, frozen=True):
    """Address of the database, and whether PgBouncer is before it."""

    dsn: str
    pgbouncer: bool = False
    identity: Identity = msgspec.field(default_factory=Identity)
    """The identity of the database; shared by all connections of a store."""
    limits: StoreLimits = STORE_LIMITS
    """The limits of the store: all its parts are given the address."""

    @property
    def shown(self) -> str:
        """The address for messages: without the password."""
        parts = urlsplit(self.dsn)
        host = parts.netloc.rpartition("@")[2]
        return f"PostgreSQL at {host}{parts.path}"


def parse_address(dsn: str, limits: StoreLimits = STORE_LIMITS) -> Address:
    """Takes Rota's own options out of an address; the rest is the driver's."""
    try:
        dsn.encode()  # fails for an argument that was not valid text
        parts = urlsplit(dsn)
    except ValueError as error:
        raise StoreError(f"the store's address is not valid: {error}") from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise StoreError("a PostgreSQL store is named postgresql://user@host:port/database")
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in options if name.startswith(_OWN_PREFIX)}
    unknown = [name for name in own if name != "rota_pgbouncer"]
    if unknown:
        raise StoreError(f"the store's address has an unknown option {unknown[0]!r}")
    others = urlencode([(name, value) for name, value in options if name not in own])
    return Address(
        urlunsplit(parts._replace(query=others)),
        own.get("rota_pgbouncer", "0") not in ("0", ""),
        limits=limits,
    )


async def connect(
    address: Address,
    duty: str,
    settings: Mapping[str, str],
    *,
    within_s: float | None = None,
    statement_s: float | None = None,
) -> Connection:
    """Opens one connection to the primary, with its timeouts; raises StoreError."""
    patience_s = address.limits.connect_s if within_s is None else within_s
    usual = {
        "application_name": f"rota {duty}",
        "lock_timeout": str(LOCK_WAIT_MS),
        "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
        "jit": "off",
    }

    async def attempt(dsn: str) -> Connection:
        connection = await asyncpg.connect(
            dsn,
            timeout=patience_s,
            command_timeout=statement_s,
            statement_cache_size=0 if address.pgbouncer else 100,
            server_settings=None if address.pgbouncer else usual | dict(settings),
            # Overrides the address: a reader's connection is read-only by its settings, and would
            # be taken for one to a replica.
            target_session_attrs=SessionAttribute.primary,
        )
        try:
            async with asyncio.timeout(patience_s):
                await address.identity.check(connection, address.shown)
        except BaseException:
            connection.terminate()
            raise
        return connection

    try:
        return await first_to_connect(
            address_of_each_host(address.dsn), attempt, lambda connection: connection.terminate()
        )
    except (*DATABASE_ERRORS, ValueError) as error:
        raise StoreError(f"cannot connect: {describe(error, address.shown)}") from error


class DedicatedConnection:
    """Dedicated connection with one duty, used by one caller at a time and made again when lost.

    `deadline_s` is for one piece of work, and for waiting for the connection; `statement_s` is for
    each statement of it, where there are many and none of them is a commit that must be durable.
    """

    def __init__(
        self,
        address: Address,
        duty: str,
        deadline_s: float,
        settings: Mapping[str, str],
        *,
        statement_s: float | None = None,
    ) -> None:
        self.address = address
        self._duty = duty
        self._deadline_s = deadline_s
        self._statement_s = statement_s
        # The database's own limit is later than ours: only ours does not cancel a commit.
        limit_ms = int(deadline_s * 2_000)
        self._settings = {"statement_timeout": str(limit_ms)} | dict(settings)
        self._connection: Connection | None = None
        self._timeline = 0
        self._warnings: list[str] = []
        self._turn = asyncio.Lock()
        self._used_at = float("-inf")
        self._waiting = 0
        """How many callers wait for the connection."""
        self._closed = False
        self.when_lost: Callable[[], None] | None = None
        """Called when a connection has ended, whichever side closed it."""

    async def write(
        self, work: Callable[[Connection], Awaitable[T]], *, is_left_alone: bool = False
    ) -> T:
        """Runs work that commits. Raises UnknownFateError if it may have happened nevertheless.

        `is_left_alone`: the caller is never cancelled, so that the work needs no task of its own.
        That saves two rounds of the loop.
        """
        await self._wait_for_turn()
        try:
            connection = await self.connected()
            self._warnings.clear()
            try:
                run = self._to_its_end if is_left_alone else self._within_deadline
                answer = await self._retried_in_new_partition(connection, work, run)
            except DATABASE_ERRORS as error:
                raise self._as_store_error(error, connection) from error
            if self._warnings:
                # A commit whose wait for the standby is cancelled succeeds with only a warning.
                raise UnknownFateError(f"{self.address.shown} warned: {self._warnings[0]}")
            self._used_at = asyncio.get_running_loop().time()
            return answer
        finally:
            self._turn.release()

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs work that changes nothing that must be durable."""
        await self._wait_for_turn()
        try:
            connection = await self.connected()
            try:
                answer = await self._within_deadline(connection, work)
            except DATABASE_ERRORS as error:
                raise as_read_error(self._as_store_error(error, connection)) from error
            self._used_at = asyncio.get_running_loop().time()
            return answer
        finally:
            self._turn.release()

    def was_used_within(self, seconds: float) -> bool:
        """Returns whether the database answered on it since then, so that it is most likely
        there."""
        is_open = self._connection is not None and not self._connection.is_closed()
        return is_open and asyncio.get_running_loop().time() - self._used_at < seconds

    async def close(self) -> None:
        """Closes the connection; work in progress has a moment to end."""
        self._closed = True
        try:
            await self._take_turn(self.address.limits.close_s)
        except TimeoutError:
            if self._connection is not None:
                self._connection.terminate()
            return
        try:
            if self._connection is not None:
                await close(self._connection, self.address.limits.close_s)
        finally:
            self._turn.release()

    async def _wait_for_turn(self) -> None:
        try:
            await self._take_turn(self._deadline_s)
        except TimeoutError:
            raise StoreError(
                f"{self.address.shown}: the connection was in use for {self._deadline_s:g} s;"
                " nothing was done"
            ) from None

    async def _take_turn(self, patience_s: float) -> None:
        if not (self._waiting or self._turn.locked()):
            await self._turn.acquire()  # at once: it needs no timer
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(patience_s):
                await self._turn.acquire()
        finally:
            self._waiting -= 1

    async def connected(self) -> Connection:
        """Returns the connection, made again if it was lost; the caller holds the turn."""
        if self._closed:
            raise StoreError("the store is closed")
        now = self.address.identity
        if self._connection is not None and self._timeline < now.timeline:
            self._connection.terminate()
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(
                self.address,
                self._duty,
                self._settings,
                within_s=min(self.address.limits.connect_s, self._deadline_s),
                statement_s=self._statement_s,
            )
            self._timeline = now.timeline
            self._connection.add_log_listener(self._note_warning)
            self._connection.add_termination_listener(self._connection_ended)
            if self._closed:  # meanwhile
                self._connection.terminate()
                raise StoreError("the store is closed")
        return self._connection

    async def _retried_in_new_partition(
        self,
        connection: Connection,
        work: Callable[[Connection], Awaitable[T]],
        run: Callable[[Connection, Callable[[Connection], Awaitable[T]]], Awaitable[T]],
    ) -> T:
        """Runs it again if rows were refused because their own partition was attached meanwhile."""
        try:
            return await run(connection, work)
        except asyncpg.CheckViolationError as error:
            if "partition constraint" not in str(error):
                raise
        return await run(connection, work)

    async def _within_deadline(
        self, connection: Connection, work: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Runs work within the deadline without cancelling it: the driver would ask the server to
        cancel a commit.

        Closing the socket instead lets the server finish or not, and the outcome is unknown.
        """
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        async def to_its_end() -> T:
            try:
                return await work(connection)
            finally:
                _resolve(over)  # the waiter goes on in the next round, when the task has ended

        task = asyncio.ensure_future(to_its_end())
        timer = loop.call_later(self._deadline_s, _resolve, over)
        try:
            await over
        finally:
            timer.cancel()
            answered = task.done()
            if not answered:
                connection.terminate()
                task.add_done_callback(_ignore_unread_error)
        if not answered:
            raise TimeoutError(f"no answer within {self._deadline_s:g} s")
        return task.result()

    async def _to_its_end(
        self, connection: Connection, work: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Runs work within the deadline in the caller's own task: closing the socket ends its
        wait."""
        late: list[bool] = []

        def end_late() -> None:
            late.append(True)
            connection.terminate()

        timer = asyncio.get_running_loop().call_later(self._deadline_s, end_late)
        try:
            return await work(connection)
        except DATABASE_ERRORS as error:
            if late:
                raise TimeoutError(f"no answer within {self._deadline_s:g} s") from error
            raise
        finally:
            timer.cancel()

    def _as_store_error(self, error: Exception, connection: Connection) -> StoreError:
        if breaks_connection(error):
            connection.terminate()
        return as_store_error(error, self.address.shown)

    def _connection_ended(self, _connection: object) -> None:
        if self.when_lost is not None and not self._closed:
            self.when_lost()

    def _note_warning(self, _connection: object, message: asyncpg.PostgresLogMessage) -> None:
        if message.severity_en == "WARNING":
            self._warnings.append(str(message.message))


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _ignore_unread_error(task: asyncio.Future[T]) -> None:
    # Marks the error as read: nobody waits for this work any more.
    if not task.cancelled():
        task.exception()


async def close(connection: Connection, within_s: float = CLOSE_S) -> None:
    """Closes a connection in good order, if the database answers in time."""
    try:
        await connection.close(timeout=within_s)
    except DATABASE_ERRORS:
        connection.terminate()


R = TypeVar("R")


class ReaderPool:
    """Connection pool for readers; a read that loses its connection is repeated once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._timeline = 0

    async def open(self) -> None:
        """Opens the pool; connections are made when they are needed."""
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
        """Returns what `read` returns on a connection of the pool."""
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
        """Closes the pool; reads in progress have a moment to end."""
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
            # The idle ones may lead to a former primary.
            self._timeline = now
            await pool.expire_connections()
        connection = await pool.acquire(timeout=within_s)
        try:
            # The server's own limit does not help if the server itself hangs.
            async with asyncio.timeout(within_s):
                return await read(connection)  # type: ignore[arg-type]  # a proxy of one
        except TimeoutError:
            connection.terminate()
            raise TimeoutError(f"no answer within {within_s:g} s") from None
        finally:
            # After a cancelled read the pool waits until the server has noticed. If that fails, the
            # connection is dropped, and the caller still gets the first error.
            with suppress(*DATABASE_ERRORS):
                await pool.release(connection, timeout=self._address.limits.close_s)

    async def _connect(self, *_args: object, **_options: object) -> Connection:
        settings = {
            "default_transaction_read_only": "on",
            "statement_timeout": str(int(READ_DEADLINE_S * 1000)),
            # A page is a short index scan: to start parallel workers would take longer.
            "max_parallel_workers_per_gather": "0",
            "jit": "off",
            # The best plan depends on how rare a label or a name is: generic plans do not know it.
            "plan_cache_mode": "force_custom_plan",
        }
        return await connect(self._address, "read", settings)


async def _reset(connection: Connection) -> None:
    """Resets a connection only if it is in a transaction: readers use single statements."""
    if connection.is_in_transaction():
        await connection.reset(timeout=CONNECT_S)
