"""Transactional submission: submits a job inside the application's own PostgreSQL transaction, so
that the job exists if that commits.

The connection may be of any library that is recognised by its methods; Rota needs none of them
installed. The job goes through the SQL function `rota.submit` in the database of the cell.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import closing
from importlib import import_module
from typing import Any

import msgspec

from rota.sdk.arguments import type_name
from rota.sdk.calls import JobLike
from rota.sdk.errors import InvalidError
from rota.wire.formats import dec_hook, encode
from rota.wire.jobs import JobSpec
from rota.wire.limits import PAYLOAD_BYTES_MAX
from rota.wire.problems import FieldError, Problem

# As text first, because an application may have changed how its driver writes jsonb.
_SQL = "select rota.submit(%s::text::jsonb)"
_SQL_ASYNCPG = "select rota.submit($1::text::jsonb)"
_SQL_ALCHEMY = "select rota.submit(cast(cast(:spec as text) as jsonb))"
_KNOWN = "psycopg, psycopg2, asyncpg, Django or SQLAlchemy"


def submit_in(conn: Any, job: JobLike) -> str:
    """Returns the id of a job that will exist once the transaction of `conn` is committed."""
    spec = spec_text(job)
    if _is_async(conn):
        raise TypeError(f"{_kind(conn)} is for asyncio: await submit_async, or use AsyncClient")
    if _is_sqlalchemy(conn):
        return str(conn.execute(*_alchemy(spec)).scalar_one())
    if not callable(getattr(conn, "cursor", None)):
        raise _not_a_connection(conn)
    with closing(conn.cursor()) as cursor:
        cursor.execute(_SQL, (spec,))
        return _only(cursor.fetchone())


async def submit_in_async(conn: Any, job: JobLike) -> str:
    """Submits like `submit_in`, on a connection for asyncio."""
    spec = spec_text(job)
    if not _is_async(conn) or hasattr(conn, "acquire"):  # a pool is in no transaction
        raise _not_a_connection(conn, "an asyncio connection")
    if _is_sqlalchemy(conn):
        return str((await conn.execute(*_alchemy(spec))).scalar_one())
    if hasattr(conn, "fetchval"):
        return str(await conn.fetchval(_SQL_ASYNCPG, spec))
    async with conn.cursor() as cursor:
        await cursor.execute(_SQL, (spec,))
        return _only(await cursor.fetchone())


def refuse_key(key: str | None) -> None:
    """Raises ValueError for an idempotency key beside a connection."""
    if key is not None:
        raise ValueError(
            "idempotency_key cannot be used with conn: a transaction already happens once or not"
            " at all; leave the key out"
        )


def spec_text(job: JobLike) -> str:
    """Encodes the job as JSON. Raises InvalidError for what a server would refuse: the server could
    do so only after the transaction, when nobody waits for its answer.
    """
    body = encode(job)
    try:
        spec = msgspec.json.decode(body, type=JobSpec, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    if len(bytes(spec.payload)) > PAYLOAD_BYTES_MAX:
        raise _invalid(f"payload is larger than {PAYLOAD_BYTES_MAX} bytes", "payload")
    return body.decode()


def _invalid(detail: str, field: str = "") -> InvalidError:
    errors = [FieldError(field, detail)] if field else []
    return InvalidError(Problem("about:blank", "Invalid", 422, detail, errors))


def _is_async(conn: Any) -> bool:
    # A connection out of asyncpg's pool hides that its methods are coroutines.
    return hasattr(conn, "fetchval") or inspect.iscoroutinefunction(getattr(conn, "execute", None))


def _is_sqlalchemy(conn: Any) -> bool:
    ours = any(kind.__module__.startswith("sqlalchemy.") for kind in type(conn).__mro__)
    return ours and hasattr(conn, "execute")


def _alchemy(spec: str) -> tuple[Any, dict[str, str]]:
    return import_module("sqlalchemy").text(_SQL_ALCHEMY), {"spec": spec}


def _only(row: Any) -> str:
    """The one value of a row, whatever kind of row the driver returns."""
    return str(next(iter(row.values())) if isinstance(row, Mapping) else row[0])


def _kind(conn: Any) -> str:
    return f"conn, a {type_name(type(conn))},"


def _not_a_connection(conn: Any, wanted: str = "a connection") -> TypeError:
    return TypeError(
        f"{_kind(conn)} is not a connection to submit with: give {wanted} of {_KNOWN} that is in "
        "the transaction the job belongs to"
    )
