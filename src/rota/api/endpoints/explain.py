"""Endpoints that explain a job: why it waits, what it waited for, its dependency graph."""

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
from rota.core.group_model import Array, Gang
from rota.core.info_model import Cause, Explanation
from rota.core.model import Execution, ExecutionState, Instant, JobId, JobRecord, JobState
from rota.engine.ports import Brain, ObservedCause
from rota.store.protocol import Direction, Edge, Outline
from rota.store.queries import ExecutionQuery
from rota.store.rows import edges_upstream, outline_of
from rota.wire.formats import from_instant, from_instant_or_none, number
from rota.wire.jobs import DeadlineView, GraphEdge, GraphNode, GraphView
from rota.wire.why import PhaseView, WhyView

_WAIT_AFTER = {
    ExecutionState.FAILED: "retry",
    ExecutionState.TIMED_OUT: "retry",
    ExecutionState.LOST: "lost",
    ExecutionState.PREEMPTED: "preempted",
}
"""What a job waits for after a try that ended so."""
WORKER = "worker"
PREFETCH_REASON = "ahead"
"""Public: it was on a worker, behind another."""


def job_timing(
    job: JobRecord, tries: Sequence[Execution], seen: Sequence[ObservedCause], now: Instant
) -> list[PhaseView]:
    """Stretches of the job's life, in order; `tries` are its newest, the newest last.

    `seen` are first causes that somebody was told while it waited.
    """
    spells: list[PhaseView] = []
    since, reason = job.spec.created_at, _first_wait(job)
    if tries and tries[0].fence > 1:
        since, reason = tries[0].claimed_at, WORKER  # what was before is left out
    for one in tries:
        ready = job.life.ready_at if one is tries[-1] else None
        if one.claimed_at > since:
            spells += _past_wait(since, one.claimed_at, reason, ready)
        spells += _execution_spells(one, now)
        is_returned = one.state is ExecutionState.PREEMPTED and one.stop is None
        after = WORKER if is_returned else _WAIT_AFTER.get(one.state, WORKER)
        since, reason = one.ended_at or now, after
    if job.life.state in (JobState.PENDING, JobState.QUEUED):
        spells += _current_wait(job, since, reason, now)
        spells += [_seen_cause(one) for one in seen if one.last > one.first >= since]
    return spells


def _execution_spells(one: Execution, now: Instant) -> list[PhaseView]:
    """A try; a prefetched one waited on its worker first, and may never have begun there."""
    spells = []
    began_at = one.claimed_at if one.behind is None else one.started_at
    if began_at != one.claimed_at:
        waited_until = one.ended_at if began_at is None else began_at
        spells.append(_open_spell("queued", one.claimed_at, waited_until, now))
        spells[0].reason = PREFETCH_REASON
    if began_at is not None:
        spells.append(_open_spell("running", began_at, one.ended_at, now))
        spells[-1].reason = None if one.ended_at is None else one.state.value
    for spell in spells:
        spell.worker_id = one.worker_id
    return spells


def _open_spell(
    what: Literal["queued", "running"], since: Instant, until: Instant | None, now: Instant
) -> PhaseView:
    """A stretch that may not be over."""
    spell = _spell(what, since=since, until=now if until is None else until)
    if until is None:
        spell.until = None
    return spell


def _first_wait(job: JobRecord) -> str:
    if job.spec.dependencies:
        return "dependencies"
    return "run_at" if job.spec.run_at is not None else WORKER


def _current_wait(job: JobRecord, since: Instant, reason: str, now: Instant) -> list[PhaseView]:
    """The wait that lasts."""
    if job.life.state is JobState.PENDING:
        spells = [_spell("pending", since=since, until=now)]
        spells[0].reason = job.life.reason or reason
    else:
        spells = _past_wait(since, now, reason, job.life.ready_at)
    spells[-1].until = None
    return spells


def _past_wait(
    since: Instant, until: Instant, reason: str, ready: Instant | None
) -> list[PhaseView]:
    """A wait, in two parts where it is known since when nothing but a worker was missing."""
    spells = []
    if ready is not None and since < ready <= until and reason != WORKER:
        spells.append(_spell("pending", since=since, until=ready))
        spells[0].reason = reason
        since, reason = ready, WORKER
    spells.append(_spell("queued", since=since, until=until))
    spells[-1].reason = reason
    return spells


def _seen_cause(one: ObservedCause) -> PhaseView:
    spell = _spell("queued", since=one.first, until=one.last)
    spell.reason = one.code
    return spell


def _spell(
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
    "Show the dependency graph of a job",
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
