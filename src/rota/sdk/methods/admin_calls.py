"""Calls about tokens, the audit log, policy, tenants, capacity and alerts, as values; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.sdk.calls import Call, params_of, path_of
from rota.wire.alerts import (
    AlertPage,
    AlertTrial,
    AlertView,
    ChannelPage,
    ChannelTrial,
    ChannelView,
    NoticePage,
)
from rota.wire.capacity import AutoscaleView, WasteView
from rota.wire.formats import encode
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.policy import PolicyView
from rota.wire.queues import TenantPage, TenantView
from rota.wire.tokens import AuditPage, NewTokenView, TokenPage, TokenSpec


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


def get_autoscale(asked: Mapping[str, str]) -> Call[AutoscaleView]:
    """How many workers would clear what waits; `target`, `queue`, and the size of a worker."""
    return Call("GET", "/autoscale", AutoscaleView, params=tuple(asked.items()))


def get_waste(asked: Mapping[str, str]) -> Call[WasteView]:
    """What jobs asked for and took; of a `tenant` or `name`, `since` a time."""
    return Call("GET", "/reports/waste", WasteView, params=tuple(asked.items()))


_ALL = (("limit", str(PAGE_ITEMS_MAX)),)
"""There are fewer rules and addresses than a page holds."""


def list_alerts() -> Call[AlertPage]:
    """All rules, and how they stand."""
    return Call("GET", "/alerts", AlertPage, params=_ALL)


def get_alert(name: str) -> Call[AlertView]:
    """One of them."""
    return Call("GET", path_of("alerts", name), AlertView)


def set_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertView]:
    """A rule; what is not given is as its condition has it."""
    return Call("PUT", path_of("alerts", name), AlertView, body=encode(spec))


def try_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertTrial]:
    """What a rule would find now, if it were set."""
    return Call("POST", path_of("alerts", name, "test"), AlertTrial, body=encode(spec), keyed=True)


def delete_alert(name: str) -> Call[None]:
    """A rule is gone, or as it was at first."""
    return Call("DELETE", path_of("alerts", name), type(None))


def silence_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertView]:
    """It tells nobody for a while."""
    return Call("PUT", path_of("alerts", name, "silence"), AlertView, body=encode(spec))


def unsilence_alert(name: str) -> Call[AlertView]:
    """It may tell again."""
    return Call("DELETE", path_of("alerts", name, "silence"), AlertView)


def list_notices() -> Call[NoticePage]:
    """What was told lately."""
    return Call("GET", "/alert-notices", NoticePage, params=_ALL)


def list_channels() -> Call[ChannelPage]:
    """All who are told."""
    return Call("GET", "/alert-channels", ChannelPage, params=_ALL)


def set_channel(name: str, spec: Mapping[str, Any]) -> Call[ChannelView]:
    """Somebody to tell."""
    return Call("PUT", path_of("alert-channels", name), ChannelView, body=encode(spec))


def delete_channel(name: str) -> Call[None]:
    """Told no longer."""
    return Call("DELETE", path_of("alert-channels", name), type(None))


def try_channel(name: str) -> Call[ChannelTrial]:
    """A notice that says it is a test."""
    return Call("POST", path_of("alert-channels", name, "test"), ChannelTrial, keyed=True)
