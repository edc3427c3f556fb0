"""A dashboard for Grafana: what an operator looks at first, drawn from Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

COLUMNS, WIDTH, HEIGHT = 3, 8, 8


class Panel(NamedTuple):
    """One picture: its queries, each with what its line is called."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"


_OF = '{job=~"$job"}'


def _quantiles(name: str) -> list[tuple[str, str]]:
    buckets = f"sum by (le) (rate(rota_{name}_bucket{_OF}[$__rate_interval]))"
    return [
        (f"histogram_quantile({part}, {buckets})", f"p{part * 100:g}") for part in (0.5, 0.95, 0.99)
    ]


PANELS: Sequence[Panel] = (
    Panel("Leader", "none", [(f"sum(rota_leader{_OF})", "leaders")], "stat"),
    Panel(
        "Waiting",
        "none",
        [('sum(rota_jobs{job=~"$job",status="queued"})', "ready, waiting for a worker")],
        "stat",
    ),
    Panel("Longest ready", "s", [(f"max(rota_ready_wait_seconds{_OF})", "longest")], "stat"),
    Panel(
        "Jobs a second",
        "ops",
        [
            (f"sum(rate(rota_jobs_submitted_total{_OF}[$__rate_interval]))", "submitted"),
            (
                f"sum by (status) (rate(rota_jobs_finished_total{_OF}[$__rate_interval]))",
                "{{status}}",
            ),
        ],
    ),
    Panel("Live jobs", "none", [(f"sum by (status) (rota_jobs{_OF})", "{{status}}")]),
    Panel(
        "Failed, of those that ended",
        "percentunit",
        [
            (
                'sum(rate(rota_jobs_finished_total{job=~"$job",status="failed"}[$__rate_interval]))'
                f" / sum(rate(rota_jobs_finished_total{_OF}[$__rate_interval]))",
                "failed",
            )
        ],
    ),
    Panel("Wait before a start", "s", _quantiles("job_wait_seconds")),
    Panel("Run time", "s", _quantiles("job_run_seconds")),
    Panel("Lateness of schedules", "s", _quantiles("schedule_lateness_seconds")),
    Panel(
        "Longest queues",
        "none",
        [('topk(10, sum by (queue) (rota_jobs{job=~"$job",status="queued"}))', "{{queue}}")],
    ),
    Panel("Workers", "none", [(f"sum by (status) (rota_workers{_OF})", "{{status}}")]),
    Panel(
        "Held, of what workers have",
        "percentunit",
        [
            (
                f"sum by (kind) (rota_resource_used{_OF})"
                f" / (sum by (kind) (rota_resource_capacity{_OF}) > 0)",
                "{{kind}}",
            )
        ],
    ),
    Panel("Decision to order", "s", _quantiles("dispatch_latency_seconds")),
    Panel("Append to the journal", "s", _quantiles("append_seconds")),
    Panel(
        "Behind",
        "s",
        [
            (f"max(rota_fold_lag_seconds{_OF})", "tables"),
            (f"max by (instance) (rota_standby_lag_seconds{_OF})", "{{instance}}"),
        ],
    ),
    Panel("Alerts that fire", "none", [(f"sum by (severity) (rota_alerts{_OF})", "{{severity}}")]),
    Panel(
        "Free on the data disk",
        "bytes",
        [(f"min by (instance) (rota_data_disk_free_bytes{_OF})", "{{instance}}")],
    ),
    Panel(
        "Memory of the servers",
        "bytes",
        [(f"process_resident_memory_bytes{_OF}", "{{instance}}")],
    ),
)


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "title": "Rota",
        "uid": "rota-overview",
        "tags": ["rota"],
        "timezone": "browser",
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), _job()]},
        "annotations": {"list": [_failovers()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _job() -> dict[str, Any]:
    return {
        "name": "job",
        "label": "Cell",
        "type": "query",
        "datasource": _from(),
        "query": "label_values(rota_leader, job)",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _failovers() -> dict[str, Any]:
    return {
        "name": "Another leader",
        "datasource": _from(),
        "enable": True,
        "expr": f"changes(rota_epoch{_OF}[1m]) > 0",
        "iconColor": "orange",
        "titleFormat": "another leader",
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": _from(),
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": name}
            for place, (query, name) in enumerate(panel.queries)
        ],
    }


def _from() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${source}"}
