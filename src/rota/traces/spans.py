"""Makes OpenTelemetry spans of jobs and executions, follows the journal for those that ended, and
makes the TRACEPARENT of an execution.

A job is one span; its submission, waits and executions are spans below it. An execution links to
the one before it, a job to its dependencies. The follower reads durable records beside the loop,
while this server leads; a change of the leader may lose the spans of the last moments.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec
import structlog

from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Execution, ExecutionState, Instant, JobId, JobRecord, JobState, Life
from rota.core.outcome import MoveJob, PutExecution, PutJob
from rota.engine.background import BackgroundTask
from rota.engine.ports import Brain
from rota.store.errors import DamagedError
from rota.store.protocol import Change, QueryStore, Seq, StoreError
from rota.traces.limits import (
    FOLLOW_EVERY_S,
    FOLLOW_PAUSE_S,
    JOBS_KNOWN_MAX,
    RECORDS_AT_ONCE,
    UPSTREAM_LINKED_MAX,
)
from rota.wire.traces import TraceParent, job_span_id, parse_traceparent, part_span_id, trace_id_of

log = structlog.get_logger("rota.traces")

K = TypeVar("K")
T = TypeVar("T")

_GOOD = (JobState.SUCCEEDED, ExecutionState.SUCCEEDED)
_BAD = (
    *(JobState.FAILED, JobState.EXPIRED, JobState.SKIPPED),
    *(ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.LOST),
)


class SpanRole(StrEnum):
    """Kind of a span, in OpenTelemetry's sense."""

    PRODUCER = "producer"
    INTERNAL = "internal"
    CONSUMER = "consumer"


class SpanLink(msgspec.Struct, frozen=True):
    """Link to a related span."""

    trace_id: str
    span_id: str
    why: str


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Span, independent of any library."""

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
    """Returns the id of a job's span; each manual retry begins another one."""
    lives = job.life.lives
    return job_span_id(job.id) if lives == 1 else part_span_id(job.id, "life", lives)


def spans_of_job(
    job: JobRecord, root: TraceParent, durable_at: Instant, upstream: Sequence[SpanLink] = ()
) -> list[Span]:
    """Makes the spans of a job and of its submission, which was durable at `durable_at`."""
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
    """Makes the spans of an execution and of the wait before it."""
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


Sampler = Callable[[str], bool]
"""Decides whether a trace of this id, which begins here, is recorded."""


class TracePropagator(Protocol):
    """Makes the TRACEPARENT of executions."""

    def for_execution(self, job_id: JobId, fence: int, given: str) -> str | None:
        """Returns it; None: the job gets none. `given` is that of the submission."""
        ...


class PassThroughPropagator:
    """Passes on the TRACEPARENT of the submission: this server records no spans."""

    def for_execution(self, job_id: JobId, fence: int, given: str) -> str | None:
        return given or None


PASS_THROUGH = PassThroughPropagator()


