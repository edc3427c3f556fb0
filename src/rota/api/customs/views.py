"""Core to wire: records as they are answered. translate.py is the way in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from rota.api.customs.banding import add_group, place_view, rank_view, submitted_group
from rota.api.customs.deadlines import ended_deadline
from rota.api.customs.placing import affinity_view
from rota.api.customs.translate import function_capability
from rota.api.metrics import worker_status
from rota.core.commands import Timing
from rota.core.info_model import QueueInfo, WorkerInfo
from rota.core.model import (
    Execution,
    Instant,
    JobLimits,
    JobRecord,
    JobState,
    Needs,
    Resources,
    RetryPolicy,
    Spec,
    Terms,
)
from rota.core.outcome import (
    Order,
)
from rota.store.files.artifacts import Output
from rota.traces.spans import TracePropagator
from rota.wire.executions import ArtifactView, ExecutionView
from rota.wire.jobs import (
    ConcurrencyView,
    DependencyView,
    JobView,
    RequirementsView,
    RetryView,
)
from rota.wire.queues import DepthView, LimitsView, QueueView, RateLimitView
from rota.wire.tasks import Task, implied_capabilities
from rota.wire.units import from_instant, from_instant_or_none, number
from rota.wire.workers import AmountView, OrderView, WorkerResources, WorkerView

_read_task = msgspec.json.Decoder(Task).decode
_EMPTY_OBJECT = msgspec.Raw(b"{}")


def job_view(job: JobRecord) -> JobView:
    """A whole job."""
    spec, life, terms = job.spec, job.life, job.spec.terms
    view = JobView(
        job_id=job.id,
        name=terms.name,
        queue=terms.queue,
        tenant=terms.tenant,
        priority=terms.priority,
        status=life.state.value,
        reason=life.reason or None,
        task=msgspec.Raw(spec.task),
        payload=msgspec.Raw(spec.payload) if spec.payload else _EMPTY_OBJECT,
        requirements=requirements_view(terms.needs),
        dependencies=[DependencyView(one.job_id, one.when.value) for one in spec.dependencies],
        run_at=from_instant_or_none(spec.run_at),
        expires_at=from_instant_or_none(spec.expires_at),
        timeout=_seconds(terms.timeout_ms),
        expected_runtime=_seconds(terms.expected_runtime_ms),
        retry=_retry_view(terms.retry),
        semantics=terms.semantics.value,
        concurrency=_concurrency_view(spec),
        preemptible=terms.preemptible,
        labels=dict(spec.labels),
        attempt=life.attempt,
        fence=life.fence,
        losses=life.losses,
        execution_id=life.execution_id,
        worker_id=life.worker_id,
        created_at=from_instant(spec.created_at),
        scheduled_at=from_instant(_scheduled_at(spec.run_at, spec.created_at)),
        started_at=from_instant_or_none(life.started_at),
        finished_at=from_instant_or_none(life.finished_at),
        progress=life.progress,
        message=life.message or None,
        result=_json(life.result),
        error=_json(life.error),
    )
    return _with_origin(view, job)


def _with_origin(view: JobView, job: JobRecord) -> JobView:
    """What made the job, where that was no person, and with whom and where it belongs."""
    spec = job.spec
    view.affinity = affinity_view(spec.terms.needs.affinity)
    if spec.origin is not None:
        view.schedule_id = spec.origin.schedule_id
    if spec.trigger_origin is not None:
        view.trigger_id = spec.trigger_origin.trigger_id
    if spec.finish_by is not None:
        view.finish_by, view.deadline = from_instant_or_none(spec.finish_by), ended_deadline(job)
    return view if spec.group is None else add_group(view, job)


def _concurrency_view(spec: Spec) -> ConcurrencyView | None:
    key = spec.concurrency
    return None if key is None else ConcurrencyView(key.key, key.limit)


def requirements_view(needs: Needs) -> RequirementsView:
    """What a job needs, in plain numbers."""
    asked = needs.resources
    return RequirementsView(
        cpu=number(asked.cpu_milli),
        memory=asked.memory,
        storage=asked.storage,
        gpu=number(asked.gpu_milli),
        custom={name: number(amount) for name, amount in asked.custom},
        capabilities=list(needs.capabilities),
    )


def _retry_view(policy: RetryPolicy) -> RetryView:
    return RetryView(
        max_attempts=policy.max_attempts,
        backoff=policy.backoff.value,
        delay=number(policy.delay_ms),
        factor=policy.factor,
        max_delay=number(policy.max_delay_ms),
        jitter=policy.jitter,
        memory_factor=policy.memory_factor,
        memory_max=policy.memory_max,
    )


def artifact_view(output: Output) -> ArtifactView:
    """An output file."""
    return ArtifactView(output.name, output.size, output.sha256)


def execution_view(execution: Execution, artifacts: Sequence[Output] = ()) -> ExecutionView:
    """One try of a job."""
    return ExecutionView(
        execution_id=execution.id,
        job_id=execution.job_id,
        worker_id=execution.worker_id,
        attempt=execution.attempt,
        fence=execution.fence,
        status=execution.state.value,
        reason=execution.reason or None,
        claimed_at=from_instant(execution.claimed_at),
        start_time=from_instant_or_none(execution.started_at),
        end_time=from_instant_or_none(execution.ended_at),
        result=_json(execution.result),
        error=_json(execution.error),
        exit_code=execution.exit_code,
        usage=_json(execution.usage),
        artifacts=[structs.asdict(artifact_view(one)) for one in artifacts],
        memory=execution.memory,
        behind=execution.behind,
    )


def order_views(
    orders: Sequence[Order], timing: Timing, naming: TracePropagator
) -> list[OrderView]:
    """What a worker is told to run."""
    views: list[OrderView] = []
    forms: dict[int, OrderView] = {}
    last = None
    for order in orders:
        spec = order.spec
        # Jobs that came together mostly read the same, and follow each other here.
        if last is not None and _has_same_order(spec, last):
            like = views[-1]
        else:
            form = forms.get(id(spec.terms))
            if form is None:
                form = forms[id(spec.terms)] = _order_template(spec.terms, timing)
            like, last = _with_spec(form, spec), spec
        views.append(_order_view(like, order, naming))
    return views


def _has_same_order(spec: Spec, other: Spec) -> bool:
    """Whether the orders of both differ by no more than their executions."""
    return (
        spec.terms is other.terms
        and spec.task == other.task
        and spec.payload == other.payload
        and spec.created_at == other.created_at
        and spec.run_at == other.run_at
    )


def _order_template(terms: Terms, timing: Timing) -> OrderView:
    """What is the same in all orders of jobs with the same terms."""
    return OrderView(
        execution_id="",
        job_id="",
        attempt=0,
        fence=0,
        name=terms.name,
        queue=terms.queue,
        task=_EMPTY_OBJECT,
        payload=_EMPTY_OBJECT,
        requirements=requirements_view(terms.needs),
        timeout=_seconds(terms.timeout_ms),
        lease_expires_in=timing.lease_ttl_ms / 1000,
        scheduled_at="",
    )


def _with_spec(form: OrderView, spec: Spec) -> OrderView:
    return structs.replace(
        form,
        task=msgspec.Raw(spec.task),
        payload=msgspec.Raw(spec.payload) if spec.payload else _EMPTY_OBJECT,
        scheduled_at=from_instant(_scheduled_at(spec.run_at, spec.created_at)),
    )


def _order_view(like: OrderView, order: Order, naming: TracePropagator) -> OrderView:
    execution, company = order.execution, order.group
    return structs.replace(
        like,
        execution_id=execution.id,
        job_id=execution.job_id,
        attempt=execution.attempt,
        fence=execution.fence,
        traceparent=naming.for_execution(execution.job_id, execution.fence, order.spec.trace),
        limits=None if order.limits is None else limits_view(order.limits),
        array=None if company is None else place_view(company),
        gang=None if company is None else rank_view(company),
        behind=execution.behind if order.is_prefetched else None,
    )


def limits_view(limits: JobLimits | None) -> LimitsView:
    """What a queue's jobs are held to: its own limits, and everybody's where it has none."""
    own = {} if limits is None else msgspec.structs.asdict(limits)
    return LimitsView(**{name: value for name, value in own.items() if value is not None})


def worker_view(glance: WorkerInfo, usage: Mapping[str, Any]) -> WorkerView:
    """A worker and what it is doing."""
    worker = glance.worker
    return WorkerView(
        worker_id=worker.id,
        name=worker.name,
        status=worker_status(glance),  # type: ignore[arg-type]  # gives the same words
        capabilities=list(worker.capabilities),
        queues=None if worker.queues is None else list(worker.queues),
        resources=resources_view(worker.capacity, glance.used),
        last_heartbeat=from_instant_or_none(glance.last_seen),
        registered_at=from_instant(worker.registered_at),
        executions=list(glance.executions),
        usage=dict(usage),
        labels=dict(worker.labels),
        only=list(worker.only),
    )


def resources_view(capacity: Resources, used: Resources) -> WorkerResources:
    """What there is, and how much of it is held."""
    held = dict(used.custom)
    return WorkerResources(
        cpu=AmountView(number(capacity.cpu_milli), number(used.cpu_milli)),
        memory=AmountView(capacity.memory, used.memory),
        storage=AmountView(capacity.storage, used.storage),
        gpu=AmountView(number(capacity.gpu_milli), number(used.gpu_milli)),
        custom={
            name: AmountView(number(amount), number(held.get(name, 0)))
            for name, amount in capacity.custom
        },
    )


def queue_view(glance: QueueInfo, rate: float | None = None) -> QueueView:
    """A queue's settings and depth, and how fast it goes where that is known."""
    queue, depth, most = glance.queue, glance.depth, glance.queue.rate_limit
    return QueueView(
        name=queue.name,
        priority=queue.priority,
        weight=queue.weight,
        max_workers=queue.max_workers,
        rate_limit=RateLimitView(most.count, number(most.per_ms)) if most else None,
        paused=queue.paused,
        depth=depth_view(depth),
        created_at=from_instant(queue.created_at),
        limits=limits_view(queue.limits),
        rate=rate,
    )


