"""Why a job is where it is, and what hangs together with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.api.customs.deadlines import add_deadline
from rota.api.customs.views import job_view
from rota.api.customs.why_views import forecast_view, why_view
from rota.api.door.roles import Permission
from rota.api.jobs.jobs import job_id_in
from rota.api.jobs.story import job_timing
from rota.api.limits import GRAPH_AT_ONCE, GRAPH_NODES_MAX, HISTORY_EXECUTIONS_MAX
from rota.api.lookup import find_job, outlines_of
from rota.api.pace import PageSize
from rota.api.parts import AppDeps
from rota.api.peers.mailbox import LEADERLESS
from rota.api.routes import Call, NoQuery, Operation
from rota.core.explain.why import PREFETCHED
from rota.core.group_model import Array, Gang
from rota.core.info_model import Cause, Explanation
from rota.core.model import JobId, JobRecord, JobState
from rota.engine.ports import Brain, ObservedCause
from rota.store.protocol import Direction, Edge, Outline
from rota.store.queries import ExecutionQuery
from rota.store.rows import edges_upstream, outline_of
from rota.wire.jobs import (
    DeadlineView,
    GraphEdge,
    GraphNode,
    GraphView,
)
from rota.wire.units import from_instant_or_none
from rota.wire.why import PhaseView, WhyView

_WAITING = (JobState.PENDING, JobState.QUEUED)


@Operation(
    "GET",
    "/jobs/{job_id}/why",
    "Why a job is not running",
    tag="Jobs",
    permission=Permission.READ,
    without_leader=True,
    answer=WhyView,
    errors=(404,),
    examples={"answer": "why"},
)
async def why_job(call: Call[None, NoQuery]) -> WhyView:
    """What keeps it from running and for how long; for one that runs or has ended, just that."""
    job_id = job_id_in(call)
    job = await find_job(call, job_id)
    if job.life.state in _WAITING:
        if job.life.reason == LEADERLESS or _nobody_leads(call.deps):
            return why_view(job, _LEADERLESS)
        outlook = await call.deps.brain.outlook(job)
        if outlook is not None:
            view = forecast_view(job, outlook)
            view.history = await _history(call, job, outlook.seen)
            return view
        job = await find_job(call, job_id)  # it moved between the two questions
    view = why_view(job, _from_engine(call.deps.brain, job) or _from_record(job))
    view.history = await _history(call, job)
    view.deadline = _with_deadline(call.deps.brain, job)
    return view


async def _history(
    call: Call[None, NoQuery], job: JobRecord, seen: Sequence[ObservedCause] = ()
) -> list[PhaseView]:
    query = ExecutionQuery(job_id=job.id, limit=HISTORY_EXECUTIONS_MAX)
    tries = await call.deps.catalog.find_executions(query)
    return job_timing(job, tries[::-1], seen, call.deps.brain.clock.now())


def _from_engine(brain: Brain, job: JobRecord) -> Explanation | None:
    """Of an array or gang that has begun, how many of its members wait, and for what.

    Of a prefetched job, for whose place it waits.
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


def _nobody_leads(parts: AppDeps) -> bool:
    return parts.leaderless_inbox is not None and not parts.brain.ready


_LEADERLESS = Explanation(
    causes=(
        Cause(
            LEADERLESS,
            "no server leads just now: the next one takes it, usually within seconds",
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
    return f"it has ended as {state.value}{because}"


@Operation(
    "GET",
    "/jobs/{job_id}/graph",
    "The dependency graph around a job",
    tag="Jobs",
    permission=Permission.READ,
    any_server=True,
    answer=GraphView,
    errors=(404,),
    examples={"answer": "graph"},
)
async def graph_of_job(call: Call[None, NoQuery]) -> GraphView:
    """Everything connected with a job, in both directions, up to a limit."""
    start = await find_job(call, job_id_in(call))
    graph = await _connected(call.deps, start.id)
    own = call.caller.tenant
    unread = [one for one in graph.nodes if one not in graph.jobs]
    told = {one.id: one for one in await outlines_of(call.deps.catalog, unread)} | graph.jobs
    jobs = {
        one: told[one] for one in graph.nodes if one in told and own in (None, told[one].tenant)
    }
    nodes = [GraphNode(one.id, one.name, one.state.value) for one in jobs.values()]
    # A deleted job, or one of another tenant, leaves no node, and no edge into nothing either.
    lines = [
        GraphEdge(source=edge.parent, target=edge.child, when=edge.when.value)
        for edge in graph.edges.values()
        if edge.parent in jobs and edge.child in jobs
    ]
    return GraphView(nodes, lines, graph.is_cut)


@dataclass(slots=True)
class _Graph:
    """What is connected, as far as it was followed."""

    nodes: dict[JobId, None]
    edges: dict[tuple[JobId, JobId], Edge] = field(default_factory=dict)
    jobs: dict[JobId, Outline] = field(default_factory=dict)
    is_cut: bool = False


async def _connected(parts: AppDeps, start: JobId) -> _Graph:
    """Breadth first, so that a cut graph shows what is near."""
    catalog, pace = parts.catalog, PageSize(GRAPH_AT_ONCE, parts.limits.read_at_once)
    graph, level = _Graph({start: None}), [start]
    while level:
        size = pace.size
        part, level = level[:size], level[size:]
        jobs, downstream = await asyncio.gather(
            catalog.jobs(part), catalog.edges(part, Direction.DOWNSTREAM)
        )
        pace.record(jobs)
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
