"""The calls about tokens and the audit trail, as values; apart from the rest, which all use."""

from __future__ import annotations

from rota.sdk.calls import Call
from rota.sdk.paths import params_of, path_of
from rota.wire.tokens import AuditPage, NewTokenView, TokenPage, TokenSpec
from rota.wire.units import encode


def list_tokens(*, limit: int | None = None, cursor: str | None = None) -> Call[TokenPage]:
    """A page of tokens, newest first."""
    return Call("GET", "/tokens", TokenPage, params=params_of(limit=limit, cursor=cursor))


def create_token(spec: TokenSpec) -> Call[NewTokenView]:
    """Makes a token."""
    return Call("POST", "/tokens", NewTokenView, body=encode(spec), keyed=True)


def revoke_token(token_id: str) -> Call[None]:
    """Ends a token."""
    return Call("DELETE", path_of("tokens", token_id), type(None))


def list_audit(**filters: str | int | None) -> Call[AuditPage]:
    """A page of the audit trail, newest first: token_id, target, after, before, limit, cursor."""
    return Call("GET", "/audit", AuditPage, params=params_of(**filters))
