"""Every call that a gateway takes, and the rule it follows; nothing else gets to a cell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response

from rota.gateway import fleetwide, lists, own, stream, submit
from rota.gateway.desk import Visit
from rota.gateway.single import anywhere, by_id, by_tenant, not_here

Serve: TypeAlias = Callable[[Visit], Awaitable[Response]]

PASSED_ON: Sequence[Serve] = (by_id, by_tenant, anywhere)
"""What follows these rules keeps its method, HEAD too: a cell knows best how to answer."""


@dataclass(frozen=True, slots=True)
class Route:
    """One call and its rule."""

    method: str
    path: str
    serve: Serve


JOBS = (
    Route("POST", "/jobs", submit.submit_job),
    Route("POST", "/jobs/batch", submit.submit_batch),
    Route("POST", "/jobs/bulk", fleetwide.bulk_action),
    Route("GET", "/jobs", lists.list_jobs),
    Route("GET", "/dead-letters", lists.list_jobs),
    Route("GET", "/jobs/{job_id}", by_id),
    Route("PATCH", "/jobs/{job_id}", by_id),
    Route("DELETE", "/jobs/{job_id}", by_id),
    Route("PUT", "/jobs/{job_id}/cancel", by_id),
    Route("POST", "/jobs/{job_id}/retry", by_id),
    Route("POST", "/jobs/{job_id}/execute", by_id),
    Route("GET", "/jobs/{job_id}/why", by_id),
    Route("GET", "/jobs/{job_id}/graph", by_id),
    Route("GET", "/jobs/{job_id}/logs", by_id),
)

WORKERS = (
    Route("POST", "/workers/register", not_here),
    Route("POST", "/workers/{worker_id}/lease", not_here),
    Route("POST", "/workers/{worker_id}/heartbeat", not_here),
    Route("GET", "/workers", lists.list_workers),
    Route("GET", "/workers/{worker_id}", by_id),
    Route("DELETE", "/workers/{worker_id}", by_id),
    Route("POST", "/workers/{worker_id}/drain", by_id),
)

EXECUTIONS = (
    Route("GET", "/executions", lists.list_executions),
    Route("GET", "/executions/{execution_id}", by_id),
    Route("GET", "/executions/{execution_id}/logs", by_id),
    Route("GET", "/executions/{execution_id}/artifacts", by_id),
    Route("GET", "/executions/{execution_id}/artifacts/{name}", by_id),
    Route("POST", "/executions/{execution_id}/complete", not_here),
    Route("POST", "/executions/{execution_id}/progress", not_here),
    Route("POST", "/executions/{execution_id}/logs", not_here),
    Route("PUT", "/executions/{execution_id}/artifacts/{name}", not_here),
)

QUEUES = (
    Route("GET", "/queues", lists.list_queues),
    Route("GET", "/queues/{name}", fleetwide.show_queue),
    Route("PUT", "/queues/{name}", fleetwide.change_queue),
    Route("PATCH", "/queues/{name}", fleetwide.change_queue),
    Route("POST", "/queues/{name}/pause", fleetwide.change_queue),
    Route("POST", "/queues/{name}/resume", fleetwide.change_queue),
    Route("POST", "/queues/{name}/purge", fleetwide.purge_queue),
)

POLICY = (
    Route("GET", "/policy", not_here),
    Route("PUT", "/policy", not_here),
    Route("GET", "/tenants", not_here),
    Route("GET", "/tenants/{name}", by_tenant),
    Route("PUT", "/tenants/{name}", by_tenant),
)

SERVICE = (
    Route("GET", "/healthz", own.show_alive),
    Route("GET", "/readyz", own.show_ready),
    Route("GET", "/metrics", own.show_metrics),
    Route("GET", "/stats", fleetwide.show_stats),
    Route("GET", "/cluster", fleetwide.show_cluster),
    Route("GET", "/stream", stream.stream_changes),
    Route("POST", "/session", fleetwide.share_session),
    Route("DELETE", "/session", fleetwide.share_session),
)

ACCESS = (
    Route("GET", "/tokens", not_here),
    Route("POST", "/tokens", not_here),
    Route("DELETE", "/tokens/{token_id}", not_here),
    Route("GET", "/audit", not_here),
)

PAGES = (
    Route("GET", "/", anywhere),
    Route("GET", "/docs", anywhere),
    Route("GET", "/openapi.json", anywhere),
    Route("GET", "/static/{file}", anywhere),
)

ROUTES: Sequence[Route] = (
    *JOBS,
    *WORKERS,
    *EXECUTIONS,
    *QUEUES,
    *POLICY,
    *SERVICE,
    *ACCESS,
    *PAGES,
)
