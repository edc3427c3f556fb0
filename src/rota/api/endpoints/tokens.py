"""Endpoints of access tokens: create, list, revoke; the audit log, read."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from rota.api.auth.roles import TENANT_ROLES, Permission
from rota.api.auth.token_cache import TokenCache, token_digest
from rota.api.ids import TokenSeed, mint_token
from rota.api.pagination import Cursor, Limit, PageQuery, cut, foreign_cursor, read_cursor
from rota.api.problems import invalid, not_found
from rota.api.router import Call, NoQuery, Operation, Reply
from rota.core.model import Instant
from rota.store.limits import KEY_AGE_MS
from rota.store.protocol import TooManyTokensError
from rota.store.rows import TokenTakenError
from rota.store.tokens import AuditEntry, AuditQuery, Role, Token
from rota.wire.formats import from_instant, from_instant_or_none, to_instant
from rota.wire.jobs import Moment
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.problems import ProblemError
from rota.wire.tokens import (
    AuditPage,
    AuditView,
    NewTokenView,
    TokenPage,
    TokenSpec,
    TokenView,
)


class AuditPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the audit log."""

    token_id: Annotated[str, Meta(description="By this token.")] | None = None
    target: Annotated[str, Meta(description="About this job, queue, worker or token.")] | None = (
        None
    )
    after: Moment | None = None
    before: Moment | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "GET",
    "/tokens",
    "List tokens, newest first",
    tag="Access",
    permission=Permission.ADMINISTER,
    any_server=True,
    query=PageQuery,
    answer=TokenPage,
    description="Revoked and expired tokens stay listed for 90 days.",
    examples={"answer": "tokens"},
)
async def list_tokens(call: Call[None, PageQuery]) -> TokenPage:
    now = call.deps.brain.clock.now()
    before = read_cursor(call.query.cursor)
    found = [
        one
        for one in call.deps.access.tokens.all_tokens()
        if before is None or _sort_key(one) < before
    ]
    items, next_cursor = cut(found, call.query.limit, _sort_key)
    return TokenPage([token_view(one, now) for one in items], next_cursor)


@Operation(
    "POST",
    "/tokens",
    "Create a token",
    tag="Access",
    permission=Permission.ADMINISTER,
    any_server=True,
    body=TokenSpec,
    answer=NewTokenView,
    status=201,
    errors=(409,),
    description=(
        "The answer shows the token; only its hash is stored, so it is never shown again. A "
        "repeat with the same Idempotency-Key, sent with the same token or session within 24 "
        "hours, gets the same answer; later, or once the new token has ended, 409. All servers of "
        "the cell know it within a second."
    ),
    examples={"body": "token_spec", "answer": "new_token"},
)
async def create_token(call: Call[TokenSpec, NoQuery]) -> Reply:
    """Creates a token, shown only in this answer and in those to repeats with the same key."""
    now, tokens = call.deps.brain.clock.now(), call.deps.access.tokens
    if call.key is None:
        text = mint_token()
        token = new_token(call.body, call.state.ids.mint(now), text, now, call.caller.name)
        await _add(tokens, token)
    else:
        await tokens.refresh()  # the first request may have gone to another server
        seed = TokenSeed(tokens.secret, call.caller.proof, call.key.key)
        token = tokens.by_tail(seed.tail) or await _make_once(call, seed, now)
        text = seed.token_of(token.id)
        _check_repeat(call, token, text, now)
    return Reply(new_token_view(token, text, now), {"Location": f"/tokens/{token.id}"})


async def _make_once(call: Call[TokenSpec, NoQuery], seed: TokenSeed, now: Instant) -> Token:
    """Creates a token, or returns the one that the same request created at the same time."""
    tokens, token_id = call.deps.access.tokens, seed.id_from(call.state.ids.mint(now))
    token = new_token(call.body, token_id, seed.token_of(token_id), now, call.caller.name)
    try:
        await _add(tokens, token)
    except TokenTakenError:
        await tokens.refresh()
        found = tokens.by_tail(seed.tail)
        if found is None:
            raise
        return found
    return token


async def _add(tokens: TokenCache, token: Token) -> None:
    try:
        await tokens.add(token)
    except TooManyTokensError as error:
        raise ProblemError(409, "conflict", str(error)) from None


