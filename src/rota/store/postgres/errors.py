"""Translation of PostgreSQL's errors: whether it happened, whether to reconnect, what to do."""

from __future__ import annotations

import asyncpg

from rota.store.protocol import StoreError, StoreFullError, UnknownFateError

CONNECTION_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    # The driver's state after the server closed an idle connection.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
)
"""Raised by a connection that was lost, or could not be made."""
DATABASE_ERRORS = (*CONNECTION_ERRORS, asyncpg.PostgresError)
"""All errors of the database, and of connections to it."""

_DISK_FULL = "53100"
_READ_ONLY = "25006"
_NOT_PRIMARY = "takes no writes: it is a replica, name the primary"
_ADVICE = {
    "25006": _NOT_PRIMARY,
    "28000": "does not let this user in: see pg_hba.conf",
    "28P01": "does not accept the password",
    "3D000": "has no such database: make it with createdb",
    "40P01": "broke off a deadlock: it is tried again",
    "42501": "the role lacks a right: see docs/operating/postgresql.md",
    "53100": "no space left on its disk: free some, it goes on",
    "53200": "is out of memory",
    "53300": "has no connection left: raise max_connections, or put PgBouncer before it",
    "55P03": "somebody holds a lock (pg_stat_activity, pg_locks say who)",
    "57014": "the statement took too long, or somebody cancelled it",
    "57P01": "is shutting down, or an administrator ended the connection",
    "57P02": "is restarting after a crash of one of its processes",
    "57P03": "is starting up or shutting down: it is tried again",
    "57P05": "ended a connection that was idle for too long: switch idle_session_timeout off",
}
"""By SQLSTATE, what to add to the database's own message."""


def as_store_error(error: Exception, shown: str) -> StoreError:
    """Returns the error of a write for its caller: refused for certain, or of unknown outcome."""
    text = describe(error, shown)
    if not isinstance(error, asyncpg.PostgresError) or error.severity_en in ("FATAL", "PANIC"):
        return UnknownFateError(text)
    if isinstance(error, asyncpg.PostgresConnectionError):
        return UnknownFateError(text)
    return StoreFullError(text) if error.sqlstate == _DISK_FULL else StoreError(text)


def breaks_connection(error: Exception) -> bool:
    """Returns whether the connection must not be used again, though it may still be open.

    One that takes no writes leads to a former primary: a new one may find the present one.
    """
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate == _READ_ONLY:
        return True
    return isinstance(as_store_error(error, ""), UnknownFateError)


def as_read_error(error: StoreError) -> StoreError:
    """Returns the error of a read: nothing can have happened."""
    return StoreError(str(error)) if isinstance(error, UnknownFateError) else error


def describe(error: BaseException, shown: str) -> str:
    """Returns the database's message, and what to do."""
    message = str(error) or (
        "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    )
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return f"{shown} {_NOT_PRIMARY}"
    advice = _ADVICE.get(getattr(error, "sqlstate", None) or "")
    return f"{shown}: {message}" if advice is None else f"{shown}: {message}: {advice}"
