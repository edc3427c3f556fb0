"""Access tokens, their roles (RBAC) and the audit log: records and protocol, beside the journal.

Nothing here goes through the journal: a token must work on a server that does not lead, and be
made or revoked while nobody leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from rota.core.model import Instant


class Role(StrEnum):
    """Role of a token (RBAC): what its holder may do."""

    ADMIN = "admin"
    OPERATOR = "operator"
    SUBMITTER = "submitter"
    WORKER = "worker"
    VIEWER = "viewer"


ID_SUFFIX_CHARS = 17
"""The last two groups of a UUID, which do not depend on its time."""


def id_suffix(token_id: str) -> str:
    """Returns the end of a token's id, by which one that was made under a key is found again."""
    return token_id[-ID_SUFFIX_CHARS:]


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Token as it is stored: enough to recognise it, not enough to use it."""

    id: str
    name: str
    digest: bytes
    role: Role
    tenant: str | None = None
    created_at: Instant
    created_by: str
    """The name of the token, or of the command, that made it."""
    expires_at: Instant | None = None
    revoked_at: Instant | None = None

    @property
    def ends_at(self) -> Instant | None:
        """When it ended or will end; None: it ends only if somebody revokes it."""
        ends = [one for one in (self.revoked_at, self.expires_at) if one is not None]
        return min(ends, default=None)

    def is_live(self, now: Instant) -> bool:
        """Returns whether it is accepted."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class TokenSnapshot(msgspec.Struct, frozen=True):
    """Snapshot of all tokens, ended ones too, as of a revision."""

    revision: int
    secret: bytes
    """The key with which all servers of a cell sign."""
    tokens: Sequence[Token]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of the audit log: a call that changed something, or tried to."""

    id: int = 0
    """Given by the store; larger is newer."""
    at: Instant
    token_id: str
    token_name: str
    method: str
    route: str
    """The call's path as it is declared: `/jobs/{job_id}/cancel`."""
    target: str
    """The id or name that the call is about; empty if it names none."""
    status: int
    remote: str
    """The address it came from."""
    node: str
    """The server that answered."""


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for audit entries, newest first; the bounds of `at` are exclusive."""

    token_id: str | None = None
    target: str | None = None
    after: Instant | None = None
    before: Instant | None = None
    below_id: int | None = None
    """The id of the last one already seen."""
    limit: int = 50


class TokenStore(Protocol):
    """Token store: tokens and the audit log."""

    async def revision(self) -> int:
        """Returns a number that every change of the tokens changes; cheap enough to ask twice a
        second."""
        ...

    async def load(self, fresh_secret: bytes) -> TokenSnapshot:
        """Returns all tokens; `fresh_secret` becomes the shared secret if there was none."""
        ...

    async def add_token(self, token: Token) -> None:
        """Adds a token; durable when it returns. Raises TooManyTokensError or TokenTakenError.

        No two have the same digest, or ids that end alike (`id_suffix`), however many are added at
        once. Those that ended long before `token` was made are removed.
        """
        ...

    async def revoke_token(self, token_id: str, at: Instant) -> Token | None:
        """Revokes a token and returns it; an earlier revocation stays. None: there is none."""
        ...

    async def add_audit(self, entries: Sequence[AuditEntry], drop_before: Instant) -> None:
        """Adds entries, and removes some of those older than `drop_before`."""
        ...

    async def audit(self, query: AuditQuery) -> list[AuditEntry]:
        """Returns a page, newest first."""
        ...
