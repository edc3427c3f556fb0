"""Makes the order that a policy asks for, with what the tenants have used so far."""

from __future__ import annotations

from rota.core.model import Instant
from rota.core.order.fair import FairOrder
from rota.core.order.orders import OrderPolicy
from rota.core.order.party import EVERY_CLASS
from rota.core.order.plain import StrictOrder
from rota.core.order.tenants import Tenants
from rota.core.records.policy import OrderKind, Policy


def make_order(policy: Policy, tenants: Tenants, now: Instant, queues_kept: int) -> OrderPolicy:
    """The order, nobody waiting in it yet."""
    if policy.order in (OrderKind.PRIORITY, OrderKind.FIFO):
        return StrictOrder(policy, {cell.tenant.name: EVERY_CLASS for cell in tenants.limited()})
    used: dict[str, float] = {}
    for cell in tenants.entries.values():
        if cell.tenant.used and policy.order is OrderKind.FAIR:
            faded = 0.5 ** ((now - cell.tenant.used_at) / policy.half_life_ms)
            used[cell.tenant.name] = cell.tenant.used * faded
    return FairOrder(policy, now, tenants.weight_of, used, queues_kept)
