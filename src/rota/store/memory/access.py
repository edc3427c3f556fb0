"""Tokens and the audit trail of the forgetful store."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rota.core.model import Instant
from rota.store.access_rows import drops, taken, too_many_tokens
from rota.store.limits import STORE_LIMITS, TOKEN_KEPT_MS, StoreLimits
from rota.store.protocols.access import AccessSnapshot, AuditEntry, AuditQuery, Token, tail_of


class MemoryAccess:
    """The same calls, until the process ends."""

    def __init__(self, limits: StoreLimits = STORE_LIMITS) -> None:
        self._limits = limits
        self._revision = 0
        self._secret = b""
        self._tokens: dict[str, Token] = {}
        self._audit: list[AuditEntry] = []
        self._audit_next = 1

    async def revision(self) -> int:
        """Another number after every change of the tokens."""
        return self._revision

    async def load(self, fresh_secret: bytes) -> AccessSnapshot:
        """All tokens."""
        self._secret = self._secret or fresh_secret
        return AccessSnapshot(self._revision, self._secret, tuple(self._tokens.values()))

    async def add_token(self, token: Token) -> None:
        """Keeps one."""
        tail, known = tail_of(token.id), self._tokens.values()
        if any(tail == tail_of(one.id) or token.digest == one.digest for one in known):
            raise taken()
        now = token.created_at
        if sum(one.is_live(now) for one in self._tokens.values()) >= self._limits.tokens_max:
            raise too_many_tokens(self._limits)
        oldest = now - TOKEN_KEPT_MS
        self._tokens = {
            one.id: one
            for one in (*self._tokens.values(), token)
            if one.ends_at is None or one.ends_at >= oldest
        }
        self._revision += 1

    async def revoke_token(self, token_id: str, at: Instant) -> Token | None:
        """The first revocation stands."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        if token.revoked_at is None:
            token = self._tokens[token_id] = replace(token, revoked_at=at)
            self._revision += 1
        return token

    async def add_audit(self, entries: Sequence[AuditEntry], drop_before: Instant) -> None:
        """Adds, and removes what is old."""
        for entry in entries:
            self._audit.append(replace(entry, id=self._audit_next))
            self._audit_next += 1
        looked_at = drops(entries, self._limits)
        oldest, rest = self._audit[:looked_at], self._audit[looked_at:]
        self._audit = [entry for entry in oldest if entry.at >= drop_before] + rest

    async def audit(self, query: AuditQuery) -> list[AuditEntry]:
        """A page, newest first."""
        found = [
            entry
            for entry in reversed(self._audit)
            if query.token_id in (None, entry.token_id)
            and query.target in (None, entry.target)
            and (query.after is None or entry.at > query.after)
            and (query.before is None or entry.at < query.before)
            and (query.below_id is None or entry.id < query.below_id)
        ]
        return found[: query.limit]
