"""Examples of schedules for the OpenAPI document; a test reads each with the type it stands for."""

from __future__ import annotations

from typing import Any

from rota.api.document.examples import AT, JOB, JOB_ID

SCHEDULE_ID = "019a85c0-2222-7333-8444-955566677788"
BACKFILL_ID = "019a85c4-3333-7444-8555-966677788899"

SCHEDULE_SPEC: dict[str, Any] = {
    "name": "morning-report",
    "cron": "0 9 * * MON-FRI",
    "timezone": "Europe/Berlin",
    "job": {
        "name": "report",
        "task": {"kind": "command", "argv": ["./report.sh", "{{scheduled_date}}"]},
    },
    "catch_up": "latest",
    "overlap": "skip",
    "dst": {"gap": "jump", "overlap": "first"},
    "jitter": "30s",
}
SCHEDULE: dict[str, Any] = {
    "schedule_id": SCHEDULE_ID,
    "name": "morning-report",
    "cron": "0 9 * * MON-FRI",
    "interval": None,
    "at": None,
    "timezone": "Europe/Berlin",
    "from": "start",
    "starts_at": None,
    "ends_at": None,
    "dst": {"gap": "jump", "overlap": "first"},
    "jitter": 30,
    "calendars": [],
    "on_holiday": "skip",
    "catch_up": "latest",
    "catch_up_window": 604800,
    "overlap": "skip",
    "max_concurrency": 1,
    "paused": False,
    "job": {name: JOB[name] for name in ("name", "queue", "tenant", "priority", "task", "payload")},
    "status": "active",
    "next_at": "2026-01-06T08:00:00.000Z",
    "last": {"at": "2026-01-05T08:00:00.000Z", "outcome": "fired", "job_id": JOB_ID},
    "running": [],
    "owner": None,
    "trouble": None,
    "revision": 1,
    "created_at": AT,
    "updated_at": AT,
}
PREVIEW_SPEC: dict[str, Any] = {"cron": "30 2 * * *", "timezone": "America/New_York"}
PREVIEW: dict[str, Any] = {
    "items": [
        {"at": "2026-03-07T07:30:00.000Z", "local": "2026-03-07T02:30:00-05:00"},
        {
            "at": "2026-03-08T07:00:00.000Z",
            "local": "2026-03-08T03:00:00-04:00",
            "note": "clock moved forward 1 h: local times just before this do not exist",
        },
    ]
}
OCCURRENCE: dict[str, Any] = {
    "schedule_id": SCHEDULE_ID,
    "at": "2026-01-05T08:00:00.000Z",
    "outcome": "fired",
    "reason": None,
    "message": None,
    "job_id": JOB_ID,
    "cause": "schedule",
    "decided_at": "2026-01-05T08:00:00.004Z",
    "late": 0.004,
    "until": None,
    "revision": 1,
}
BACKFILL_SPEC: dict[str, Any] = {
    "from": "2026-01-01T00:00:00Z",
    "to": "2026-01-31T23:59:59Z",
    "max_parallel": 4,
}
BACKFILL: dict[str, Any] = {
    "backfill_id": BACKFILL_ID,
    "count": 1,
    "already": 21,
    "job_ids": [JOB_ID],
    "items": [{"at": "2026-01-05T08:00:00.000Z", "local": "2026-01-05T09:00:00+01:00"}],
    "dry_run": False,
}
DEPLOY_SPEC: dict[str, Any] = {"owner": "shop.jobs:app", "schedules": [SCHEDULE_SPEC]}
DEPLOYED: dict[str, Any] = {
    "created": ["morning-report"],
    "changed": [],
    "unchanged": [],
    "retired": ["evening-report"],
}
CALENDAR: dict[str, Any] = {
    "name": "de-holidays",
    "dates": ["2026-12-25", "2026-12-26"],
    "schedules": 1,
    "updated_at": AT,
}
