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
    """A token to create. Only the roles `submitter` and `viewer` can have a tenant."""

    role: RoleName
    name: TokenName = ""
    tenant: QueueName | None = None
    expires_in: SomeTime | None = None
    """Left out: it is valid until it is revoked."""

    def __post_init__(self) -> None:
        if self.expires_in is not None and not self.expires_in.ms:
            raise ValueError("expires_in must be more than 0")


class TokenView(msgspec.Struct):
    """A token's name, role and state; the token itself is stored nowhere."""

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
    """A new token with its secret text, which is shown only this once."""

    token: str


class TokenPage(msgspec.Struct):
    """A page of tokens, newest first."""

    items: list[TokenView]
    next_cursor: str | None


class AuditView(msgspec.Struct):
    """One call that changed something, or tried to."""

    at: Time
    token_id: str
    token: str
    """The name of the token that made the call."""
    method: str
    route: str
    """The path as the OpenAPI document declares it."""
    target: str
    """The id or name that the call was about."""
    status: int
    remote: str
    """The address that the call came from."""
    node: str
    """The server that answered."""


class AuditPage(msgspec.Struct):
    """A page of the audit log, newest first."""

    items: list[AuditView]
    next_cursor: str | None
