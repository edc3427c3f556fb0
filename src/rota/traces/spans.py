"""Makes spans of records: a job is one, its submission, each wait and each run are others below it.

Pure. A run links to the run before it, a job to those it waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from rota.core.model import Execution, ExecutionState, Instant, JobRecord, JobState
from rota.traces.limits import UPSTREAM_LINKED_MAX
from rota.wire.traces import TraceParent, job_span_id, part_span_id

_GOOD = (JobState.SUCCEEDED, ExecutionState.SUCCEEDED)
_BAD = (
    *(JobState.FAILED, JobState.EXPIRED, JobState.SKIPPED),
    *(ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.LOST),
)


class SpanRole(StrEnum):
    """What OpenTelemetry calls the kind of a span."""

    PRODUCER = "producer"
    INTERNAL = "internal"
    CONSUMER = "consumer"


class SpanLink(msgspec.Struct, frozen=True):
    """Another span that this one has to do with."""

    trace_id: str
    span_id: str
    why: str


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span, in no library's terms."""

    name: str
    role: SpanRole
    trace_id: str
    span_id: str
    parent_id: str
    start: Instant
    end: Instant
    attributes: Mapping[str, str | int]
    links: Sequence[SpanLink] = ()
    bad: bool = False
    good: bool = False
    reason: str = ""


def life_span_id(job: JobRecord) -> str:
    """The job's span; one that a person started over has another for each life."""
    lives = job.life.lives
    return job_span_id(job.id) if lives == 1 else part_span_id(job.id, "life", lives)


def spans_of_job(
    job: JobRecord, root: TraceParent, durable_at: Instant, upstream: Sequence[SpanLink] = ()
) -> list[Span]:
    """The job from its submission to its end; `durable_at` is when its submission was."""
    created, ended = job.spec.created_at, job.life.finished_at or job.spec.created_at
    links = list(upstream[:UPSTREAM_LINKED_MAX])
    if job.life.lives > 1:
        links.append(SpanLink(root.trace_id, job_span_id(job.id), "life before"))
    whole = Span(
        name=f"job {job.spec.terms.name}",
        role=SpanRole.INTERNAL,
        trace_id=root.trace_id,
        span_id=life_span_id(job),
        parent_id=root.span_id,
        start=created,
        end=max(created, ended),
        attributes={**_about(job), "rota.job.status": job.life.state.value},
        links=links,
        bad=job.life.state in _BAD,
        good=job.life.state in _GOOD,
        reason=job.life.reason,
    )
    if job.life.lives > 1:
        return [whole]
    submit = Span(
        name=f"submit {job.spec.terms.name}",
        role=SpanRole.PRODUCER,
        trace_id=root.trace_id,
        span_id=part_span_id(job.id, "submit"),
        parent_id=whole.span_id,
        start=created,
        end=max(created, durable_at),
        attributes=_about(job),
    )
    return [whole, submit]


def spans_of_execution(
    job: JobRecord, execution: Execution, root: TraceParent, ready_at: Instant | None
) -> list[Span]:
    """A try: how long it was waited for, and how long it ran."""
    about = {
        **_about(job),
        "rota.execution.id": execution.id,
        "rota.execution.attempt": execution.attempt,
        "rota.execution.fence": execution.fence,
        "rota.worker.id": execution.worker_id,
    }
    fence, claimed = execution.fence, execution.claimed_at
    run = Span(
        name=f"run {job.spec.terms.name}",
        role=SpanRole.CONSUMER,
        trace_id=root.trace_id,
        span_id=part_span_id(job.id, "run", fence),
        parent_id=life_span_id(job),
        start=claimed,
        end=max(claimed, execution.ended_at or claimed),
        attributes={**about, **_ending(execution)},
        links=[_execution_before(job, root, fence)] if fence > 1 else (),
        bad=execution.state in _BAD,
        good=execution.state in _GOOD,
        reason=execution.reason or execution.state.value,
    )
    if ready_at is None or ready_at > claimed:
        return [run]
    wait = Span(
        name=f"wait {job.spec.terms.name}",
        role=SpanRole.INTERNAL,
        trace_id=root.trace_id,
        span_id=part_span_id(job.id, "wait", fence),
        parent_id=life_span_id(job),
        start=ready_at,
        end=claimed,
        attributes=about,
    )
    return [wait, run]


def _execution_before(job: JobRecord, root: TraceParent, fence: int) -> SpanLink:
    return SpanLink(root.trace_id, part_span_id(job.id, "run", fence - 1), "run before")


def _ending(execution: Execution) -> dict[str, str | int]:
    found: dict[str, str | int] = {"rota.execution.status": execution.state.value}
    if execution.exit_code is not None:
        found["process.exit.code"] = execution.exit_code
    return found


def _about(job: JobRecord) -> dict[str, str | int]:
    spec = job.spec
    found: dict[str, str | int] = {
        "rota.job.id": job.id,
        "rota.job.name": spec.terms.name,
        "rota.queue": spec.terms.queue,
        "rota.tenant": spec.terms.tenant,
    }
    if spec.origin is not None:
        found["rota.schedule.id"] = spec.origin.schedule_id
    if spec.trigger_origin is not None:
        found["rota.trigger.id"] = spec.trigger_origin.trigger_id
    return found
