"""Tokens and audit entries as rows, and what all stores say and do alike about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rota.store.limits import StoreLimits
from rota.store.protocol import StoreError, TooManyTokensError
from rota.store.protocols.access import AuditEntry, Role, Token
from rota.store.rows import Row

TOKEN_COLUMNS = "id, name, digest, role, tenant, created_at, created_by, expires_at, revoked_at"
AUDIT_COLUMNS = "at, token_id, token_name, method, route, target, status, remote, node"


class TokenTakenError(StoreError):
    """There is a token with this digest, or with an id that ends so."""


def token_row(token: Token) -> tuple[Any, ...]:
    """In the order of TOKEN_COLUMNS."""
    return (
        token.id,
        token.name,
        token.digest,
        token.role.value,
        token.tenant,
        token.created_at,
        token.created_by,
        token.expires_at,
        token.revoked_at,
    )


def to_token(row: Row) -> Token:
    """And back."""
    return Token(
        id=row[0],
        name=row[1],
        digest=row[2],
        role=Role(row[3]),
        tenant=row[4],
        created_at=row[5],
        created_by=row[6],
        expires_at=row[7],
        revoked_at=row[8],
    )


def to_tokens(rows: Iterable[Row]) -> list[Token]:
    """All that this program understands: a role that only a newer one knows opens nothing here."""
    known = [role.value for role in Role]
    return [to_token(row) for row in rows if row[3] in known]


def audit_row(entry: AuditEntry) -> tuple[Any, ...]:
    """In the order of AUDIT_COLUMNS."""
    return (
        entry.at,
        entry.token_id,
        entry.token_name,
        entry.method,
        entry.route,
        entry.target,
        entry.status,
        entry.remote,
        entry.node,
    )


def to_audit(row: Row) -> AuditEntry:
    """From the id and AUDIT_COLUMNS."""
    return AuditEntry(
        id=row[0],
        at=row[1],
        token_id=row[2],
        token_name=row[3],
        method=row[4],
        route=row[5],
        target=row[6],
        status=row[7],
        remote=row[8],
        node=row[9],
    )


def token_taken() -> TokenTakenError:
    """What every store says to a token that is there."""
    return TokenTakenError("there is such a token already")


def too_many_tokens(limits: StoreLimits) -> TooManyTokensError:
    """What every store says to one more than there may be."""
    return TooManyTokensError(
        f"there are {limits.tokens_max} live tokens already: revoke some first"
    )


def audit_drops_max(entries: Sequence[AuditEntry], limits: StoreLimits) -> int:
    """How many of the oldest entries are looked at when these come."""
    return max(limits.audit_drops_min, 2 * len(entries))
