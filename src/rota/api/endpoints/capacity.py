"""Endpoints of capacity: workers needed (autoscaling), and resources requested but not used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.api.auth.roles import Permission
from rota.api.convert.jobs import requirements_view
from rota.api.metrics import AUTOSCALE_TARGET_MS
from rota.api.problems import invalid, not_found
from rota.api.router import Call, Operation
from rota.api.tenant_scope import check_tenant
from rota.core.capacity import (
    Demand,
    PlacedShape,
    QueueDemand,
    ShapeBacklog,
    WorkerCount,
    WorkerType,
)
from rota.core.model import Resources, UsageDay
from rota.core.runtime_estimates import DAY_MS, Sketch, UsageHistory, suggested_resources
from rota.wire.capacity import (
    AmountsView,
    AutoscaleView,
    InflowView,
    KindView,
    QueueDemandView,
    ShapeView,
    SizeView,
    SpreadView,
    UsedView,
    WasteItem,
    WasteSums,
    WasteTenant,
    WasteView,
    WorkerCountView,
)
from rota.wire.formats import ByteSize, Duration, SomeTime, from_instant, milli, number, to_instant
from rota.wire.jobs import Amount, Moment
from rota.wire.limits import REPORT_DAYS_MAX, REPORT_ITEMS_MAX

_SIZE = "Of a worker to be added; by default like the workers there are."


class AutoscaleQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Target, queue, and the size of workers to be added."""

    target: Annotated[SomeTime, Meta(examples=["5m"])] = msgspec.field(
        default_factory=lambda: Duration(AUTOSCALE_TARGET_MS)
    )
    queue: Annotated[str, Meta(description="Counts only this queue.")] | None = None
    cpu: Annotated[Amount, Meta(description=_SIZE, examples=[4])] | None = None
    memory: Annotated[ByteSize, Meta(description=_SIZE, examples=["8GiB"])] | None = None
    storage: Annotated[ByteSize, Meta(description=_SIZE, examples=["50GiB"])] | None = None
    gpu: Annotated[Amount, Meta(description=_SIZE, examples=[1])] | None = None


@Operation(
    "GET",
    "/autoscale",
    "Show how many workers are needed",
    tag="Planning",
    permission=Permission.READ_ALL,
    query=AutoscaleQuery,
    answer=AutoscaleView,
    errors=(404,),
    description=(
        "Enough workers to start all waiting jobs within `target`, to continue running jobs, and "
        "to keep up with new ones. Jobs held back by a pause, a limit or a quota do not count. "
        "`workers.needed` is a number of replicas: read it by the path `workers.needed` or "
        "`queues.NAME.workers.needed`."
    ),
    examples={"answer": "autoscale"},
)
async def show_autoscale(call: Call[None, AutoscaleQuery]) -> AutoscaleView:
    query = call.query
    if not query.target.ms:
        raise invalid("target", "must be more than 0")
    await call.deps.brain.settled()
    demand = call.deps.brain.demand(query.target.ms, _size(query))
    queues = demand.queues
    if query.queue is not None:
        queues = [one for one in queues if one.name == query.queue]
        if not queues:
            raise not_found("queue", query.queue[:100])
    return autoscale_view(demand, queues)


def _size(query: AutoscaleQuery) -> Resources | None:
    if query.cpu is None and query.memory is None and query.gpu is None:
        return None
    return Resources(
        cpu_milli=milli(query.cpu or 0),
        memory=0 if query.memory is None else query.memory.bytes,
        storage=0 if query.storage is None else query.storage.bytes,
        gpu_milli=milli(query.gpu or 0),
    )


def autoscale_view(demand: Demand, queues: Sequence[QueueDemand]) -> AutoscaleView:
    """Converts the demand of these queues."""
    is_whole = len(queues) == len(demand.queues)
    shapes = [one.shape for queue in queues for one in queue.shapes]
    return AutoscaleView(
        at=from_instant(demand.at),
        target=number(demand.target_ms),
        jobs=sum(shape.jobs for shape in shapes),
        work=_work(shapes),
        running=sum(shape.running for shape in shapes),
        arrival=_arrival(shapes),
        workers=_worker_count_view(demand.workers if is_whole else queues[0].workers),
        stranded=sum(one.stranded for queue in queues for one in queue.shapes),
        queues={queue.name: _queue(queue, demand.worker_types) for queue in queues},
        kinds=[_worker_type_view(kind) for kind in demand.worker_types],
    )


def _work(shapes: Iterable[ShapeBacklog]) -> float:
    return sum(shape.work for shape in shapes) / 1000


def _arrival(shapes: Sequence[ShapeBacklog]) -> InflowView:
    jobs = sum(shape.jobs_per_s for shape in shapes)
    work = sum(shape.work_per_s for shape in shapes)
    return InflowView(round(jobs, 3), round(work, 3))


