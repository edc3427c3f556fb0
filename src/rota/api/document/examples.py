"""Examples for the OpenAPI document; a test reads each of them with the type it stands for."""

from __future__ import annotations

from typing import Any

JOB_ID = "019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"
EXECUTION_ID = "019a85c2-7d40-7b11-8a2c-90f1c3d2e4a5"
WORKER_ID = "019a85c0-1111-7222-8333-944455566677"
TOKEN_ID = "019a85bf-2222-7333-8444-955566677788"
EVENT_ID = "42.0"
AT = "2026-01-05T09:00:00.000Z"

_ARGV = ["python3", "bill.py", "42"]
TASK: dict[str, Any] = {"kind": "command", "argv": _ARGV, "env": {}, "cwd": None}

JOB_SPEC: dict[str, Any] = {
    "name": "invoice",
    "task": {"kind": "command", "argv": _ARGV},
    "priority": 10,
    "requirements": {"cpu": 1, "memory": "256MiB"},
    "timeout": "10m",
    "retry": {"max_attempts": 4, "delay": "1s", "memory_factor": 1.5, "memory_max": "1GiB"},
    "affinity": {"require": {"zone": ["a", "b"]}, "prefer": {"disk": "ssd"}, "wait": "5s"},
    "labels": {"team": "billing"},
    "payload": {"customer": 42},
}

JOB: dict[str, Any] = {
    "job_id": JOB_ID,
    "name": "invoice",
    "queue": "default",
    "tenant": "default",
    "priority": 10,
    "status": "queued",
    "reason": None,
    "task": TASK,
    "payload": {"customer": 42},
    "requirements": {
        "cpu": 1,
        "memory": 268435456,
        "storage": 0,
        "gpu": 0,
        "custom": {},
        "capabilities": [],
    },
    "dependencies": [],
    "run_at": None,
    "expires_at": None,
    "timeout": 600,
    "expected_runtime": None,
    "retry": {
        "max_attempts": 4,
        "backoff": "exponential",
        "delay": 1,
        "factor": 2.0,
        "max_delay": 300,
        "jitter": 0.1,
        "memory_factor": 1.5,
        "memory_max": 1073741824,
    },
    "semantics": "at_least_once",
    "concurrency": None,
    "preemptible": False,
    "labels": {"team": "billing"},
    "attempt": 0,
    "fence": 0,
    "losses": 0,
    "execution_id": None,
    "worker_id": None,
    "created_at": AT,
    "scheduled_at": AT,
    "schedule_id": None,
    "trigger_id": None,
    "array": None,
    "gang": None,
    "array_id": None,
    "array_index": None,
    "gang_id": None,
    "gang_index": None,
    "finish_by": "2026-01-31T11:00:00.000Z",
    "deadline": {
        "finish_by": "2026-01-31T11:00:00.000Z",
        "verdict": "on_time",
        "slack": 5400,
        "expected_finish": "2026-01-31T09:30:00.000Z",
    },
    "affinity": {
        "require": {"zone": ["a", "b"]},
        "prefer": {"disk": ["ssd"]},
        "spread": None,
        "near": None,
        "wait": 5,
        "tolerate": [],
    },
    "started_at": None,
    "finished_at": None,
    "progress": None,
    "message": None,
    "result": None,
    "error": None,
}

JOBS: dict[str, Any] = {"items": [JOB], "next_cursor": None}

BATCH_SPEC: dict[str, Any] = {
    "jobs": [
        {"name": "extract", "task": {"kind": "noop"}, "ref": "a"},
        {"name": "load", "task": {"kind": "noop"}, "dependencies": ["ref:a"]},
    ]
}
BATCH: dict[str, Any] = {"job_ids": [JOB_ID, EXECUTION_ID]}

BULK_SPEC: dict[str, Any] = {
    "action": "cancel",
    "filter": {"queue": "default", "labels": {"team": "billing"}},
}
BULK: dict[str, Any] = {"count": 12, "refused": 0, "dry_run": False, "more": False, "reasons": {}}

GRAPH: dict[str, Any] = {
    "nodes": [
        {"job_id": JOB_ID, "name": "extract", "status": "succeeded"},
        {"job_id": EXECUTION_ID, "name": "load", "status": "queued"},
    ],
    "edges": [{"from": JOB_ID, "to": EXECUTION_ID, "when": "succeeded"}],
    "truncated": False,
}

