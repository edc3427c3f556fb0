"""Endpoints that explain a job: why it waits, its phases so far, its dependency graph."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rota.api.auth.roles import Permission
from rota.api.cluster.leaderless_submit import LEADERLESS
from rota.api.convert.explain import forecast_view, why_view
from rota.api.convert.jobs import add_deadline, job_view
from rota.api.deps import AppDeps
from rota.api.endpoints.jobs import job_id_in
from rota.api.limits import GRAPH_AT_ONCE, GRAPH_NODES_MAX, HISTORY_EXECUTIONS_MAX
from rota.api.pagination import PageSize
from rota.api.router import Call, NoQuery, Operation
from rota.api.tenant_scope import find_job, outlines_of
from rota.core.explain.why import PREFETCHED
from rota.core.info_model import Cause, Explanation
from rota.core.model import (
    Array,
    Execution,
    ExecutionState,
    Gang,
    Instant,
    JobId,
    JobRecord,
    JobState,
)
from rota.engine.health import SPILLED_UNREADABLE, TABLES_BEHIND, HealthIssue
from rota.engine.ports import Brain, ObservedCause
from rota.store.protocol import Direction, Edge, Outline
from rota.store.queries import ExecutionQuery
from rota.store.rows import edges_upstream, outline_of
from rota.wire.formats import from_instant, from_instant_or_none, number
from rota.wire.jobs import DeadlineView, GraphEdge, GraphNode, GraphView
from rota.wire.why import CauseView, PhaseView, WhyView

_WAIT_AFTER = {
    ExecutionState.FAILED: "retry",
    ExecutionState.TIMED_OUT: "retry",
    ExecutionState.LOST: "lost",
    ExecutionState.PREEMPTED: "preempted",
}
"""Reason of the wait after an execution that ended in this state."""
WORKER = "worker"
PREFETCH_REASON = "ahead"
"""Public value: the execution waited on its worker, behind another one."""


def job_timing(
    job: JobRecord, executions: Sequence[Execution], seen: Sequence[ObservedCause], now: Instant
) -> list[PhaseView]:
    """Returns the phases of a job in order, from its newest `executions`, oldest first.

    `seen` are the first causes shown to callers while it waited.
    """
    phases: list[PhaseView] = []
    since, reason = job.spec.created_at, _first_wait(job)
    if executions and executions[0].fence > 1:
        since, reason = executions[0].claimed_at, WORKER  # earlier executions are left out
    for one in executions:
        ready = job.life.ready_at if one is executions[-1] else None
        if one.claimed_at > since:
            phases += _past_wait(since, one.claimed_at, reason, ready)
        phases += _execution_phases(one, now)
        is_returned = one.state is ExecutionState.PREEMPTED and one.stop is None
        after = WORKER if is_returned else _WAIT_AFTER.get(one.state, WORKER)
        since, reason = one.ended_at or now, after
    if job.life.state in (JobState.PENDING, JobState.QUEUED):
        phases += _current_wait(job, since, reason, now)
        phases += [_seen_cause(one) for one in seen if one.last > one.first >= since]
    return phases


def _execution_phases(one: Execution, now: Instant) -> list[PhaseView]:
    """Returns an execution's phases; a prefetched one waited on its worker, and may never have
    started."""
    phases = []
    began_at = one.claimed_at if one.behind is None else one.started_at
    if began_at != one.claimed_at:
        waited_until = one.ended_at if began_at is None else began_at
        phases.append(_open_phase("queued", one.claimed_at, waited_until, now))
        phases[0].reason = PREFETCH_REASON
    if began_at is not None:
        phases.append(_open_phase("running", began_at, one.ended_at, now))
        phases[-1].reason = None if one.ended_at is None else one.state.value
    for phase in phases:
        phase.worker_id = one.worker_id
    return phases


def _open_phase(
    what: Literal["queued", "running"], since: Instant, until: Instant | None, now: Instant
) -> PhaseView:
    """Returns a phase that may not be over."""
    phase = _phase(what, since=since, until=now if until is None else until)
    if until is None:
        phase.until = None
    return phase


def _first_wait(job: JobRecord) -> str:
    if job.spec.dependencies:
        return "dependencies"
    return "run_at" if job.spec.run_at is not None else WORKER


def _current_wait(job: JobRecord, since: Instant, reason: str, now: Instant) -> list[PhaseView]:
    """Returns the phases of the present wait."""
    if job.life.state is JobState.PENDING:
        phases = [_phase("pending", since=since, until=now)]
        phases[0].reason = job.life.reason or reason
    else:
        phases = _past_wait(since, now, reason, job.life.ready_at)
    phases[-1].until = None
    return phases


def _past_wait(
    since: Instant, until: Instant, reason: str, ready: Instant | None
) -> list[PhaseView]:
    """Returns a wait, in two phases where it is known when only a worker was missing."""
    phases = []
    if ready is not None and since < ready <= until and reason != WORKER:
        phases.append(_phase("pending", since=since, until=ready))
        phases[0].reason = reason
        since, reason = ready, WORKER
    phases.append(_phase("queued", since=since, until=until))
    phases[-1].reason = reason
    return phases


def _seen_cause(one: ObservedCause) -> PhaseView:
    phase = _phase("queued", since=one.first, until=one.last)
    phase.reason = one.code
    return phase


def _phase(
    what: Literal["pending", "queued", "running"], *, since: Instant, until: Instant
) -> PhaseView:
    length = max(0, until - since)
    return PhaseView(what, from_instant(since), from_instant(until), number(length))


_WAITING = (JobState.PENDING, JobState.QUEUED)


@Operation(
    "GET",
    "/jobs/{job_id}/why",
    "Explain why a job waits",
    tag="Jobs",
    permission=Permission.READ,
    without_leader=True,
    answer=WhyView,
    errors=(404,),
    examples={"answer": "why"},
)
async def why_job(call: Call[None, NoQuery]) -> WhyView:
    """Explains what keeps a job from running and for how long; of others it shows just their
    state."""
    job_id = job_id_in(call)
    job = await find_job(call, job_id)
    if job.life.state in _WAITING:
        if job.life.reason == LEADERLESS or _nobody_leads(call.deps):
            return why_view(job, _LEADERLESS)
        outlook = await call.deps.brain.outlook(job)
        if outlook is not None:
            view = forecast_view(job, outlook)
            _add_issues(view, job, call.deps.health.issues())
            view.history = await _history(call, job, outlook.seen)
            return view
        job = await find_job(call, job_id)  # its state changed between the two reads
    view = why_view(job, _from_engine(call.deps.brain, job) or _from_record(job))
    view.history = await _history(call, job)
    view.deadline = _with_deadline(call.deps.brain, job)
    return view


def _add_issues(view: WhyView, job: JobRecord, issues: Sequence[HealthIssue]) -> None:
    """Adds what is wrong with the tables; a spilled job that cannot be read waits for that first.

    What a job waits for is decided in memory, but the tables say how it is shown.
    """
    for issue in issues:
        cause = CauseView(issue.code, issue.reason, {})
        if issue.code == SPILLED_UNREADABLE and job.life.line:
            view.others.insert(0, view.cause)
            view.cause = cause
        elif issue.code in (TABLES_BEHIND, SPILLED_UNREADABLE):
            view.others.append(cause)


async def _history(
    call: Call[None, NoQuery], job: JobRecord, seen: Sequence[ObservedCause] = ()
) -> list[PhaseView]:
    query = ExecutionQuery(job_id=job.id, limit=HISTORY_EXECUTIONS_MAX)
    executions = await call.deps.queries.find_executions(query)
    return job_timing(job, executions[::-1], seen, call.deps.brain.clock.now())


def _from_engine(brain: Brain, job: JobRecord) -> Explanation | None:
    """Returns the scheduler's explanation of a group, or of a prefetched job.

    Of an array or gang: how many members wait, and for what. Of a prefetched job: which one it
    waits behind.
    """
    if isinstance(job.spec.group, Array | Gang):
        return brain.why(job.id) if brain.ready else None
    if job.life.state is not JobState.RUNNING or not brain.ready:
        return None
    found = brain.why(job.id)
    return found if found is not None and found.causes[0].code == PREFETCHED else None


def _with_deadline(brain: Brain, job: JobRecord) -> DeadlineView | None:
    view = job_view(job)
    add_deadline(view, job, brain)
    return view.deadline


def _nobody_leads(deps: AppDeps) -> bool:
    return deps.leaderless_inbox is not None and not deps.brain.ready


_LEADERLESS = Explanation(
    causes=(
        Cause(
            LEADERLESS,
            "no server leads at the moment: the next leader takes it, usually within seconds",
            {},
        ),
    ),
    estimated_start=None,
    method="none",
)


def _from_record(job: JobRecord) -> Explanation:
    life = job.life
    figures = {
        name: value
        for name, value in (
            ("attempt", life.attempt),
            ("worker_id", life.worker_id),
            ("execution_id", life.execution_id),
            ("started_at", from_instant_or_none(life.started_at)),
            ("finished_at", from_instant_or_none(life.finished_at)),
        )
        if value is not None
    }
    return Explanation(
        causes=(Cause(life.state.value, _sentence(job), figures),),
        estimated_start=life.started_at,
        method="started" if life.started_at is not None else "none",
    )


def _sentence(job: JobRecord) -> str:
    state, reason = job.life.state, job.life.reason
    because = f": {reason}" if reason else ""
    if state is JobState.RUNNING:
        return f"it is running on worker {job.life.worker_id}"
    if state is JobState.CANCELLING:
        return f"it is being stopped on worker {job.life.worker_id}{because}"
    if state in _WAITING:
        return f"it waits{because}"
    return f"it has finished as {state.value}{because}"


@Operation(
    "GET",
    "/jobs/{job_id}/graph",
    "Show the dependency graph of a job",
    tag="Jobs",
    permission=Permission.READ,
    any_server=True,
    answer=GraphView,
    errors=(404,),
    examples={"answer": "graph"},
)
async def graph_of_job(call: Call[None, NoQuery]) -> GraphView:
    """Returns the jobs connected with a job, in both directions, up to a limit."""
    start = await find_job(call, job_id_in(call))
    graph = await _connected(call.deps, start.id)
    own = call.caller.tenant
    unread = [one for one in graph.nodes if one not in graph.jobs]
    outlines = {one.id: one for one in await outlines_of(call.deps.queries, unread)} | graph.jobs
    jobs = {
        one: outlines[one]
        for one in graph.nodes
        if one in outlines and own in (None, outlines[one].tenant)
    }
    nodes = [GraphNode(one.id, one.name, one.state.value) for one in jobs.values()]
    # A deleted job, or one of another tenant, is no node and has no edges.
    edges = [
        GraphEdge(source=edge.parent, target=edge.child, when=edge.when.value)
        for edge in graph.edges.values()
        if edge.parent in jobs and edge.child in jobs
    ]
    return GraphView(nodes, edges, graph.is_cut)


@dataclass(slots=True)
class _Graph:
    """Connected jobs, as far as they were followed."""

    nodes: dict[JobId, None]
    edges: dict[tuple[JobId, JobId], Edge] = field(default_factory=dict)
    jobs: dict[JobId, Outline] = field(default_factory=dict)
    is_cut: bool = False


async def _connected(deps: AppDeps, start: JobId) -> _Graph:
    """Follows edges breadth first, so that a graph cut at the limit shows what is near."""
    queries, page_size = deps.queries, PageSize(GRAPH_AT_ONCE, deps.limits.read_at_once)
    graph, level = _Graph({start: None}), [start]
    while level:
        size = page_size.size
        part, level = level[:size], level[size:]
        jobs, downstream = await asyncio.gather(
            queries.jobs(part), queries.edges(part, Direction.DOWNSTREAM)
        )
        page_size.record(jobs)
        graph.jobs |= {job.id: outline_of(job) for job in jobs}
        upstream = [edge for job in jobs for edge in edges_upstream(job.id, job.spec)]
        for edge in (*upstream, *downstream):
            for job_id in _new_ends(edge, graph.nodes):
                if len(graph.nodes) >= GRAPH_NODES_MAX:
                    graph.is_cut = True
                    return graph
                graph.nodes[job_id] = None
                level.append(job_id)
            graph.edges[edge.parent, edge.child] = edge
    return graph


def _new_ends(edge: Edge, seen: dict[JobId, None]) -> Iterable[JobId]:
    return [job_id for job_id in (edge.parent, edge.child) if job_id not in seen]
