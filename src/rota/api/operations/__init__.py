"""Every call of the API, declared once: served by routes.py, described by openapi.py."""

from __future__ import annotations

from rota.api.operations.access import ACCESS
from rota.api.operations.alerts import ALERTS
from rota.api.operations.events import EVENTS, HOOKS, TRIGGERS
from rota.api.operations.files import ARTIFACTS, BUNDLES, DEEP
from rota.api.operations.jobs import JOBS
from rota.api.operations.planning import PLANNING
from rota.api.operations.policy import POLICY
from rota.api.operations.schedules import SCHEDULES
from rota.api.operations.service import QUEUES, SERVICE
from rota.api.operations.workers import EXECUTIONS, WORKERS

OPERATIONS = (
    *JOBS,
    *WORKERS,
    *EXECUTIONS,
    *ARTIFACTS,
    *BUNDLES,
    *QUEUES,
    *SCHEDULES,
    *TRIGGERS,
    *EVENTS,
    *HOOKS,
    *POLICY,
    *PLANNING,
    *ALERTS,
    *SERVICE,
    *ACCESS,
)

__all__ = ["DEEP", "OPERATIONS"]
