"""Reports: what jobs asked for against what they took."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.api.door.roles import Permission
from rota.api.lookup import check_tenant
from rota.api.routes import Call, Operation
from rota.core.model import UsageDay
from rota.core.runtime_estimates import DAY_MS, Sketch, UsageHistory, suggested_resources
from rota.wire.jobs import Moment
from rota.wire.limits import REPORT_DAYS_MAX, REPORT_ITEMS_MAX
from rota.wire.reports import (
    AmountsView,
    SpreadView,
    UsedView,
    WasteItem,
    WasteSums,
    WasteTenant,
    WasteView,
)
from rota.wire.units import from_instant, number, to_instant

_HOUR_MS = 3_600_000
_ITEMS = 100


_SINCE = "The day of this time counts whole. At most two weeks back; else the last seven days."


class WasteQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whose jobs, and since when."""

    tenant: str | None = None
    name: str | None = None
    since: Annotated[Moment, Meta(description=_SINCE, examples=["2026-01-05T00:00:00Z"])] | None = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=REPORT_ITEMS_MAX)] = _ITEMS


@Operation(
    "GET",
    "/reports/waste",
    "What jobs asked for and what they took",
    tag="Planning",
    permission=Permission.READ,
    query=WasteQuery,
    answer=WasteView,
    description=(
        "By name, the most wasteful first: sums over whole days, and quantiles of "
        "the last few hundred runs whose workers measured them. `suggestion` is what to ask for "
        "instead."
    ),
    examples={"answer": "waste"},
)
async def show_waste(call: Call[None, WasteQuery]) -> WasteView:
    """By name, the most wasteful first."""
    query, brain = call.query, call.deps.brain
    check_tenant(call, query.tenant)
    tenant = call.caller.tenant or query.tenant
    since = _since(query, brain.clock.now())
    await brain.settled()
    items = [
        _item(tenant_, name, account, account.since(since))
        for (tenant_, name), account in brain.usages()
        if tenant in (None, tenant_) and query.name in (None, name)
    ]
    items = sorted((one for one in items if one.sums.runs), key=_wasted, reverse=True)
    by_tenant: dict[str, list[WasteSums]] = {}
    for one in items:
        by_tenant.setdefault(one.tenant, []).append(one.sums)
    tenants = [WasteTenant(name, _total(sums)) for name, sums in by_tenant.items()]
    return WasteView(
        since=from_instant(since),
        sums=_total(one.sums for one in items),
        tenants=sorted(tenants, key=lambda one: one.sums.cpu_hours_wasted, reverse=True),
        items=items[: query.limit],
    )


def _since(query: WasteQuery, now: int) -> int:
    first = (now // DAY_MS - REPORT_DAYS_MAX + 1) * DAY_MS
    asked = now - 7 * DAY_MS if query.since is None else to_instant(query.since)
    return max(first, asked // DAY_MS * DAY_MS)


def _wasted(item: WasteItem) -> tuple[float, float, str, str]:
    sums = item.sums
    return sums.cpu_hours_wasted, sums.memory_gib_hours_wasted, item.tenant, item.name


def _item(tenant: str, name: str, account: UsageHistory, day: UsageDay) -> WasteItem:
    better = suggested_resources(account)
    return WasteItem(
        tenant=tenant,
        name=name,
        sums=_sums(day),
        asked=AmountsView(number(account.asked.cpu_milli), account.asked.memory),
        used=UsedView(
            cpu=_spread(account.cpu, 1000),
            memory=_spread(account.memory, 1),
            runtime=_spread(account.runtime, 1000),
        ),
        suggestion=None if better is None else AmountsView(number(better.cpu_milli), better.memory),
    )


def _spread(sketch: Sketch, unit: int) -> SpreadView:
    p50, p95 = sketch.quantile(0.5), sketch.quantile(0.95)
    return SpreadView(p50 / unit, p95 / unit, sketch.largest / unit)


def _sums(day: UsageDay) -> WasteSums:
    cpu_asked, cpu_used = day.cpu_asked / _HOUR_MS, day.cpu_used / _HOUR_MS
    memory_asked = day.memory_asked / 1024 / _HOUR_MS
    memory_used = day.memory_used / 1024 / _HOUR_MS
    figures = (
        (cpu_asked, cpu_used, max(0.0, cpu_asked - cpu_used)),
        (memory_asked, memory_used, max(0.0, memory_asked - memory_used)),
    )
    return WasteSums(day.runs, *(round(one, 6) for kind in figures for one in kind))


def _total(sums: Iterable[WasteSums]) -> WasteSums:
    """The waste of one is not made good by the thrift of another."""

    def add(one: WasteSums, other: WasteSums) -> WasteSums:
        pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
        runs, *hours = (a + b for a, b in pairs)
        return WasteSums(runs, *(round(hour, 6) for hour in hours))

    return reduce(add, sums, WasteSums(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
