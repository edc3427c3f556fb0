"""Examples of triggers and events for the OpenAPI document; a test reads each with its type."""

from __future__ import annotations

from typing import Any

from rota.api.document.examples import AT, JOB, JOB_ID

TRIGGER_ID = "019a85c6-4444-7555-8666-977788899900"

TRIGGER_SPEC: dict[str, Any] = {
    "name": "scan-uploads",
    "event": "object.uploaded",
    "filter": "data.size > 1000 and matches(data.name, '*.csv')",
    "job": {
        "name": "scan",
        "task": {"kind": "command", "argv": ["./scan.sh", "{{event.data.name}}"]},
    },
    "rate_limit": {"count": 100, "per": "1m"},
}
TRIGGER: dict[str, Any] = {
    "trigger_id": TRIGGER_ID,
    "name": "scan-uploads",
    "event": "object.uploaded",
    "filter": "data.size > 1000 and matches(data.name, '*.csv')",
    "job": {name: JOB[name] for name in ("name", "queue", "tenant", "priority", "task", "payload")},
    "debounce": None,
    "batch": None,
    "rate_limit": {"count": 100, "per": 60},
    "paused": False,
    "waiting": 0,
    "closes_at": None,
    "owner": None,
    "revision": 1,
    "created_at": AT,
    "updated_at": AT,
}
EVENT_SPEC: dict[str, Any] = {
    "specversion": "1.0",
    "id": "upload-4711",
    "source": "/storage/eu",
    "type": "object.uploaded",
    "time": AT,
    "data": {"name": "sales.csv", "size": 4096},
}
EVENT: dict[str, Any] = {
    "id": "upload-4711",
    "source": "/storage/eu",
    "type": "object.uploaded",
    "received_at": AT,
    "duplicate": False,
    "repeats": 0,
    "job_ids": [JOB_ID],
    "outcomes": [
        {
            "trigger_id": TRIGGER_ID,
            "name": "scan-uploads",
            "outcome": "fired",
            "message": "it made a job",
            "job_id": JOB_ID,
        }
    ],
}
ARRIVAL: dict[str, Any] = {
    "event_id": "upload-4711",
    "source": "/storage/eu",
    "type": "object.uploaded",
    "received_at": AT,
    "outcome": "filtered",
    "message": "the filter did not let it pass",
    "job_id": None,
    "decided_at": AT,
}
TRIAL: dict[str, Any] = {
    "items": [
        {
            "trigger_id": TRIGGER_ID,
            "name": "scan-uploads",
            "outcome": "filtered",
            "message": "the filter did not let it pass",
            "job": None,
        }
    ]
}
HOOK: dict[str, Any] = {
    "name": "github",
    "scheme": "github",
    "type": "github",
    "tolerance": 300,
    "path": "/hooks/github",
    "secrets": 1,
    "created_at": AT,
    "updated_at": AT,
}
