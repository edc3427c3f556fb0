"""Conversion of workers' reports to commands, and of orders and workers to answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from rota.api.convert.groups import place_view, rank_view
from rota.api.convert.jobs import (
    EMPTY_OBJECT,
    free_json,
    requirements_view,
    scheduled_at,
    seconds_or_none,
)
from rota.api.convert.queues import limits_view
from rota.api.metrics import worker_status
from rota.api.problems import invalid
from rota.core.commands import Completion, Running, Timing
from rota.core.info_model import WorkerInfo
from rota.core.model import ExecutionId, ExecutionState, Resources, Spec, Terms
from rota.core.outcome import Order
from rota.core.runtime_estimates import MeasuredUsage
from rota.traces.spans import TracePropagator
from rota.wire.formats import encode, from_instant, from_instant_or_none, number
from rota.wire.limits import MESSAGE_CHARS_MAX, RESULT_BYTES_MAX, TASK_BYTES_MAX
from rota.wire.problems import ProblemError
from rota.wire.workers import (
    NOTHING,
    AmountView,
    CompletedReport,
    CompletionSpec,
    OrderView,
    RunningReport,
    WorkerResources,
    WorkerView,
)

_NULL = b"null"
_X = ExecutionState
_ENDED = {state.value: state for state in (_X.SUCCEEDED, _X.FAILED, _X.TIMED_OUT, _X.CANCELLED)}
_ENDED["returned"] = _X.PREEMPTED
_BARE = {
    status: Completion(execution_id=ExecutionId(""), fence=0, state=state)
    for status, state in _ENDED.items()
}
"""Completions of most reports, without execution and fence."""


def completion_of(execution_id: str, report: CompletionSpec, where: str = "") -> Completion:
    """Converts the report of how an execution ended."""
    if _is_bare(report):
        bare = _BARE[report.status]
        return replace(bare, execution_id=ExecutionId(execution_id), fence=report.fence)
    usage = encode(report.usage) if report.usage is not None else None
    if usage is not None and len(usage) > TASK_BYTES_MAX:
        raise invalid(where + "usage", f"larger than {TASK_BYTES_MAX} bytes as JSON")
    return Completion(
        execution_id=ExecutionId(execution_id),
        fence=report.fence,
        state=_ENDED[report.status],
        result=_free_value(report.result, where, "result"),
        error=_free_value(report.error, where, "error"),
        exit_code=report.exit_code,
        usage=usage,
        retryable=report.retryable,
        delay_ms=None if report.retry_after is None else report.retry_after.ms,
        used=used_of(report),
    )


def _is_bare(report: CompletionSpec) -> bool:
    """Whether it says only how the execution ended."""
    return (
        report.result == NOTHING
        and report.error == NOTHING
        and report.exit_code is None
        and report.usage is None
        and report.retryable
        and report.retry_after is None
    )


def completions_of(reports: Sequence[CompletedReport]) -> tuple[Completion, ...]:
    """Converts the reports in a lease call."""
    try:
        return tuple([completion_of(report.execution_id, report) for report in reports])
    except ProblemError:
        # Only now with paths in the messages: most calls are not refused.
        for number, report in enumerate(reports):
            completion_of(report.execution_id, report, f"completed[{number}].")
        raise


def _free_value(raw: msgspec.Raw, where: str, name: str) -> bytes | None:
    if raw is NOTHING:
        return None
    data = bytes(raw)
    return None if data == _NULL else free_json(data, where + name, RESULT_BYTES_MAX)


def running_of(reports: Sequence[str | RunningReport] | None) -> tuple[Running, ...] | None:
    """Converts the executions that a worker says it has."""
    if reports is None:
        return None
    return tuple(
        Running(execution_id=ExecutionId(one))
        if isinstance(one, str)
        else Running(
            execution_id=ExecutionId(one.execution_id),
            fence=one.fence,
            progress=one.progress,
            message=clean_message(one.message),
        )
        for one in reports
    )


def clean_message(message: str | None) -> str | None:
    """Puts a message on one line without control characters: terminals and pages show it."""
    if message is None:
        return None
    return "".join(c if c.isprintable() else " " for c in message)[:MESSAGE_CHARS_MAX]


_USED_MAX = 1 << 62


def used_of(report: CompletionSpec) -> MeasuredUsage | None:
    """Returns the measured usage that the scheduler learns from; None: the report has none."""
    if report.usage is None and report.status != "failed":
        return None
    usage = report.usage or {}
    cpu, peak = _amount(usage.get("cpu_seconds")), _amount(usage.get("memory_peak"))
    out_of_memory = report.status == "failed" and _is_out_of_memory(bytes(report.error))
    if cpu is None and peak is None and not out_of_memory:
        return None
    return MeasuredUsage(
        cpu_ms=None if cpu is None else round(cpu * 1000),
        memory_peak=None if peak is None else round(peak),
        out_of_memory=out_of_memory,
    )


def _amount(value: Any) -> float | None:
    """Returns a reported figure if it is a plausible number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _USED_MAX else None


