"""Access tokens and the audit log in PostgreSQL: all servers of a cell accept the same tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from rota.core.model import Instant
from rota.store.limits import SIDE_DEADLINE_S, TOKEN_KEPT_MS, StoreLimits
from rota.store.postgres.connect import (
    Address,
    Connection,
    DedicatedConnection,
    ReaderPool,
    parse_address,
)
from rota.store.postgres.glance import REVISION, Glance
from rota.store.postgres.migrate import prepare
from rota.store.rows import (
    AUDIT_COLUMNS,
    TOKEN_COLUMNS,
    audit_drops_max,
    audit_row,
    to_audit,
    to_token,
    to_tokens,
    token_row,
    token_taken,
    too_many_tokens,
)
from rota.store.tokens import (
    ID_SUFFIX_CHARS,
    AuditEntry,
    AuditQuery,
    Token,
    TokenSnapshot,
    id_suffix,
)

_LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)"
_ALIKE = "SELECT 1 FROM rota.tokens WHERE right(id, $1) = $2"
_CHANGED = "UPDATE rota.access SET revision = revision + 1"
_REVOKE = f"""
WITH revoked AS (
    UPDATE rota.tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING id
)
{_CHANGED} WHERE EXISTS (SELECT FROM revoked)
"""
_ADD_AUDIT = f"""
INSERT INTO rota.audit ({AUDIT_COLUMNS}) SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[],
    $6::text[], $7::integer[], $8::text[], $9::text[]
)
"""
_DROP_AUDIT = """
DELETE FROM rota.audit WHERE id IN (SELECT id FROM rota.audit ORDER BY id LIMIT $1) AND at < $2
"""


class PostgresTokenStore:
    """Token store in PostgreSQL: a connection of its own writes, the readers' pool reads."""

    def __init__(
        self, connection: DedicatedConnection, readers: ReaderPool, glance: Glance
    ) -> None:
        self._connection, self._limits = connection, connection.address.limits
        self._readers = readers
        self._glance = glance

    async def revision(self) -> int:
        (revision,) = await self._glance.see(REVISION)
        return int(revision)

    async def load(self, fresh_secret: bytes) -> TokenSnapshot:
        return await self._connection.write(lambda c: _load(c, fresh_secret))

    async def add_token(self, token: Token) -> None:
        await self._connection.write(lambda c: _add_token(c, token, self._limits))

    async def revoke_token(self, token_id: str, at: Instant) -> Token | None:
        return await self._connection.write(lambda c: _revoke_token(c, token_id, at))

    async def add_audit(self, entries: Sequence[AuditEntry], drop_before: Instant) -> None:
        await self._connection.write(lambda c: _add_audit(c, entries, drop_before, self._limits))

    async def audit(self, query: AuditQuery) -> list[AuditEntry]:
        return await self._readers.run(lambda c: _audit(c, query))


@asynccontextmanager
async def open_postgres_tokens(dsn: str) -> AsyncIterator[PostgresTokenStore]:
    """Opens this part of a store alone, with its schema migrated; for commands without a server."""
    address = parse_address(dsn)
    await prepare(address)
    connection, readers = token_connection(address), ReaderPool(address)
    try:
        await readers.open()
        yield PostgresTokenStore(connection, readers, Glance(connection))
    finally:
        await readers.close()
        await connection.close()


def token_connection(address: Address) -> DedicatedConnection:
    """Returns the connection that writes tokens and the audit log, durably."""
    return DedicatedConnection(address, "access", SIDE_DEADLINE_S, {"synchronous_commit": "on"})


async def _load(connection: Connection, fresh_secret: bytes) -> TokenSnapshot:
    await connection.execute(
        "UPDATE rota.access SET secret = $1 WHERE secret IS NULL", fresh_secret
    )
    # The revision first: a change between the two statements is loaded twice, not missed.
    found = await connection.fetchrow("SELECT revision, secret FROM rota.access")
    assert found is not None
    rows = await connection.fetch(f"SELECT {TOKEN_COLUMNS} FROM rota.tokens ORDER BY id")
    return TokenSnapshot(found[0], found[1], to_tokens(tuple(row) for row in rows))


async def _add_token(connection: Connection, token: Token, limits: StoreLimits) -> None:
    now = token.created_at
    async with connection.transaction():
        # All who add a token change this row first: so they take turns, and the limit holds.
        await connection.execute(_CHANGED)
        if await connection.fetchval(_ALIKE, ID_SUFFIX_CHARS, id_suffix(token.id)):
            raise token_taken()
        live = await connection.fetchval(f"SELECT count(*) FROM rota.tokens WHERE {_LIVE}", now)
        if live >= limits.tokens_max:
            raise too_many_tokens(limits)
        await connection.execute(
            "DELETE FROM rota.tokens WHERE least(revoked_at, expires_at) < $1", now - TOKEN_KEPT_MS
        )
        row = token_row(token)
        places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
        try:
            await connection.execute(
                f"INSERT INTO rota.tokens ({TOKEN_COLUMNS}) VALUES ({places})", *row
            )
        except asyncpg.UniqueViolationError:
            raise token_taken() from None


async def _revoke_token(connection: Connection, token_id: str, at: Instant) -> Token | None:
    await connection.execute(_REVOKE, token_id, at)
    found = await connection.fetchrow(
        f"SELECT {TOKEN_COLUMNS} FROM rota.tokens WHERE id = $1", token_id
    )
    return to_token(tuple(found)) if found else None


async def _add_audit(
    connection: Connection,
    entries: Sequence[AuditEntry],
    drop_before: Instant,
    limits: StoreLimits,
) -> None:
    async with connection.transaction():
        if entries:
            columns = zip(*(audit_row(entry) for entry in entries), strict=True)
            await connection.execute(_ADD_AUDIT, *(list(column) for column in columns))
        await connection.execute(_DROP_AUDIT, audit_drops_max(entries, limits), drop_before)


async def _audit(connection: Connection, query: AuditQuery) -> list[AuditEntry]:
    wanted: tuple[tuple[str, Any], ...] = (
        ("token_id =", query.token_id),
        ("target =", query.target),
        ("at >", query.after),
        ("at <", query.before),
        ("id <", query.below_id),
    )
    given = [(clause, value) for clause, value in wanted if value is not None]
    clauses = [f"{clause} ${number}" for number, (clause, _) in enumerate(given, 1)]
    rows = await connection.fetch(
        f"SELECT id, {AUDIT_COLUMNS} FROM rota.audit WHERE {' AND '.join(clauses) or 'true'}"
        f" ORDER BY id DESC LIMIT {query.limit:d}",
        *(value for _, value in given),
    )
    return [to_audit(tuple(row)) for row in rows]
