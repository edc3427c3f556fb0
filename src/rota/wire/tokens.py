"""Access tokens with their roles, and the audit log."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.formats import PLAIN, SomeTime
from rota.wire.jobs import QueueName, Time
from rota.wire.limits import NAME_CHARS_MAX

RoleName: TypeAlias = Literal["admin", "operator", "submitter", "worker", "viewer"]
TokenName: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=PLAIN)]


class TokenSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A token to make. A tenant goes with the roles `submitter` and `viewer` only."""

    role: RoleName
    name: TokenName = ""
    tenant: QueueName | None = None
    expires_in: SomeTime | None = None
    """Left out: it lasts until it is revoked."""

    def __post_init__(self) -> None:
        if self.expires_in is not None and not self.expires_in.ms:
            raise ValueError("expires_in must be more than 0")


class TokenView(msgspec.Struct):
    """What is known of a token; the token itself is kept nowhere."""

    token_id: str
    name: str
    role: RoleName
    tenant: str | None
    status: Literal["live", "expired", "revoked"]
    created_at: Time
    created_by: str
    expires_at: Time | None
    revoked_at: Time | None


class NewTokenView(TokenView, kw_only=True):
    """The same, with the token: shown this once."""

    token: str


class TokenPage(msgspec.Struct):
    """Tokens, newest first."""

    items: list[TokenView]
    next_cursor: str | None


class AuditView(msgspec.Struct):
    """One call that changed something, or tried to."""

    at: Time
    token_id: str
    token: str
    """The name of the token that asked."""
    method: str
    route: str
    """The path as the document declares it."""
    target: str
    """The id or name the call was about."""
    status: int
    remote: str
    """The address it came from."""
    node: str
    """The server that answered."""


class AuditPage(msgspec.Struct):
    """The audit trail, newest first."""

    items: list[AuditView]
    next_cursor: str | None
