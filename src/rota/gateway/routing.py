"""Every call that a gateway takes, and the rule it follows; nothing else gets to a cell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response

from rota.gateway import fleetwide, lists, occasions, own, planning, stream, submit
from rota.gateway.desk import Visit
from rota.gateway.single import anywhere, by_id, by_tenant, file_or_not_here, not_here

Serve: TypeAlias = Callable[[Visit], Awaitable[Response]]

PASSED_ON: Sequence[Serve] = (by_id, by_tenant, anywhere, file_or_not_here)
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
    Route("GET", "/dead-letters/groups", not_here),
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
    Route("POST", "/workers/{worker_id}/resume", by_id),
)

EXECUTIONS = (
    Route("GET", "/executions", lists.list_executions),
    Route("GET", "/executions/{execution_id}", by_id),
    Route("GET", "/executions/{execution_id}/logs", by_id),
    Route("GET", "/executions/{execution_id}/artifacts", by_id),
    Route("GET", "/executions/{execution_id}/artifacts/{name}/link", by_id),
    Route("GET", "/executions/{execution_id}/artifacts/{name}/upload", file_or_not_here),
    # The name may have slashes in it, so that all of these would fit the next one too.
    Route("GET", "/executions/{execution_id}/artifacts/{name}", by_id),
    Route("GET", "/executions/{execution_id}/bundles/{bundle_id}", not_here),
    Route("GET", "/executions/{execution_id}/bundles/{bundle_id}/content", not_here),
    Route("POST", "/executions/{execution_id}/complete", not_here),
    Route("POST", "/executions/{execution_id}/progress", not_here),
    Route("POST", "/executions/{execution_id}/logs", not_here),
    Route("PUT", "/executions/{execution_id}/artifacts/{name}", not_here),
)

BUNDLES = (
    Route("POST", "/bundles", not_here),
    Route("GET", "/bundles", not_here),
    Route("GET", "/bundles/uploads/{sha256}", not_here),
    Route("GET", "/bundles/{bundle_id}", by_id),
    Route("DELETE", "/bundles/{bundle_id}", by_id),
    Route("GET", "/bundles/{bundle_id}/content", by_id),
)
"""They are uploaded to the cell that runs the jobs: a gateway carries no large bodies."""

QUEUES = (
    Route("GET", "/queues", lists.list_queues),
    Route("GET", "/queues/{name}", fleetwide.show_queue),
    Route("PUT", "/queues/{name}", fleetwide.change_queue),
    Route("PATCH", "/queues/{name}", fleetwide.change_queue),
    Route("POST", "/queues/{name}/pause", fleetwide.change_queue),
    Route("POST", "/queues/{name}/resume", fleetwide.change_queue),
    Route("POST", "/queues/{name}/purge", fleetwide.purge_queue),
)

SCHEDULES = (
    Route("POST", "/schedules", occasions.make),
    Route("GET", "/schedules", lists.list_schedules),
    Route("POST", "/schedules/preview", occasions.make),
    Route("POST", "/schedules/deploy", occasions.deploy),
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
    Route("GET", "/calendars/{name}", occasions.show_calendar),
    Route("PUT", "/calendars/{name}", occasions.change_calendar),
    Route("DELETE", "/calendars/{name}", occasions.change_calendar),
)

TRIGGERS = (
    Route("POST", "/triggers", occasions.make),
    Route("GET", "/triggers", lists.list_triggers),
    Route("POST", "/triggers/preview", occasions.preview_event),
    Route("POST", "/triggers/deploy", occasions.deploy),
    Route("GET", "/triggers/{trigger_id}", by_id),
    Route("PATCH", "/triggers/{trigger_id}", by_id),
    Route("DELETE", "/triggers/{trigger_id}", by_id),
    Route("POST", "/triggers/{trigger_id}/pause", by_id),
    Route("POST", "/triggers/{trigger_id}/resume", by_id),
    Route("GET", "/triggers/{trigger_id}/events", by_id),
)

EVENTS = (
    Route("POST", "/events", occasions.tell),
    Route("GET", "/events", not_here),
    Route("GET", "/hooks", not_here),
    Route("GET", "/hooks/{name}", not_here),
    Route("PUT", "/hooks/{name}", not_here),
    Route("DELETE", "/hooks/{name}", not_here),
    Route("POST", "/hooks/{name}", not_here),
)
"""An endpoint's secret, and the addresses its senders know, are those of one cell."""

POLICY = (
    Route("GET", "/policy", not_here),
    Route("PUT", "/policy", not_here),
    Route("GET", "/alerts", not_here),
    Route("GET", "/alerts/{name}", not_here),
    Route("PUT", "/alerts/{name}", not_here),
    Route("DELETE", "/alerts/{name}", not_here),
    Route("POST", "/alerts/{name}/test", not_here),
    Route("PUT", "/alerts/{name}/silence", not_here),
    Route("DELETE", "/alerts/{name}/silence", not_here),
    Route("GET", "/alert-notices", not_here),
    Route("GET", "/alert-channels", not_here),
    Route("PUT", "/alert-channels/{name}", not_here),
    Route("DELETE", "/alert-channels/{name}", not_here),
    Route("POST", "/alert-channels/{name}/test", not_here),
    Route("GET", "/tenants", not_here),
    Route("GET", "/tenants/{name}", by_tenant),
    Route("PUT", "/tenants/{name}", by_tenant),
)

PLANNING = (
    Route("GET", "/autoscale", planning.show_autoscale),
    Route("GET", "/reports/waste", planning.show_waste),
    Route("POST", "/simulations", not_here),
    Route("POST", "/simulations/trace", not_here),
)

SERVICE = (
    Route("GET", "/healthz", own.show_alive),
    Route("GET", "/readyz", own.show_ready),
    Route("GET", "/metrics", own.show_metrics),
    Route("GET", "/stats", fleetwide.show_stats),
    Route("GET", "/stats/history", not_here),
    Route("GET", "/attention", not_here),
    Route("GET", "/timeline", not_here),
    Route("GET", "/cluster", fleetwide.show_cluster),
    Route("GET", "/stream", stream.stream_changes),
    Route("GET", "/session", anywhere),
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
    Route("GET", "/ui/{page:path}", anywhere),
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