class RecordingPropagator:
    """Gives every execution a span, in the caller's trace or in one that the job begins."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def for_execution(self, job_id: JobId, fence: int, given: str) -> str | None:
        root = self.root(job_id, given)
        return str(root._replace(span_id=part_span_id(job_id, "run", fence)))

    def root(self, job_id: JobId, given: str) -> TraceParent:
        """Returns a job's trace and the caller's span, whose id is empty if there is none."""
        caller = parse_traceparent(given) if given else None
        if caller is not None:
            return caller
        trace_id = trace_id_of(job_id)
        return TraceParent(trace_id, "", self._sampler(trace_id))


class JournalPosition(Protocol):
    """Newest record of the journal."""

    seq: int

    async def wait_beyond(self, seq: int) -> int:
        """Waits for a record after `seq`; returns the newest."""
        ...


class Exporter(Protocol):
    """Exporter of spans."""

    def export(self, spans: Iterable[Span]) -> None:
        """Takes spans without waiting until they are sent."""
        ...


class TraceFollower:
    """Follows the journal while this server leads, and exports spans of jobs that end."""

    def __init__(
        self,
        brain: Brain,
        journal: JournalPosition,
        queries: QueryStore,
        propagator: RecordingPropagator,
        exporter: Exporter,
    ) -> None:
        self._brain = brain
        self._journal = journal
        self._queries = queries
        self._propagator = propagator
        self._exporter = exporter
        self._wanted: OrderedDict[JobId, bool] = OrderedDict()
        self._durable: OrderedDict[JobId, Instant] = OrderedDict()
        self._ready: OrderedDict[tuple[JobId, int], Instant] = OrderedDict()
        """By job and fence, when the job became ready for this execution."""
        self._task = BackgroundTask("rota-traces")

    def start(self) -> None:
        self._task.start(self._run())

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        seq: int | None = None
        while True:
            try:
                if not self._brain.standing().leads:
                    seq = None
                    await asyncio.sleep(FOLLOW_PAUSE_S)
                    continue
                seq = self._journal.seq if seq is None else seq
                await self._journal.wait_beyond(seq)
                # A reader hurries the projection, so it reads many records at once.
                await asyncio.sleep(FOLLOW_EVERY_S)
                if self._brain.standing().leads:
                    seq = await self.follow(seq, self._journal.seq)
            except DamagedError as error:
                # Reading these records again would fail again: their spans are left out.
                log.error("traces_not_read", reason=str(error))
                seq = None
            except StoreError as error:
                log.warning("traces_not_read", reason=str(error))
                await asyncio.sleep(FOLLOW_PAUSE_S)
            except Exception:
                log.exception("spans_not_made")
                seq = None
                await asyncio.sleep(FOLLOW_PAUSE_S)

    async def follow(self, seq: int, newest: int) -> int:
        """Exports spans of all that ended in the records after `seq`; returns the last one read."""
        while seq < newest:
            changes = await self._queries.changes_after(Seq(seq), RECORDS_AT_ONCE)
            await self._take(changes)
            # Records without changes are not returned, but count as read.
            seq = max(min(seq + RECORDS_AT_ONCE, newest), *(one.seq for one in changes), 0)
        return seq

    async def _take(self, changes: Sequence[Change]) -> None:
        executions: list[Execution] = []
        jobs: dict[JobId, None] = {}
        for change in changes:
            match change.write:
                case PutJob(id=job_id, spec=spec, life=life):
                    root = self._propagator.root(job_id, spec.trace)
                    _remember(self._wanted, job_id, root.sampled)
                    if root.sampled and spec.revision == 0 and life.lives == 1:
                        _remember(self._durable, job_id, change.at)
                    self._note_state(job_id, life, jobs)
                case MoveJob(id=job_id, life=life):
                    self._note_state(job_id, life, jobs)
                case PutExecution(execution=execution):
                    if execution.ended_at is not None and self._is_wanted(execution.job_id):
                        executions.append(execution)
                case _:
                    pass
        await self._export_spans(executions, list(jobs))

    def _note_state(self, job_id: JobId, life: Life, ended: dict[JobId, None]) -> None:
        if not self._is_wanted(job_id):
            if life.state in JOB_FINAL:
                self._wanted.pop(job_id, None)
            return
        if life.state in JOB_FINAL:
            ended[job_id] = None
        elif life.state is JobState.RUNNING and life.ready_at is not None:
            _remember(self._ready, (job_id, life.fence), life.ready_at)

    def _is_wanted(self, job_id: JobId) -> bool:
        """Whether to look the job up: unknown ones were submitted before this server led."""
        return self._wanted.get(job_id, True)

    async def _export_spans(self, executions: Sequence[Execution], ended: Sequence[JobId]) -> None:
        ids = dict.fromkeys([*(one.job_id for one in executions), *ended])
        if not ids:
            return
        records = {one.id: one for one in await self._queries.jobs(list(ids))}
        spans: list[Span] = []
        for execution in executions:
            job = records.get(execution.job_id)
            if job is not None:
                spans += self._execution_spans(job, execution)
        links = await self._upstream([records[one] for one in ended if one in records])
        for job_id in ended:
            if job_id in records:
                spans += self._job_spans(records[job_id], links.get(job_id, ()))
            self._wanted.pop(job_id, None)
        self._exporter.export(spans)

    def _execution_spans(self, job: JobRecord, execution: Execution) -> list[Span]:
        root = self._propagator.root(job.id, job.spec.trace)
        if not root.sampled:
            return []
        ready_at = self._ready.pop((job.id, execution.fence), None)
        return spans_of_execution(job, execution, root, ready_at)

    def _job_spans(self, job: JobRecord, links: Sequence[SpanLink]) -> list[Span]:
        root = self._propagator.root(job.id, job.spec.trace)
        # It may have been retried manually before its end was read here.
        if not root.sampled or job.life.state not in JOB_FINAL:
            return []
        durable_at = self._durable.pop(job.id, job.spec.created_at)
        return spans_of_job(job, root, durable_at, links)

    async def _upstream(self, jobs: Sequence[JobRecord]) -> dict[JobId, list[SpanLink]]:
        """Makes links to each job's dependencies; for jobs without any it reads nothing."""
        wanted = {one.job_id for job in jobs for one in job.spec.dependencies}
        if not wanted:
            return {}
        found = {one.id: one for one in await self._queries.jobs(sorted(wanted))}
        return {
            job.id: [self._link(found[one.job_id]) for one in job.spec.dependencies
                     if one.job_id in found]
            for job in jobs
        }  # fmt: skip

    def _link(self, job: JobRecord) -> SpanLink:
        root = self._propagator.root(job.id, job.spec.trace)
        return SpanLink(root.trace_id, life_span_id(job), "waited for")


def _remember(known: OrderedDict[K, T], key: K, value: T) -> None:
    known[key] = value
    if len(known) > JOBS_KNOWN_MAX:
        known.popitem(last=False)
