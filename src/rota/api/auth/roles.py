"""RBAC: each call names the permission it asks for, and each permission the roles that have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from rota.store.tokens import Role
from rota.wire.problems import ProblemError

TENANT_ROLES = (Role.SUBMITTER, Role.VIEWER)
"""The roles that may be bound to a tenant: queues, workers and tokens are everybody's."""
_CALLER = "rota.caller"


class Permission(Enum):
    """A permission that a call asks for (RBAC)."""

    OPEN = auto()
    """Nothing, not even a token."""
    KNOWN = auto()
    """Any token."""
    READ = auto()
    """To look; a tenant's token sees its own."""
    READ_ALL = auto()
    """To look at figures of all tenants together."""
    SUBMIT = auto()
    """To submit jobs and act on single ones; a tenant's token on its own."""
    WORK = auto()
    """To run jobs."""
    OPERATE = auto()
    """To change what everybody shares."""
    ADMINISTER = auto()
    """To make and revoke tokens, and to see who did what."""


_READERS = (Role.ADMIN, Role.OPERATOR, Role.SUBMITTER, Role.VIEWER)
ALLOWED: Mapping[Permission, Sequence[Role]] = {
    Permission.OPEN: tuple(Role),
    Permission.KNOWN: tuple(Role),
    Permission.READ: _READERS,
    Permission.READ_ALL: _READERS,
    Permission.SUBMIT: (Role.ADMIN, Role.OPERATOR, Role.SUBMITTER),
    Permission.WORK: (Role.ADMIN, Role.OPERATOR, Role.WORKER),
    Permission.OPERATE: (Role.ADMIN, Role.OPERATOR),
    Permission.ADMINISTER: (Role.ADMIN,),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as far as the server knows."""

    token_id: str
    name: str
    role: Role
    tenant: str | None = None
    by_browser: bool = False
    """Rests on what a browser sends by itself."""
    proof: str = field(default="", repr=False)
    """The token or the session's cookie that was good; empty where none is asked for."""


NOBODY = Caller("", "", Role.VIEWER, tenant="")
"""Whoever makes a call that needs no token. No job is of the tenant without a name."""
ANYBODY = Caller("", "no-auth", Role.ADMIN, by_browser=True)
"""Whoever reaches a server without access control."""


def set_caller(scope: Any, caller: Caller) -> None:
    """Notes who sent a request."""
    scope[_CALLER] = caller


def caller_of(scope: Any) -> Caller:
    """Who sent it."""
    caller: Caller = scope.get(_CALLER, NOBODY)
    return caller


def permit(permission: Permission, caller: Caller) -> None:
    """Refuses what the caller's role or tenant does not allow."""
    if permission is Permission.OPEN:
        return
    if caller is NOBODY or caller.role not in ALLOWED[permission]:
        allowed = ", ".join(ALLOWED[permission])
        detail = f"the token {caller.name!r} has the role {caller.role}; this call takes {allowed}"
        raise ProblemError(403, "forbidden", detail)
    if permission is Permission.READ_ALL and caller.tenant is not None:
        detail = f"this call tells of all tenants, and the token {caller.name!r} is of one"
        raise ProblemError(403, "forbidden", detail)