EXECUTION: dict[str, Any] = {
    "execution_id": EXECUTION_ID,
    "job_id": JOB_ID,
    "worker_id": WORKER_ID,
    "attempt": 1,
    "fence": 1,
    "status": "succeeded",
    "reason": None,
    "claimed_at": AT,
    "start_time": AT,
    "end_time": AT,
    "result": {"total": 12.5},
    "error": None,
    "exit_code": 0,
    "usage": {"cpu_seconds": 1.25},
    "artifacts": [{"name": "invoice.pdf", "size": 52100}],
    "memory": 268435456,
    "behind": None,
}
EXECUTIONS: dict[str, Any] = {"items": [EXECUTION], "next_cursor": None}
COMPLETION: dict[str, Any] = {
    "status": "succeeded",
    "fence": 1,
    "result": {"total": 12.5},
    "exit_code": 0,
}
ARTIFACT: dict[str, Any] = {"name": "invoice.pdf", "size": 52100, "sha256": None}

REGISTER_SPEC: dict[str, Any] = {
    "name": "box-1",
    "capabilities": ["linux"],
    "resources": {"cpu": 4, "memory": "8GiB", "storage": "50GiB"},
    "queues": ["default"],
    "labels": {"zone": "a", "host": "rack-7"},
    "only": [],
}
REGISTERED: dict[str, Any] = {
    "worker_id": WORKER_ID,
    "session": "k3J9x2QbT7mLr0Vs",
    "heartbeat_interval": 5.0,
    "lease_ttl": 15.0,
    "poll_wait_max": 5.0,
    "spare_max": 1000,
    "patient": True,
}
HEARTBEAT: dict[str, Any] = {
    "usage": {"cpu": 1.5, "memory": 734003200},
    "executions": [{"execution_id": EXECUTION_ID, "progress": 0.4, "message": "page 4 of 10"}],
}
BEAT: dict[str, Any] = {"cancel": [], "lost": []}
LEASE_SPEC: dict[str, Any] = {
    "max": 50,
    "wait": "20s",
    "completed": [{"execution_id": EXECUTION_ID, "status": "succeeded", "fence": 1}],
    "executions": [],
}
LEASE: dict[str, Any] = {
    "executions": [
        {
            "execution_id": EXECUTION_ID,
            "job_id": JOB_ID,
            "attempt": 1,
            "fence": 1,
            "name": "invoice",
            "queue": "default",
            "task": TASK,
            "payload": {"customer": 42},
            "requirements": JOB["requirements"],
            "timeout": 600,
            "lease_expires_in": 15.0,
            "scheduled_at": AT,
            "traceparent": None,
            "limits": None,
            "array": {"array_id": JOB_ID, "index": 7, "count": 100},
            "gang": None,
            "behind": None,
        }
    ],
    "held_for": 0.12,
    "cancel": [],
    "lost": [],
}
WORKER: dict[str, Any] = {
    "worker_id": WORKER_ID,
    "name": "box-1",
    "status": "online",
    "capabilities": ["linux"],
    "queues": ["default"],
    "resources": {
        "cpu": {"capacity": 4, "used": 1},
        "memory": {"capacity": 8589934592, "used": 268435456},
        "storage": {"capacity": 53687091200, "used": 0},
        "gpu": {"capacity": 0, "used": 0},
        "custom": {},
    },
    "last_heartbeat": AT,
    "registered_at": AT,
    "executions": [EXECUTION_ID],
    "usage": {"cpu": 1.5},
}
WORKERS: dict[str, Any] = {"items": [WORKER], "next_cursor": None}

QUEUE_SPEC: dict[str, Any] = {
    "priority": 5,
    "max_workers": 20,
    "rate_limit": {"count": 100, "per": "1m"},
    "limits": {"processes": 256},
}
QUEUE: dict[str, Any] = {
    "name": "default",
    "priority": 5,
    "weight": 1.0,
    "max_workers": 20,
    "rate_limit": {"count": 100, "per": 60},
    "paused": False,
    "depth": {"pending": 2, "queued": 14, "running": 3, "cancelling": 0},
    "created_at": AT,
    "limits": {
        "processes": 256,
        "open_files": 8192,
        "file_size": 1 << 40,
        "log_size": 16 << 20,
        "result_size": 1 << 20,
    },
    "rate": 1.25,
}
QUEUES: dict[str, Any] = {"items": [QUEUE], "next_cursor": None}

