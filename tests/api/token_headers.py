"""Tokens for tests: one of each role, and some that are no longer valid."""

from __future__ import annotations

from typing import Any

from rota.api.auth.token_cache import token_digest
from rota.core.model import Instant
from rota.store.tokens import Role, Token
from tests.api.in_process_server import InProcessServer

ACME = "acme"
OTHER = "other"


async def token_headers(
    server: InProcessServer, role: Role = Role.VIEWER, **given: Any
) -> dict[str, str]:
    """Adds a token of this role to the server; returns its header."""
    name = given.pop("name", "-".join([role, *(str(one) for one in given.values())]))
    text = f"key-{name}"
    token = Token(
        id=f"id-{name}",
        name=name,
        digest=token_digest(text),
        role=role,
        created_at=server.engine.clock.now(),
        created_by="tests",
        **given,
    )
    await server.deps.access.tokens.add(token)
    return bearer(text)


async def ended_token(
    server: InProcessServer, *, expires_at: Instant | None = None
) -> dict[str, str]:
    """Returns the header of an admin's token that has expired or was revoked."""
    if expires_at is not None:
        return await token_headers(server, Role.ADMIN, name="expired", expires_at=expires_at)
    header = await token_headers(server, Role.ADMIN, name="revoked")
    await server.deps.access.tokens.revoke("id-revoked", server.engine.clock.now())
    return header


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}
