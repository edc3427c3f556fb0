"""Why a job is where it is, and what hangs together with it."""

from __future__ import annotations

from collections.abc import Iterable

from rota.api.jobs import job_id_in
from rota.api.limits import GRAPH_NODES_MAX, READ_AT_ONCE
from rota.api.lookup import find_job, is_own
from rota.api.mailbox import LEADERLESS
from rota.api.parts import Parts
from rota.api.recall import read_upstream
from rota.api.routes import Call, NoQuery
from rota.api.views import why_view
from rota.core.glance import Cause, Explanation
from rota.core.model import JobId, JobRecord, JobState
from rota.store.protocol import Catalog, Direction, Edge
from rota.wire.jobs import GraphEdge, GraphNode, GraphView, WhyView
from rota.wire.units import from_instant

_WAITING = (JobState.PENDING, JobState.QUEUED)


async def why_job(call: Call[None, NoQuery]) -> WhyView:
    """What keeps it from running; for one that runs or has ended, just that."""
    job_id = job_id_in(call)
    brain = call.parts.brain
    await brain.settled()
    explanation = brain.why(job_id) if brain.ready else None
    job = await find_job(call, job_id)
    if job.life.state not in _WAITING:
        return why_view(job, _from_record(job))
    if job.life.reason == LEADERLESS or _nobody_leads(call.parts):
        return why_view(job, _LEADERLESS)
    # It is on the shelf, came to be between the two questions, or the scheduler is reloading.
    return why_view(job, explanation or brain.why(job_id, job) or _from_record(job))


def _nobody_leads(parts: Parts) -> bool:
    return parts.mailbox is not None and not parts.brain.ready


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
            ("started_at", _time(life.started_at)),
            ("finished_at", _time(life.finished_at)),
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


async def graph_of_job(call: Call[None, NoQuery]) -> GraphView:
    """Everything connected with a job, in both directions, up to a limit."""
    catalog = call.parts.catalog
    start = await find_job(call, job_id_in(call))
    ids, edges, truncated = await _connected(catalog, start.id)
    jobs = {
        job.id: job for job in await read_upstream(catalog, ids) if is_own(call, job.spec.terms)
    }
    nodes = [
        GraphNode(one, jobs[one].spec.terms.name, jobs[one].life.state.value)
        for one in ids
        if one in jobs
    ]
    # A deleted job, or one of another tenant, leaves no node, and no edge into nothing either.
    lines = [
        GraphEdge(source=edge.parent, target=edge.child, when=edge.when.value)
        for edge in edges
        if edge.parent in jobs and edge.child in jobs
    ]
    return GraphView(nodes, lines, truncated)


async def _connected(catalog: Catalog, start: JobId) -> tuple[list[JobId], list[Edge], bool]:
    """Breadth first, so that a cut graph shows what is near."""
    seen: dict[JobId, None] = {start: None}
    edges: dict[tuple[JobId, JobId], Edge] = {}
    level = [start]
    while level:
        part, level = level[:READ_AT_ONCE], level[READ_AT_ONCE:]
        found = await catalog.edges(part, Direction.UPSTREAM)
        found += await catalog.edges(part, Direction.DOWNSTREAM)
        for edge in found:
            for job_id in _new_ends(edge, seen):
                if len(seen) >= GRAPH_NODES_MAX:
                    return list(seen), list(edges.values()), True
                seen[job_id] = None
                level.append(job_id)
            edges[edge.parent, edge.child] = edge
    return list(seen), list(edges.values()), False


def _new_ends(edge: Edge, seen: dict[JobId, None]) -> Iterable[JobId]:
    return [job_id for job_id in (edge.parent, edge.child) if job_id not in seen]


def _time(instant: int | None) -> str | None:
    return None if instant is None else from_instant(instant)