def _is_out_of_memory(error: bytes) -> bool:
    """Whether the error says so: `reason` is `memory`, or `type` is Python's `MemoryError`."""
    if b"emory" not in error:
        return False
    try:
        reason = msgspec.json.decode(error, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False
    return reason.get("reason") == "memory" or reason.get("type") == "MemoryError"


def order_views(
    orders: Sequence[Order], timing: Timing, naming: TracePropagator
) -> list[OrderView]:
    """Converts orders for a worker."""
    views: list[OrderView] = []
    templates: dict[int, OrderView] = {}
    last = None
    for order in orders:
        spec = order.spec
        # Jobs of a batch are mostly alike, and follow each other here.
        if last is not None and _has_same_order(spec, last):
            similar = views[-1]
        else:
            template = templates.get(id(spec.terms))
            if template is None:
                template = templates[id(spec.terms)] = _order_template(spec.terms, timing)
            similar, last = _with_spec(template, spec), spec
        views.append(_order_view(similar, order, naming))
    return views


def _has_same_order(spec: Spec, other: Spec) -> bool:
    """Whether the orders of both differ only in their executions."""
    return (
        spec.terms is other.terms
        and spec.task == other.task
        and spec.payload == other.payload
        and spec.created_at == other.created_at
        and spec.run_at == other.run_at
    )


def _order_template(terms: Terms, timing: Timing) -> OrderView:
    """Makes the part that orders of jobs with the same terms have in common."""
    return OrderView(
        execution_id="",
        job_id="",
        attempt=0,
        fence=0,
        name=terms.name,
        queue=terms.queue,
        task=EMPTY_OBJECT,
        payload=EMPTY_OBJECT,
        requirements=requirements_view(terms.needs),
        timeout=seconds_or_none(terms.timeout_ms),
        lease_expires_in=timing.lease_ttl_ms / 1000,
        scheduled_at="",
    )


def _with_spec(template: OrderView, spec: Spec) -> OrderView:
    return structs.replace(
        template,
        task=msgspec.Raw(spec.task),
        payload=msgspec.Raw(spec.payload) if spec.payload else EMPTY_OBJECT,
        scheduled_at=from_instant(scheduled_at(spec.run_at, spec.created_at)),
    )


def _order_view(similar: OrderView, order: Order, naming: TracePropagator) -> OrderView:
    execution, group = order.execution, order.group
    return structs.replace(
        similar,
        execution_id=execution.id,
        job_id=execution.job_id,
        attempt=execution.attempt,
        fence=execution.fence,
        traceparent=naming.for_execution(execution.job_id, execution.fence, order.spec.trace),
        limits=None if order.limits is None else limits_view(order.limits),
        array=None if group is None else place_view(group),
        gang=None if group is None else rank_view(group),
        behind=execution.behind if order.is_prefetched else None,
    )


def worker_view(info: WorkerInfo, usage: Mapping[str, Any]) -> WorkerView:
    """Converts a worker with what it runs."""
    worker = info.worker
    return WorkerView(
        worker_id=worker.id,
        name=worker.name,
        status=worker_status(info),  # type: ignore[arg-type]  # gives the same words
        capabilities=list(worker.capabilities),
        queues=None if worker.queues is None else list(worker.queues),
        resources=resources_view(worker.capacity, info.used),
        last_heartbeat=from_instant_or_none(info.last_seen),
        registered_at=from_instant(worker.registered_at),
        executions=list(info.executions),
        usage=dict(usage),
        labels=dict(worker.labels),
        only=list(worker.only),
    )


def resources_view(capacity: Resources, used: Resources) -> WorkerResources:
    """Converts capacity, and how much of it is in use."""
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