def _worker_count_view(count: WorkerCount) -> WorkerCountView:
    return WorkerCountView(count.online, count.idle, count.needed, count.add, count.remove)


def _queue(queue: QueueDemand, kinds: Sequence[WorkerType]) -> QueueDemandView:
    shapes = [one.shape for one in queue.shapes]
    return QueueDemandView(
        jobs=sum(shape.jobs for shape in shapes),
        work=_work(shapes),
        running=sum(shape.running for shape in shapes),
        arrival=_arrival(shapes),
        workers=_worker_count_view(queue.workers),
        stranded=sum(one.stranded for one in queue.shapes),
        paused=queue.paused,
        shapes=[_shape(one, kinds) for one in queue.shapes],
    )


def _shape(placed: PlacedShape, kinds: Sequence[WorkerType]) -> ShapeView:
    shape, kind = placed.shape, placed.worker_type
    return ShapeView(
        requirements=requirements_view(shape.needs),
        jobs=shape.jobs,
        work=_work([shape]),
        running=shape.running,
        arrival=_arrival([shape]),
        slots=round(shape.slots, 3),
        per_worker=None if kind is None else placed.per_worker,
        kind=next((n for n, one in enumerate(kinds) if one is kind), None),
    )


def _worker_type_view(kind: WorkerType) -> KindView:
    has, machine = kind.capacity, kind.machine
    return KindView(
        size=SizeView(
            cpu=number(has.cpu_milli),
            memory=has.memory,
            storage=has.storage,
            gpu=number(has.gpu_milli),
            custom={name: number(amount) for name, amount in has.custom},
        ),
        capabilities=list(machine.capabilities),
        queues=None if machine.queues is None else list(machine.queues),
        only=list(machine.only),
        workers=_worker_count_view(kind.workers),
    )


_HOUR_MS = 3_600_000
_ITEMS = 100


_SINCE = "Counts from the start of this day, at most two weeks ago; by default seven days."


class WasteQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the report, and its start."""

    tenant: str | None = None
    name: str | None = None
    since: Annotated[Moment, Meta(description=_SINCE, examples=["2026-01-05T00:00:00Z"])] | None = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=REPORT_ITEMS_MAX)] = _ITEMS


@Operation(
    "GET",
    "/reports/waste",
    "Compare requested with used resources",
    tag="Planning",
    permission=Permission.READ,
    query=WasteQuery,
    answer=WasteView,
    description=(
        "By job name, the largest waste first: sums over whole days, and quantiles of the last "
        "few hundred executions whose workers measured them. `suggestion` is what to request "
        "instead."
    ),
    examples={"answer": "waste"},
)
async def show_waste(call: Call[None, WasteQuery]) -> WasteView:
    """Compares requested with used resources by job name, the largest waste first."""
    query, brain = call.query, call.deps.brain
    check_tenant(call, query.tenant)
    tenant = call.caller.tenant or query.tenant
    since = _since(query, brain.clock.now())
    await brain.settled()
    items = [
        _item(tenant_, name, usage, usage.since(since))
        for (tenant_, name), usage in brain.usages()
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


def _item(tenant: str, name: str, usage: UsageHistory, sums: UsageDay) -> WasteItem:
    suggestion = suggested_resources(usage)
    return WasteItem(
        tenant=tenant,
        name=name,
        sums=_sums(sums),
        asked=AmountsView(number(usage.asked.cpu_milli), usage.asked.memory),
        used=UsedView(
            cpu=_spread(usage.cpu, 1000),
            memory=_spread(usage.memory, 1),
            runtime=_spread(usage.runtime, 1000),
        ),
        suggestion=None
        if suggestion is None
        else AmountsView(number(suggestion.cpu_milli), suggestion.memory),
    )


def _spread(sketch: Sketch, unit: int) -> SpreadView:
    p50, p95 = sketch.quantile(0.5), sketch.quantile(0.95)
    return SpreadView(p50 / unit, p95 / unit, sketch.largest / unit)


def _sums(sums: UsageDay) -> WasteSums:
    cpu_asked, cpu_used = sums.cpu_asked / _HOUR_MS, sums.cpu_used / _HOUR_MS
    memory_asked = sums.memory_asked / 1024 / _HOUR_MS
    memory_used = sums.memory_used / 1024 / _HOUR_MS
    figures = (
        (cpu_asked, cpu_used, max(0.0, cpu_asked - cpu_used)),
        (memory_asked, memory_used, max(0.0, memory_asked - memory_used)),
    )
    return WasteSums(sums.runs, *(round(one, 6) for kind in figures for one in kind))


def _total(sums: Iterable[WasteSums]) -> WasteSums:
    """Sums up; one job's waste is not balanced by another that used more than it requested."""

    def add(one: WasteSums, other: WasteSums) -> WasteSums:
        pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
        runs, *hours = (a + b for a, b in pairs)
        return WasteSums(runs, *(round(hour, 6) for hour in hours))

    return reduce(add, sums, WasteSums(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
