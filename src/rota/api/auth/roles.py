"""RBAC: each operation names the permission it needs, and each permission the roles that have
it.

Why: docs/decisions/0022-tokens-and-access-rules.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from rota.store.tokens import Role
from rota.wire.problems import ProblemError

TENANT_ROLES = (Role.SUBMITTER, Role.VIEWER)
"""Roles that can be bound to a tenant: queues, workers and tokens belong to no tenant."""
_CALLER = "rota.caller"


class Permission(Enum):
    """A permission that a call asks for (RBAC)."""

    OPEN = auto()
    """Nothing is needed, not even a token."""
    KNOWN = auto()
    """Any token."""
    READ = auto()
    """To read; a tenant's token sees its own."""
    READ_ALL = auto()
    """To read figures of all tenants together."""
    SUBMIT = auto()
    """To submit jobs and to act on single ones; a tenant's token on its own."""
    WORK = auto()
    """To run jobs."""
    OPERATE = auto()
    """To change what all tenants share."""
    ADMINISTER = auto()
    """To create and revoke tokens, and to read the audit log."""


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
    """Caller of a request, as authenticated."""

    token_id: str
    name: str
    role: Role
    tenant: str | None = None
    by_browser: bool = False
    """Authenticated by a cookie, which browsers send by themselves."""
    proof: str = field(default="", repr=False)
    """Token or session cookie that authenticated the request; empty where none is needed."""


NOBODY = Caller("", "", Role.VIEWER, tenant="")
"""Caller of an operation that needs no token; no job belongs to the tenant ""."""
ANYBODY = Caller("", "no-auth", Role.ADMIN, by_browser=True)
"""Caller of a server without access control."""


def set_caller(scope: Any, caller: Caller) -> None:
    scope[_CALLER] = caller


def caller_of(scope: Any) -> Caller:
    caller: Caller = scope.get(_CALLER, NOBODY)
    return caller


def permit(permission: Permission, caller: Caller) -> None:
    """Refuses what the caller's role or tenant does not allow."""
    if permission is Permission.OPEN:
        return
    if caller is NOBODY or caller.role not in ALLOWED[permission]:
        allowed = ", ".join(ALLOWED[permission])
        detail = f"the token {caller.name!r} has the role {caller.role}; this call needs {allowed}"
        raise ProblemError(403, "forbidden", detail)
    if permission is Permission.READ_ALL and caller.tenant is not None:
        detail = f"this call shows all tenants, and the token {caller.name!r} is bound to one"
        raise ProblemError(403, "forbidden", detail)
