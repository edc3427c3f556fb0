"""The calls about the policy and the tenants, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.sdk.calls import Call
from rota.sdk.paths import params_of, path_of
from rota.wire.policy import PolicyView
from rota.wire.tenants import TenantPage, TenantView
from rota.wire.units import encode


def get_policy() -> Call[PolicyView]:
    """The policy in force."""
    return Call("GET", "/policy", PolicyView)


def set_policy(settings: Mapping[str, Any]) -> Call[PolicyView]:
    """Another policy; what is not given is as in its preset."""
    return Call("PUT", "/policy", PolicyView, body=encode(settings), keyed=True)


def list_tenants(*, limit: int | None = None, cursor: str | None = None) -> Call[TenantPage]:
    """A page of tenants, by name."""
    return Call("GET", "/tenants", TenantPage, params=params_of(limit=limit, cursor=cursor))


def get_tenant(name: str) -> Call[TenantView]:
    """One tenant."""
    return Call("GET", path_of("tenants", name), TenantView)


def set_tenant(name: str, settings: Mapping[str, Any]) -> Call[TenantView]:
    """A tenant's weight and quota; what is not given goes back to its default."""
    return Call("PUT", path_of("tenants", name), TenantView, body=encode(settings), keyed=True)
