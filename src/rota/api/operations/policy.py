"""The calls about the policy and the tenants."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api.cell import policy
from rota.api.customs.paging import PageQuery
from rota.api.document import examples
from rota.api.door.roles import Rule
from rota.api.routes import Operation
from rota.wire.policy import PolicySpec, PolicyView
from rota.wire.tenants import TenantPage, TenantSpec, TenantView

POLICY: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/policy",
        summary="Show the policy",
        handle=policy.show_policy,
        tag="Policy",
        rule=Rule.READ,
        answer=PolicyView,
        examples={"answer": examples.POLICY},
    ),
    Operation(
        method="PUT",
        path="/policy",
        summary="Set the policy",
        handle=policy.put_policy,
        tag="Policy",
        rule=Rule.OPERATE,
        body=PolicySpec,
        answer=PolicyView,
        description="What is left out is as in the preset. It holds from the next decision on.",
        examples={"body": {"preset": "default", "beta": 3}, "answer": examples.POLICY},
    ),
    Operation(
        method="GET",
        path="/tenants",
        summary="List tenants, by name",
        handle=policy.list_tenants,
        tag="Policy",
        rule=Rule.READ,
        query=PageQuery,
        answer=TenantPage,
        examples={"answer": examples.TENANTS},
    ),
    Operation(
        method="GET",
        path="/tenants/{name}",
        summary="Show a tenant",
        handle=policy.show_tenant,
        tag="Policy",
        rule=Rule.READ,
        answer=TenantView,
        errors=(404,),
        examples={"answer": examples.TENANT},
    ),
    Operation(
        method="PUT",
        path="/tenants/{name}",
        summary="Set a tenant's weight and quota",
        handle=policy.put_tenant,
        tag="Policy",
        rule=Rule.OPERATE,
        body=TenantSpec,
        answer=TenantView,
        description="Makes the tenant if there is none. What is left out goes to its default.",
        examples={"body": examples.TENANT_SPEC, "answer": examples.TENANT},
    ),
)
