"""Endpoints of tenants: their weights in fair share, their quotas, and what they use."""

from __future__ import annotations

from typing import Any

from rota.api.auth.roles import Permission
from rota.api.convert.queues import depth_view
from rota.api.pagination import PageQuery, page_of
from rota.api.problems import not_found
from rota.api.recall import expect, post
from rota.api.router import Call, NoQuery, Operation
from rota.api.tenant_scope import name_in
from rota.core.commands import AnyInput, Preloaded, PutTenantSettings
from rota.core.info_model import TenantInfo
from rota.core.model import Quota
from rota.core.outcome import TenantAnswer
from rota.wire.queues import QuotaSpec, QuotaView, TenantPage, TenantSpec, TenantView


@Operation(
    "GET",
    "/tenants",
    "List tenants, by name",
    tag="Policy",
    permission=Permission.READ,
    query=PageQuery,
    answer=TenantPage,
    examples={"answer": "tenants"},
)
async def list_tenants(call: Call[None, PageQuery]) -> TenantPage:
    await call.deps.brain.settled()
    items, next_cursor = page_of(_visible_tenants(call), call.query, lambda one: one.tenant.name)
    return TenantPage([tenant_view(one) for one in items], next_cursor)


@Operation(
    "GET",
    "/tenants/{name}",
    "Show a tenant",
    tag="Policy",
    permission=Permission.READ,
    answer=TenantView,
    errors=(404,),
    examples={"answer": "tenant"},
)
async def show_tenant(call: Call[None, NoQuery]) -> TenantView:
    await call.deps.brain.settled()
    return tenant_view(_find(call, call.path["name"]))


@Operation(
    "PUT",
    "/tenants/{name}",
    "Set a tenant's weight and quota",
    tag="Policy",
    permission=Permission.OPERATE,
    body=TenantSpec,
    answer=TenantView,
    description=(
        "Creates the tenant if it does not exist. Settings that are left out get their default."
    ),
    examples={"body": "tenant_spec", "answer": "tenant"},
)
async def put_tenant(call: Call[TenantSpec, NoQuery]) -> TenantView:
    name = name_in(call)
    quota = _quota(call.body.quota)

    def build(preloaded: Preloaded | None) -> AnyInput:
        weight = call.body.weight
        return PutTenantSettings(
            name=name, weight=weight, quota=quota, key=call.key, preloaded=preloaded
        )

    expect(await post(call, build), TenantAnswer)
    return tenant_view(_find(call, name))


def _quota(spec: QuotaSpec | None) -> Quota | None:
    if spec is None or spec == QuotaSpec():
        return None
    cpu = None if spec.cpu is None else round(spec.cpu * 1000)
    memory = None if spec.memory is None else spec.memory.bytes
    return Quota(spec.running, spec.queued, cpu, memory)


def tenant_view(info: TenantInfo) -> TenantView:
    quota = info.tenant.quota or Quota()
    return TenantView(
        name=info.tenant.name,
        weight=info.tenant.weight,
        quota=QuotaView(
            quota.running,
            quota.queued,
            None if quota.cpu_milli is None else quota.cpu_milli / 1000,
            quota.memory,
        ),
        depth=depth_view(info.depth),
        cpu=info.holds.cpu_milli / 1000,
        memory=info.holds.memory,
        share=round(info.share, 6),
        entitlement=round(info.entitlement, 6),
        usage=round(info.used / 3_600_000, 6),
    )


def _visible_tenants(call: Call[Any, Any]) -> list[TenantInfo]:
    """Returns all tenants; a tenant's caller sees only its own."""
    own = call.caller.tenant
    return [one for one in call.deps.brain.tenants() if own in (None, one.tenant.name)]


def _find(call: Call[Any, Any], name: str) -> TenantInfo:
    found = next((one for one in _visible_tenants(call) if one.tenant.name == name), None)
    if found is None:
        raise not_found("tenant", name[:100])
    return found
