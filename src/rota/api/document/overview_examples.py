"""What the OpenAPI document shows for the calls of an overview."""

from __future__ import annotations

from typing import Any

from rota.api.document.examples import AT, EXECUTION_ID, JOB_ID, WORKER_ID

SAMPLE: dict[str, Any] = {
    "at": AT,
    "span": 5.0,
    "waiting": 16,
    "running": 3,
    "submitted": 40,
    "succeeded": 38,
    "failed": 1,
    "other": 0,
    "wait_p50": 0.12,
    "wait_p95": 1.8,
    "resources": {"cpu": {"capacity": 8.0, "used": 3.0}},
}
CONCERN: dict[str, Any] = {
    "kind": "failing",
    "about": "9f2c1d77a0b4e6f3",
    "name": "invoice",
    "message": "exit code 3",
    "count": 12,
    "since": AT,
    "job_id": JOB_ID,
}
ERROR_GROUP: dict[str, Any] = {
    "fingerprint": "9f2c1d77a0b4e6f3",
    "name": "invoice",
    "message": "exit code 3",
    "reason": "attempts",
    "count": 12,
    "queues": ["default"],
    "first_at": AT,
    "last_at": AT,
    "job_ids": [JOB_ID],
}
TIMELINE: dict[str, Any] = {
    "start": AT,
    "end": AT,
    "items": [
        {
            "execution_id": EXECUTION_ID,
            "job_id": JOB_ID,
            "name": "invoice",
            "worker_id": WORKER_ID,
            "status": "running",
            "job_status": "running",
            "start": AT,
            "end": None,
        }
    ],
    "more": False,
    "reserved": [
        {"job_id": JOB_ID, "name": "train", "worker_id": WORKER_ID, "start": AT, "end": AT}
    ],
    "running": 1,
    "crowd": None,
}
SESSION: dict[str, Any] = {
    "name": "alice",
    "role": "operator",
    "tenant": None,
    "node": "node-a",
    "cell": "",
    "version": "0.1.0",
    "now": AT,
}