def _check_repeat(call: Call[TokenSpec, NoQuery], first: Token, text: str, now: Instant) -> None:
    """Refuses a repeat that asks for something else, or whose token is not to be shown again."""
    assert call.key is not None
    used = f"the idempotency key {call.key.key!r} was used for"
    asked = new_token(call.body, first.id, text, first.created_at, first.created_by)
    if asked != replace(first, revoked_at=None):
        raise _reused(f"{used} another request")
    if not first.is_live(now):
        raise _reused(f"{used} the token {first.id}, which has ended: send a new key for a new one")
    if now - first.created_at > KEY_AGE_MS:
        raise _reused(
            f"{used} the token {first.id} more than 24 hours ago, and it is not shown any more:"
            " send a new key for a new one"
        )


def _reused(detail: str) -> ProblemError:
    return ProblemError(409, "idempotency_key_reused", detail)


@Operation(
    "DELETE",
    "/tokens/{token_id}",
    "Revoke a token",
    tag="Access",
    permission=Permission.ADMINISTER,
    any_server=True,
    status=204,
    errors=(404,),
    description=(
        "All servers of the cell refuse it within a second, and the sessions of browsers that "
        "signed in with it. A repeat changes nothing."
    ),
)
async def revoke_token(call: Call[None, NoQuery]) -> None:
    """Revokes a token and the sessions opened with it."""
    token_id, tokens = call.path["token_id"], call.deps.access.tokens
    if tokens.by_id(token_id) is None:
        await tokens.refresh_soon()  # another server may have created it a moment ago
    now = call.deps.brain.clock.now()
    if tokens.by_id(token_id) is None or await tokens.revoke(token_id, now) is None:
        raise not_found("token", token_id[:100])


@Operation(
    "GET",
    "/audit",
    "List who changed what, newest first",
    tag="Access",
    permission=Permission.ADMINISTER,
    any_server=True,
    query=AuditPageQuery,
    answer=AuditPage,
    description=(
        "An entry for every call with a token that may change something, also if it was refused; "
        "without the regular calls of workers."
    ),
    examples={"answer": "audit"},
)
async def list_audit(call: Call[None, AuditPageQuery]) -> AuditPage:
    asked = call.query
    query = AuditQuery(
        token_id=asked.token_id,
        target=asked.target,
        after=to_instant(asked.after) if asked.after else None,
        before=to_instant(asked.before) if asked.before else None,
        below_id=_read_number(asked.cursor),
        limit=asked.limit + 1,
    )
    found = await call.deps.audit.read(query)
    items, next_cursor = cut(found, asked.limit, lambda one: str(one.id))
    return AuditPage([audit_view(one) for one in items], next_cursor)


def new_token(spec: TokenSpec, token_id: str, text: str, now: Instant, by: str) -> Token:
    """Makes the record of a requested token."""
    role = Role(spec.role)
    if spec.tenant is not None and role not in TENANT_ROLES:
        allowed = " and ".join(TENANT_ROLES)
        raise invalid(
            "tenant",
            f"goes with the roles {allowed} only: queues, workers and tokens belong to no"
            f" tenant, and the role {role} acts on all of them",
        )
    return Token(
        id=token_id,
        name=spec.name or f"{role} {token_id[-6:]}",
        digest=token_digest(text),
        role=role,
        tenant=spec.tenant,
        created_at=now,
        created_by=by,
        expires_at=None if spec.expires_in is None else now + spec.expires_in.ms,
    )


def token_view(token: Token, now: Instant) -> TokenView:
    """Converts a token without its secret."""
    return TokenView(
        token_id=token.id,
        name=token.name,
        role=token.role.value,
        tenant=token.tenant,
        status="live" if token.is_live(now) else "revoked" if token.revoked_at else "expired",
        created_at=from_instant(token.created_at),
        created_by=token.created_by,
        expires_at=from_instant_or_none(token.expires_at),
        revoked_at=from_instant_or_none(token.revoked_at),
    )


def new_token_view(token: Token, text: str, now: Instant) -> NewTokenView:
    """Converts a token with its secret."""
    return NewTokenView(**msgspec.structs.asdict(token_view(token, now)), token=text)


def audit_view(entry: AuditEntry) -> AuditView:
    return AuditView(
        at=from_instant(entry.at),
        token_id=entry.token_id,
        token=entry.token_name,
        method=entry.method,
        route=entry.route,
        target=entry.target,
        status=entry.status,
        remote=entry.remote,
        node=entry.node,
    )


def _sort_key(token: Token) -> str:
    return f"{token.created_at:015d}:{token.id}"


def _read_number(cursor: str | None) -> int | None:
    last = read_cursor(cursor)
    if last is None:
        return None
    if not (last.isascii() and last.isdigit() and len(last) <= 18):
        raise foreign_cursor()
    return int(last)