def depth_view(depth: Mapping[JobState, int]) -> DepthView:
    """How many jobs are where."""
    return DepthView(
        pending=depth.get(JobState.PENDING, 0),
        queued=depth.get(JobState.QUEUED, 0),
        running=depth.get(JobState.RUNNING, 0),
        cancelling=depth.get(JobState.CANCELLING, 0),
    )


def _scheduled_at(run_at: Instant | None, created_at: Instant) -> Instant:
    return created_at if run_at is None else run_at


def _seconds(ms: int | None) -> int | float | None:
    return None if ms is None else number(ms)


def _json(data: bytes | None) -> Any:
    return None if data is None else msgspec.Raw(data)


def submitted_form(job: JobRecord) -> dict[str, Any]:
    """A job as it would be submitted again: what a patch is merged into."""
    spec, terms, limit = job.spec, job.spec.terms, job.spec.concurrency
    return {
        "name": terms.name,
        "task": msgspec.json.decode(spec.task),
        "queue": terms.queue,
        "tenant": terms.tenant,
        "priority": terms.priority,
        "requirements": _submitted_requirements(job.spec),
        "dependencies": [
            {"job_id": one.job_id, "when": one.when.value} for one in spec.dependencies
        ],
        "run_at": from_instant_or_none(spec.run_at),
        "expires_at": from_instant_or_none(spec.expires_at),
        "timeout": _seconds(terms.timeout_ms),
        "expected_runtime": _seconds(terms.expected_runtime_ms),
        "retry": msgspec.to_builtins(_retry_view(terms.retry)),
        "semantics": terms.semantics.value,
        "concurrency": {"key": limit.key, "limit": limit.limit} if limit else None,
        "preemptible": terms.preemptible,
        "labels": dict(spec.labels),
        "affinity": msgspec.to_builtins(affinity_view(terms.needs.affinity)),
        "payload": msgspec.Raw(spec.payload) if spec.payload else _EMPTY_OBJECT,
        "finish_by": from_instant_or_none(spec.finish_by),
        **submitted_group(job),
    }


def _submitted_requirements(spec: Spec) -> Any:
    """Without what the function's name or the kind of task implied: a patch may change those."""
    view = requirements_view(spec.terms.needs)
    if spec.task == b"null":
        implied: tuple[str, ...] = (function_capability(spec.terms.name),)
    else:
        implied = implied_capabilities(_read_task(spec.task))
    view.capabilities = [one for one in view.capabilities if one not in implied]
    return msgspec.to_builtins(view)
