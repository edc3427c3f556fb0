"""Calls about tokens, the audit log, policy, tenants, capacity and alerts, as values; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from rota.wire.quarantine import QuarantinePage, RepairSpec, RepairView
from rota.wire.queues import TenantPage, TenantView
from rota.wire.tokens import AuditPage, NewTokenView, TokenPage, TokenSpec


def list_tokens(*, limit: int | None = None, cursor: str | None = None) -> Call[TokenPage]:
    return Call("GET", "/tokens", TokenPage, params=params_of(limit=limit, cursor=cursor))


def create_token(spec: TokenSpec) -> Call[NewTokenView]:
    return Call("POST", "/tokens", NewTokenView, body=encode(spec), keyed=True)


def revoke_token(token_id: str) -> Call[None]:
    return Call("DELETE", path_of("tokens", token_id), type(None))


def list_audit(**filters: str | int | None) -> Call[AuditPage]:
    """Lists the audit log, newest first; one page. Filters: token_id, target, after, before, limit,
    cursor.
    """
    return Call("GET", "/audit", AuditPage, params=params_of(**filters))


def list_quarantine(*, limit: int | None = None, cursor: str | None = None) -> Call[QuarantinePage]:
    """Lists jobs whose changes the tables refuse."""
    params = params_of(limit=limit, cursor=cursor)
    return Call("GET", "/quarantine", QuarantinePage, params=params)


def repair_quarantine(job_ids: Sequence[str] = ()) -> Call[RepairView]:
    """Writes to the tables what they refused before, of these jobs, or of all."""
    body = encode(RepairSpec(job_ids=list(job_ids)))
    return Call("POST", "/quarantine/repair", RepairView, body=body, keyed=True)


def get_policy() -> Call[PolicyView]:
    return Call("GET", "/policy", PolicyView)


def set_policy(settings: Mapping[str, Any]) -> Call[PolicyView]:
    """Sets the policy; settings that are not given have the value of the preset."""
    return Call("PUT", "/policy", PolicyView, body=encode(settings), keyed=True)


def list_tenants(*, limit: int | None = None, cursor: str | None = None) -> Call[TenantPage]:
    return Call("GET", "/tenants", TenantPage, params=params_of(limit=limit, cursor=cursor))


def get_tenant(name: str) -> Call[TenantView]:
    return Call("GET", path_of("tenants", name), TenantView)


def set_tenant(name: str, settings: Mapping[str, Any]) -> Call[TenantView]:
    """Sets a tenant's weight and quota; settings that are not given return to their defaults."""
    return Call("PUT", path_of("tenants", name), TenantView, body=encode(settings), keyed=True)


def get_autoscale(asked: Mapping[str, str]) -> Call[AutoscaleView]:
    """Asks how many workers would clear the backlog; `target`, `queue`, and the size of
    a worker.
    """
    return Call("GET", "/autoscale", AutoscaleView, params=tuple(asked.items()))


def get_waste(asked: Mapping[str, str]) -> Call[WasteView]:
    """Asks how much jobs requested and used; by `tenant` or `name`, `since` a time."""
    return Call("GET", "/reports/waste", WasteView, params=tuple(asked.items()))


_ALL = (("limit", str(PAGE_ITEMS_MAX)),)
"""One page holds all rules and channels."""


def list_alerts() -> Call[AlertPage]:
    return Call("GET", "/alerts", AlertPage, params=_ALL)


def get_alert(name: str) -> Call[AlertView]:
    return Call("GET", path_of("alerts", name), AlertView)


def set_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertView]:
    """Sets an alert rule; settings that are not given have the condition's defaults."""
    return Call("PUT", path_of("alerts", name), AlertView, body=encode(spec))


def try_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertTrial]:
    """Evaluates a rule now, without setting it."""
    return Call("POST", path_of("alerts", name, "test"), AlertTrial, body=encode(spec), keyed=True)


def delete_alert(name: str) -> Call[None]:
    """Deletes a rule, or resets a built-in one."""
    return Call("DELETE", path_of("alerts", name), type(None))


def silence_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertView]:
    """Silences a rule for a while."""
    return Call("PUT", path_of("alerts", name, "silence"), AlertView, body=encode(spec))


def unsilence_alert(name: str) -> Call[AlertView]:
    """Ends the silence of a rule."""
    return Call("DELETE", path_of("alerts", name, "silence"), AlertView)


def list_notices() -> Call[NoticePage]:
    """Lists recent notifications."""
    return Call("GET", "/alert-notices", NoticePage, params=_ALL)


def list_channels() -> Call[ChannelPage]:
    return Call("GET", "/alert-channels", ChannelPage, params=_ALL)


def set_channel(name: str, spec: Mapping[str, Any]) -> Call[ChannelView]:
    return Call("PUT", path_of("alert-channels", name), ChannelView, body=encode(spec))


def delete_channel(name: str) -> Call[None]:
    return Call("DELETE", path_of("alert-channels", name), type(None))


def try_channel(name: str) -> Call[ChannelTrial]:
    """Sends a test notification."""
    return Call("POST", path_of("alert-channels", name, "test"), ChannelTrial, keyed=True)
