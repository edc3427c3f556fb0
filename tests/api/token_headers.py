"""Tokens for tests: one of each role, and some that are no longer good."""

from __future__ import annotations

from typing import Any

from rota.api.auth.token_cache import token_digest
from rota.core.model import Instant
from rota.store.tokens import Role, Token
from tests.api.in_process_server import InProcessServer

ACME = "acme"
OTHER = "other"


async def key(house: InProcessServer, role: Role = Role.VIEWER, **given: Any) -> dict[str, str]:
    """A token of this role made known to the house; the header that shows it."""
    name = given.pop("name", "-".join([role, *(str(one) for one in given.values())]))
    text = f"key-{name}"
    token = Token(
        id=f"id-{name}",
        name=name,
        digest=token_digest(text),
        role=role,
        created_at=house.engine.clock.now(),
        created_by="tests",
        **given,
    )
    await house.parts.access.tokens.add(token)
    return bearer(text)


async def dead_key(house: InProcessServer, *, expires_at: Instant | None = None) -> dict[str, str]:
    """An admin's token that has ended: at a time, or because somebody revoked it."""
    if expires_at is not None:
        return await key(house, Role.ADMIN, name="expired", expires_at=expires_at)
    header = await key(house, Role.ADMIN, name="revoked")
    await house.parts.access.tokens.revoke("id-revoked", house.engine.clock.now())
    return header


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}
