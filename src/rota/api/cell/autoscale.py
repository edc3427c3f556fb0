"""How many workers would clear what waits: for autoscalers and those who plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.api.customs.views import requirements_view
from rota.api.door.roles import Permission
from rota.api.metrics import AUTOSCALE_TARGET_MS
from rota.api.problems import invalid, not_found
from rota.api.routes import Call, Operation
from rota.core.capacity import (
    Demand,
    PlacedShape,
    QueueDemand,
    ShapeBacklog,
    WorkerCount,
    WorkerType,
)
from rota.core.model import Resources
from rota.wire.autoscale import (
    AutoscaleView,
    InflowView,
    KindView,
    QueueDemandView,
    ShapeView,
    SizeView,
    WorkerCountView,
)
from rota.wire.jobs import Amount
from rota.wire.units import ByteSize, Duration, SomeTime, from_instant, milli, number

_SIZE = "Of a worker that would be added; without these: such as there are."


class AutoscaleQuery(msgspec.Struct, forbid_unknown_fields=True):
    """For which target, which queue, and which workers would be added."""

    target: Annotated[SomeTime, Meta(examples=["5m"])] = msgspec.field(
        default_factory=lambda: Duration(AUTOSCALE_TARGET_MS)
    )
    queue: Annotated[str, Meta(description="The figures are those of this queue alone.")] | None = (
        None
    )
    cpu: Annotated[Amount, Meta(description=_SIZE, examples=[4])] | None = None
    memory: Annotated[ByteSize, Meta(description=_SIZE, examples=["8GiB"])] | None = None
    storage: Annotated[ByteSize, Meta(description=_SIZE, examples=["50GiB"])] | None = None
    gpu: Annotated[Amount, Meta(description=_SIZE, examples=[1])] | None = None


@Operation(
    "GET",
    "/autoscale",
    "How many workers would clear what waits",
    tag="Planning",
    permission=Permission.READ_ALL,
    query=AutoscaleQuery,
    answer=AutoscaleView,
    errors=(404,),
    description=(
        "Enough workers to run all that waits for one within `target`, to go on with "
        "what runs, and to keep up with what comes. What a pause, a limit or a quota holds back "
        "asks for nobody. `workers.needed` is a number of replicas: read it by the path "
        "`workers.needed` or `queues.NAME.workers.needed`."
    ),
    examples={"answer": "autoscale"},
)
async def show_autoscale(call: Call[None, AutoscaleQuery]) -> AutoscaleView:
    """What it takes, as of now."""
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
    """As it is answered, for these queues."""
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


def _worker_count_view(crew: WorkerCount) -> WorkerCountView:
    return WorkerCountView(crew.online, crew.idle, crew.needed, crew.add, crew.remove)


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


def _shape(fitted: PlacedShape, kinds: Sequence[WorkerType]) -> ShapeView:
    shape, kind = fitted.shape, fitted.worker_type
    return ShapeView(
        requirements=requirements_view(shape.needs),
        jobs=shape.jobs,
        work=_work([shape]),
        running=shape.running,
        arrival=_arrival([shape]),
        slots=round(shape.slots, 3),
        per_worker=None if kind is None else fitted.per_worker,
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
