"""Core to wire: records as they are answered. translate.py is the way in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.api.metrics import worker_status
from rota.api.translate import function_capability
from rota.core.glance import Explanation, QueueGlance, WorkerGlance
from rota.core.inputs import Timing
from rota.core.model import (
    Execution,
    Instant,
    JobRecord,
    JobState,
    Limits,
    Needs,
    Resources,
    RetryPolicy,
    Spec,
)
from rota.core.outcome import (
    Order,
)
from rota.store.protocol import Artifact
from rota.traces.naming import Naming
from rota.wire.executions import ExecutionView
from rota.wire.jobs import (
    CauseView,
    ConcurrencyView,
    DependencyView,
    EstimateView,
    JobView,
    RequirementsView,
    RetryView,
    WhyView,
)
from rota.wire.queues import DepthView, LimitsView, QueueView, RateLimitView
from rota.wire.units import from_instant, number
from rota.wire.workers import AmountView, OrderView, WorkerResources, WorkerView

_EMPTY = msgspec.Raw(b"{}")


def job_view(job: JobRecord) -> JobView:
    """A whole job."""
    spec, life, terms = job.spec, job.life, job.spec.terms
    limit = spec.concurrency
    return JobView(
        job_id=job.id,
        name=terms.name,
        queue=terms.queue,
        tenant=terms.tenant,
        priority=terms.priority,
        status=life.state.value,
        reason=life.reason or None,
        task=msgspec.Raw(spec.task),
        payload=msgspec.Raw(spec.payload) if spec.payload else _EMPTY,
        requirements=requirements_view(terms.needs),
        dependencies=[DependencyView(one.job_id, one.when.value) for one in spec.dependencies],
        run_at=_time(spec.run_at),
        expires_at=_time(spec.expires_at),
        timeout=_seconds(terms.timeout_ms),
        expected_runtime=_seconds(terms.expected_runtime_ms),
        retry=_retry_view(terms.retry),
        semantics=terms.semantics.value,
        concurrency=ConcurrencyView(limit.key, limit.limit) if limit else None,
        preemptible=terms.preemptible,
        labels=dict(spec.labels),
        attempt=life.attempt,
        fence=life.fence,
        losses=life.losses,
        execution_id=life.execution_id,
        worker_id=life.worker_id,
        created_at=from_instant(spec.created_at),
        scheduled_at=from_instant(_scheduled_at(spec.run_at, spec.created_at)),
        schedule_id=None if spec.origin is None else spec.origin.schedule_id,
        trigger_id=None if spec.stimulus is None else spec.stimulus.trigger_id,
        started_at=_time(life.started_at),
        finished_at=_time(life.finished_at),
        progress=life.progress,
        message=life.message or None,
        result=_json(life.result),
        error=_json(life.error),
    )


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
    )


def execution_view(execution: Execution, artifacts: Sequence[Artifact] = ()) -> ExecutionView:
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
        start_time=_time(execution.started_at),
        end_time=_time(execution.ended_at),
        result=_json(execution.result),
        error=_json(execution.error),
        exit_code=execution.exit_code,
        usage=_json(execution.usage),
        artifacts=[{"name": one.name, "size": one.size} for one in artifacts],
    )


def order_view(order: Order, timing: Timing, naming: Naming) -> OrderView:
    """What a worker is told to run."""
    execution, spec = order.execution, order.spec
    return OrderView(
        execution_id=execution.id,
        job_id=execution.job_id,
        attempt=execution.attempt,
        fence=execution.fence,
        name=spec.terms.name,
        queue=spec.terms.queue,
        task=msgspec.Raw(spec.task),
        payload=msgspec.Raw(spec.payload) if spec.payload else _EMPTY,
        requirements=requirements_view(spec.terms.needs),
        timeout=_seconds(spec.terms.timeout_ms),
        lease_expires_in=timing.lease_ttl_ms / 1000,
        scheduled_at=from_instant(_scheduled_at(spec.run_at, spec.created_at)),
        traceparent=naming.for_run(execution.job_id, execution.fence, spec.trace),
        limits=None if order.limits is None else limits_view(order.limits),
    )


def limits_view(limits: Limits | None) -> LimitsView:
    """What a queue's jobs are held to: its own limits, and everybody's where it has none."""
    own = {} if limits is None else msgspec.structs.asdict(limits)
    return LimitsView(**{name: value for name, value in own.items() if value is not None})


def worker_view(glance: WorkerGlance, usage: Mapping[str, Any]) -> WorkerView:
    """A worker and what it is doing."""
    worker = glance.worker
    return WorkerView(
        worker_id=worker.id,
        name=worker.name,
        status=worker_status(glance),  # type: ignore[arg-type]
        capabilities=list(worker.capabilities),
        queues=None if worker.queues is None else list(worker.queues),
        resources=resources_view(worker.capacity, glance.used),
        last_heartbeat=_time(glance.last_seen),
        registered_at=from_instant(worker.registered_at),
        executions=list(glance.executions),
        usage=dict(usage),
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


def queue_view(glance: QueueGlance) -> QueueView:
    """A queue's settings and depth."""
    queue, depth, rate = glance.queue, glance.depth, glance.queue.rate_limit
    return QueueView(
        name=queue.name,
        priority=queue.priority,
        weight=queue.weight,
        max_workers=queue.max_workers,
        rate_limit=RateLimitView(rate.count, number(rate.per_ms)) if rate else None,
        paused=queue.paused,
        depth=depth_view(depth),
        created_at=from_instant(queue.created_at),
        limits=limits_view(queue.limits),
    )


