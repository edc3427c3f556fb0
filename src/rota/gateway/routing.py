"""Routing table: every call that a gateway takes, and its endpoint. Other calls reach no cell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response

from rota.gateway import endpoints, lists, stream
from rota.gateway.context import GatewayRequest
from rota.gateway.endpoints import (
    any_cell,
    by_id,
    by_tenant,
    file_or_refuse_for_cell,
    refuse_for_cell,
)

Serve: TypeAlias = Callable[[GatewayRequest], Awaitable[Response]]

RELAYED: Sequence[Serve] = (by_id, by_tenant, any_cell, file_or_refuse_for_cell)
"""Endpoints that relay HEAD as well: a cell knows best how to answer it."""


@dataclass(frozen=True, slots=True)
class Route:
    """Call and its endpoint."""

    method: str
    path: str
    serve: Serve


JOBS = (
    Route("POST", "/jobs", endpoints.submit_job),
    Route("POST", "/jobs/batch", endpoints.submit_batch),
    Route("POST", "/jobs/bulk", endpoints.bulk_action),
    Route("GET", "/jobs", lists.list_jobs),
    Route("GET", "/dead-letters", lists.list_jobs),
    Route("GET", "/dead-letters/groups", refuse_for_cell),
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
    Route("POST", "/workers/register", refuse_for_cell),
    Route("POST", "/workers/{worker_id}/lease", refuse_for_cell),
    Route("POST", "/workers/{worker_id}/heartbeat", refuse_for_cell),
    Route("GET", "/workers", lists.list_workers),
    Route("GET", "/workers/{worker_id}", by_id),
    Route("DELETE", "/workers/{worker_id}", by_id),
    Route("POST", "/workers/{worker_id}/drain", by_id),
    Route("POST", "/workers/{worker_id}/resume", by_id),
)

EXECUTIONS = (
    Route("GET", "/executions", lists.list_executions),
    Route("GET", "/executions/{execution_id}", by_id),
    Route("GET", "/executions/{execution_id}/logs", by_id),
    Route("GET", "/executions/{execution_id}/artifacts", by_id),
    Route("GET", "/executions/{execution_id}/artifacts/{name}/link", by_id),
    Route("GET", "/executions/{execution_id}/artifacts/{name}/upload", file_or_refuse_for_cell),
    # A name may have slashes, so this must come after the routes above, which it would match too.
    Route("GET", "/executions/{execution_id}/artifacts/{name}", by_id),
    Route("GET", "/executions/{execution_id}/bundles/{bundle_id}", refuse_for_cell),
    Route("GET", "/executions/{execution_id}/bundles/{bundle_id}/content", refuse_for_cell),
    Route("POST", "/executions/{execution_id}/complete", refuse_for_cell),
    Route("POST", "/executions/{execution_id}/progress", refuse_for_cell),
    Route("POST", "/executions/{execution_id}/logs", refuse_for_cell),
    Route("PUT", "/executions/{execution_id}/artifacts/{name}", refuse_for_cell),
)

BUNDLES = (
    Route("POST", "/bundles", refuse_for_cell),
    Route("GET", "/bundles", refuse_for_cell),
    Route("GET", "/bundles/uploads/{sha256}", refuse_for_cell),
    Route("GET", "/bundles/{bundle_id}", by_id),
    Route("DELETE", "/bundles/{bundle_id}", by_id),
    Route("GET", "/bundles/{bundle_id}/content", by_id),
)
"""Bundles are uploaded to the cell that runs the jobs: a gateway carries no large bodies."""

QUEUES = (
    Route("GET", "/queues", lists.list_queues),
    Route("GET", "/queues/{name}", endpoints.show_queue),
    Route("PUT", "/queues/{name}", endpoints.change_queue),
    Route("PATCH", "/queues/{name}", endpoints.change_queue),
    Route("POST", "/queues/{name}/pause", endpoints.change_queue),
    Route("POST", "/queues/{name}/resume", endpoints.change_queue),
    Route("POST", "/queues/{name}/purge", endpoints.purge_queue),
)

SCHEDULES = (
    Route("POST", "/schedules", endpoints.create_by_tenant),
    Route("GET", "/schedules", lists.list_schedules),
    Route("POST", "/schedules/preview", endpoints.create_by_tenant),
    Route("POST", "/schedules/deploy", endpoints.deploy),
    Route("GET", "/schedules/{schedule_id}", by_id),
    Route("PATCH", "/schedules/{schedule_id}", by_id),
    Route("DELETE", "/schedules/{schedule_id}", by_id),
    Route("POST", "/schedules/{schedule_id}/pause", by_id),
    Route("POST", "/schedules/{schedule_id}/resume", by_id),
    Route("POST", "/schedules/{schedule_id}/trigger", by_id),
    Route("GET", "/schedules/{schedule_id}/preview", by_id),
    Route("GET", "/schedules/{schedule_id}/occurrences", by_id),
    Route("POST", "/schedules/{schedule_id}/backfill", by_id),
    Route("POST", "/schedules/{schedule_id}/backfills/{backfill_id}/cancel", by_id),
    Route("GET", "/calendars", lists.list_calendars),
    Route("GET", "/calendars/{name}", endpoints.show_calendar),
    Route("PUT", "/calendars/{name}", endpoints.change_calendar),
    Route("DELETE", "/calendars/{name}", endpoints.change_calendar),
)

TRIGGERS = (
    Route("POST", "/triggers", endpoints.create_by_tenant),
    Route("GET", "/triggers", lists.list_triggers),
    Route("POST", "/triggers/preview", endpoints.preview_event),
    Route("POST", "/triggers/deploy", endpoints.deploy),
    Route("GET", "/triggers/{trigger_id}", by_id),
    Route("PATCH", "/triggers/{trigger_id}", by_id),
    Route("DELETE", "/triggers/{trigger_id}", by_id),
    Route("POST", "/triggers/{trigger_id}/pause", by_id),
    Route("POST", "/triggers/{trigger_id}/resume", by_id),
    Route("GET", "/triggers/{trigger_id}/events", by_id),
)

EVENTS = (
    Route("POST", "/events", endpoints.send_event),
    Route("GET", "/events", refuse_for_cell),
    Route("GET", "/hooks", refuse_for_cell),
    Route("GET", "/hooks/{name}", refuse_for_cell),
    Route("PUT", "/hooks/{name}", refuse_for_cell),
    Route("DELETE", "/hooks/{name}", refuse_for_cell),
    Route("POST", "/hooks/{name}", refuse_for_cell),
)
"""Hooks are calls of one cell: their secrets, and the URLs that senders know, are its own."""

POLICY = (
    Route("GET", "/policy", refuse_for_cell),
    Route("PUT", "/policy", refuse_for_cell),
    Route("GET", "/alerts", refuse_for_cell),
    Route("GET", "/alerts/{name}", refuse_for_cell),
    Route("PUT", "/alerts/{name}", refuse_for_cell),
    Route("DELETE", "/alerts/{name}", refuse_for_cell),
    Route("POST", "/alerts/{name}/test", refuse_for_cell),
    Route("PUT", "/alerts/{name}/silence", refuse_for_cell),
    Route("DELETE", "/alerts/{name}/silence", refuse_for_cell),
    Route("GET", "/alert-notices", refuse_for_cell),
    Route("GET", "/alert-channels", refuse_for_cell),
    Route("PUT", "/alert-channels/{name}", refuse_for_cell),
    Route("DELETE", "/alert-channels/{name}", refuse_for_cell),
    Route("POST", "/alert-channels/{name}/test", refuse_for_cell),
    Route("GET", "/tenants", refuse_for_cell),
    Route("GET", "/tenants/{name}", by_tenant),
    Route("PUT", "/tenants/{name}", by_tenant),
)

PLANNING = (
    Route("GET", "/autoscale", endpoints.show_autoscale),
    Route("GET", "/reports/waste", endpoints.show_waste),
    Route("POST", "/simulations", refuse_for_cell),
    Route("POST", "/simulations/trace", refuse_for_cell),
)

SERVICE = (
    Route("GET", "/healthz", endpoints.show_alive),
    Route("GET", "/readyz", endpoints.show_ready),
    Route("GET", "/metrics", endpoints.show_metrics),
    Route("GET", "/stats", endpoints.show_stats),
    Route("GET", "/stats/history", refuse_for_cell),
    Route("GET", "/attention", refuse_for_cell),
    Route("GET", "/timeline", refuse_for_cell),
    Route("GET", "/cluster", endpoints.show_cluster),
    Route("GET", "/quarantine", refuse_for_cell),
    Route("POST", "/quarantine/repair", refuse_for_cell),
    Route("GET", "/stream", stream.stream_changes),
    Route("GET", "/session", any_cell),
    Route("POST", "/session", endpoints.share_session),
    Route("DELETE", "/session", endpoints.share_session),
)

ACCESS = (
    Route("GET", "/tokens", refuse_for_cell),
    Route("POST", "/tokens", refuse_for_cell),
    Route("DELETE", "/tokens/{token_id}", refuse_for_cell),
    Route("GET", "/audit", refuse_for_cell),
)

PAGES = (
    Route("GET", "/", any_cell),
    Route("GET", "/docs", any_cell),
    Route("GET", "/openapi.json", any_cell),
    Route("GET", "/static/{file}", any_cell),
    Route("GET", "/ui/{page:path}", any_cell),
)

ROUTES: Sequence[Route] = (
    *JOBS,
    *WORKERS,
    *EXECUTIONS,
    *BUNDLES,
    *QUEUES,
    *SCHEDULES,
    *TRIGGERS,
    *EVENTS,
    *POLICY,
    *PLANNING,
    *SERVICE,
    *ACCESS,
    *PAGES,
)