POLICY: dict[str, Any] = {
    "order": "fair",
    "backfill": "easy",
    "candidates": "shortest",
    "beta": 10.0,
    "length_cap": 86400,
    "priority_wait": 36,
    "half_life": 86400,
    "preempt_gap": 100,
    "preempt_after": 10,
    "max_running": None,
    "max_queued": None,
}
TENANT_SPEC: dict[str, Any] = {"weight": 2, "quota": {"running": 50, "cpu": 64}}
TENANT: dict[str, Any] = {
    "name": "acme",
    "weight": 2.0,
    "quota": {"running": 50, "queued": None, "cpu": 64.0, "memory": None},
    "depth": {"pending": 0, "queued": 120, "running": 12, "cancelling": 0},
    "cpu": 24.0,
    "memory": 1 << 34,
    "share": 0.25,
    "entitlement": 0.666667,
    "usage": 3.5,
}
TENANTS: dict[str, Any] = {"items": [TENANT], "next_cursor": None}

STATS: dict[str, Any] = {
    "jobs": {"pending": 2, "queued": 14, "running": 3, "succeeded": 1200, "failed": 4},
    "queues": 1,
    "workers": {"online": 2, "draining": 0, "unhealthy": 0, "offline": 1},
    "resources": {"cpu": {"capacity": 8.0, "used": 3.0}},
    "submitted_total": 1223,
    "version": "0.1.0",
    "started_at": AT,
}
CLUSTER: dict[str, Any] = {
    "leader": "node-a",
    "epoch": 3,
    "nodes": [
        {
            "node": "node-a",
            "address": "https://a.example:7070",
            "role": "leader",
            "status": "up",
            "version": "0.1.0",
            "lag": {"records": 0, "seconds": 0},
            "last_seen": AT,
            "started_at": AT,
        }
    ],
    "durability": "sync-ha",
    "warnings": [],
}
EVENTS = (
    f"id: {EVENT_ID}\n"
    f'data: {{"kind":"job","id":"{JOB_ID}","status":"queued","at":"{AT}",'
    '"name":"invoice","queue":"default"}\n\n'
)

TOKEN_SPEC: dict[str, Any] = {
    "role": "submitter",
    "name": "billing's nightly run",
    "tenant": "billing",
    "expires_in": "90d",
}

TOKEN: dict[str, Any] = {
    "token_id": TOKEN_ID,
    "name": "billing's nightly run",
    "role": "submitter",
    "tenant": "billing",
    "status": "live",
    "created_at": AT,
    "created_by": "local",
    "expires_at": "2026-04-05T09:00:00.000Z",
    "revoked_at": None,
}

NEW_TOKEN: dict[str, Any] = {**TOKEN, "token": "rota_…"}

TOKENS: dict[str, Any] = {"items": [TOKEN], "next_cursor": None}

AUDIT: dict[str, Any] = {
    "items": [
        {
            "at": AT,
            "token_id": TOKEN_ID,
            "token": "billing's nightly run",
            "method": "PUT",
            "route": "/jobs/{job_id}/cancel",
            "target": JOB_ID,
            "status": 200,
            "remote": "10.0.0.7",
            "node": "node-a",
        }
    ],
    "next_cursor": None,
}

PARAMETERS: dict[str, Any] = {
    "job_id": JOB_ID,
    "execution_id": EXECUTION_ID,
    "worker_id": WORKER_ID,
    "schedule_id": "019a85c0-2222-7333-8444-955566677788",
    "backfill_id": "019a85c4-3333-7444-8555-966677788899",
    "trigger_id": "019a85c6-4444-7555-8666-977788899900",
    "bundle_id": "019a85c7-5555-7666-8777-988899900011",
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size": 48211,
    "format": "tar",
    "unused_for": "30d",
    "event": "object.uploaded",
    "type": "object.uploaded",
    "outcome": "late,skipped",
    "owner": "shop.jobs:app",
    "count": 10,
    "window": "hour",
    "digest": True,
    "after": AT,
    "before": AT,
    "name": "default",
    "status": "queued,running",
    "label": ["team:billing"],
    "capabilities": "linux,gpu",
    "created_after": AT,
    "created_before": AT,
    "queue": "default",
    "tenant": "default",
    "priority": 10,
    "limit": 50,
    "cursor": "MDE5YTg1YzItNmIxZS03YzNhLTlmMDAtNWUyZDhhNDFjN2Iz",
    "follow": True,
    "offset": 0,
    "tail": 100,
    "fence": 1,
    "force": True,
    "dry_run": True,
    "token_id": TOKEN_ID,
    "target": JOB_ID,
}