def why_view(job: JobRecord, explanation: Explanation) -> WhyView:
    """What keeps a job from running, the nearest cause first."""
    causes = [CauseView(one.code, one.message, _figures(one.figures)) for one in explanation.causes]
    first = causes[0] if causes else CauseView("free", "nothing keeps it: it starts next", {})
    return WhyView(
        job_id=job.id,
        status=job.life.state.value,
        cause=first,
        others=causes[1:],
        estimated_start=EstimateView(_time(explanation.estimated_start), explanation.method),
    )


def depth_view(depth: Mapping[JobState, int]) -> DepthView:
    """How many jobs are where."""
    return DepthView(
        pending=depth.get(JobState.PENDING, 0),
        queued=depth.get(JobState.QUEUED, 0),
        running=depth.get(JobState.RUNNING, 0),
        cancelling=depth.get(JobState.CANCELLING, 0),
    )


def _figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Instants leave as times that people read; the rest as it is."""
    return {
        name: from_instant(value)
        if name in ("at", "next_at", "until") and isinstance(value, int)
        else value
        for name, value in figures.items()
    }


def _scheduled_at(run_at: Instant | None, created_at: Instant) -> Instant:
    return created_at if run_at is None else run_at


def _time(instant: Instant | None) -> str | None:
    return None if instant is None else from_instant(instant)


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
        "run_at": _time(spec.run_at),
        "expires_at": _time(spec.expires_at),
        "timeout": _seconds(terms.timeout_ms),
        "expected_runtime": _seconds(terms.expected_runtime_ms),
        "retry": msgspec.to_builtins(_retry_view(terms.retry)),
        "semantics": terms.semantics.value,
        "concurrency": {"key": limit.key, "limit": limit.limit} if limit else None,
        "preemptible": terms.preemptible,
        "labels": dict(spec.labels),
        "payload": msgspec.Raw(spec.payload) if spec.payload else _EMPTY,
    }


def _submitted_requirements(spec: Spec) -> Any:
    """Without what the function's name implied: a patch may change the name."""
    view = requirements_view(spec.terms.needs)
    if spec.task == b"null":
        implied = function_capability(spec.terms.name)
        view.capabilities = [one for one in view.capabilities if one != implied]
    return msgspec.to_builtins(view)
