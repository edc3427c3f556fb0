"""Access tokens and the audit log on SQLite, read and written in the writer's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from rota.core.model import Instant
from rota.store.limits import TOKEN_KEPT_MS, StoreLimits
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
from rota.store.sqlite.connect import fetch, run_in_bulk
from rota.store.sqlite.journal_store import SqliteJournalStore
from rota.store.tokens import (
    ID_SUFFIX_CHARS,
    AuditEntry,
    AuditQuery,
    Token,
    TokenSnapshot,
    id_suffix,
)

_LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"
_ALIKE = "SELECT 1 FROM tokens WHERE substr(id, ?) = ?"
_CHANGED = "UPDATE access SET revision = revision + 1"


class SqliteTokenStore:
    """Token store on SQLite; only this process changes tokens, so it caches the revision."""

    def __init__(self, writer: SqliteJournalStore, limits: StoreLimits) -> None:
        self._writer, self._limits = writer, limits
        self._changes = 0
        """How many changes of tokens were begun."""
        self._known = (-1, 0)
        """(`_changes` when the revision was read, the revision)."""

    async def revision(self) -> int:
        changes = self._changes
        if self._known[0] != changes:
            self._known = (changes, await self._writer.run_durably(_revision))
        return self._known[1]

    async def load(self, fresh_secret: bytes) -> TokenSnapshot:
        return await self._writer.run_durably(lambda c: _load(c, fresh_secret))

    async def add_token(self, token: Token) -> None:
        self._changes += 1
        await self._writer.run_durably(lambda c: _add_token(c, token, self._limits))

    async def revoke_token(self, token_id: str, at: Instant) -> Token | None:
        self._changes += 1
        return await self._writer.run_durably(lambda c: _revoke_token(c, token_id, at))

    async def add_audit(self, entries: Sequence[AuditEntry], drop_before: Instant) -> None:
        await self._writer.run_durably(lambda c: _add_audit(c, entries, drop_before, self._limits))

    async def audit(self, query: AuditQuery) -> list[AuditEntry]:
        return await self._writer.run_durably(lambda c: _audit(c, query))


def _revision(connection: apsw.Connection) -> int:
    return int(fetch(connection, "SELECT revision FROM access")[0][0])


def _load(connection: apsw.Connection, fresh_secret: bytes) -> TokenSnapshot:
    connection.execute("UPDATE access SET secret = ? WHERE secret IS NULL", (fresh_secret,))
    revision, secret = fetch(connection, "SELECT revision, secret FROM access")[0]
    found = fetch(connection, f"SELECT {TOKEN_COLUMNS} FROM tokens ORDER BY id")
    return TokenSnapshot(revision, secret, to_tokens(found))


def _add_token(connection: apsw.Connection, token: Token, limits: StoreLimits) -> None:
    if fetch(connection, _ALIKE, (-ID_SUFFIX_CHARS, id_suffix(token.id))):
        raise token_taken()
    now = token.created_at
    live = fetch(connection, f"SELECT count(*) FROM tokens WHERE {_LIVE}", (now,))[0][0]
    if live >= limits.tokens_max:
        raise too_many_tokens(limits)
    try:
        # `with` is a savepoint: all of it happens, or nothing.
        with connection:
            connection.execute(
                "DELETE FROM tokens WHERE min(coalesce(revoked_at, expires_at),"
                " coalesce(expires_at, revoked_at)) < ?",
                (now - TOKEN_KEPT_MS,),
            )
            run_in_bulk(
                connection, f"INSERT INTO tokens ({TOKEN_COLUMNS}) VALUES", [token_row(token)]
            )
            connection.execute(_CHANGED)
    except apsw.ConstraintError:
        raise token_taken() from None


def _revoke_token(connection: apsw.Connection, token_id: str, at: Instant) -> Token | None:
    with connection:
        connection.execute(
            "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (at, token_id)
        )
        if connection.changes():
            connection.execute(_CHANGED)
    found = fetch(connection, f"SELECT {TOKEN_COLUMNS} FROM tokens WHERE id = ?", (token_id,))
    return to_token(found[0]) if found else None


def _add_audit(
    connection: apsw.Connection,
    entries: Sequence[AuditEntry],
    drop_before: Instant,
    limits: StoreLimits,
) -> None:
    with connection:
        rows = [audit_row(entry) for entry in entries]
        run_in_bulk(connection, f"INSERT INTO audit ({AUDIT_COLUMNS}) VALUES", rows)
        connection.execute(
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT ?) AND at < ?",
            (audit_drops_max(entries, limits), drop_before),
        )


def _audit(connection: apsw.Connection, query: AuditQuery) -> list[AuditEntry]:
    wanted: tuple[tuple[str, Any], ...] = (
        ("token_id = ?", query.token_id),
        ("target = ?", query.target),
        ("at > ?", query.after),
        ("at < ?", query.before),
        ("id < ?", query.below_id),
    )
    given = [(clause, value) for clause, value in wanted if value is not None]
    where = " AND ".join(clause for clause, _ in given) or "true"
    found = fetch(
        connection,
        f"SELECT id, {AUDIT_COLUMNS} FROM audit WHERE {where} ORDER BY id DESC LIMIT ?",
        [*(value for _, value in given), query.limit],
    )
    return [to_audit(row) for row in found]
