"""Explanations and rehearsals for the OpenAPI document, which a test holds to their types."""

from __future__ import annotations

from typing import Any

from rota.api.document.examples import AT, EXECUTION_ID, JOB_ID, WORKER_ID

_SOON = "2026-01-31T09:12:00.000Z"
_ESTIMATE: dict[str, Any] = {
    "at": _SOON,
    "method": "forward_run",
    "low": "2026-01-31T09:05:00.000Z",
    "high": "2026-01-31T09:14:30.000Z",
    "computed_at": AT,
    "worker_id": WORKER_ID,
    "accuracy": {"inside": 0.81, "starts": 1240},
}
_BUSY: dict[str, Any] = {
    "code": "resources_busy",
    "message": "resources are busy: asks 8 cpu, the most free on one of 3 workers is 6 cpu",
    "figures": {"cpu": {"asked": 8.0, "largest_free": 6.0, "free": 9.0}, "workers": 3},
}
_DEADLINE: dict[str, Any] = {
    "finish_by": "2026-01-31T11:00:00.000Z",
    "verdict": "on_time",
    "slack": 5280,
    "expected_finish": "2026-01-31T09:32:00.000Z",
}

WHY: dict[str, Any] = {
    "job_id": JOB_ID,
    "status": "queued",
    "cause": _BUSY,
    "others": [],
    "estimated_start": _ESTIMATE,
    "would_help": [
        {
            "code": "resources_busy",
            "message": f"with 2 cpu less it would fit on worker {WORKER_ID}",
            "figures": {"kind": "cpu", "less": 2.0, "worker_id": WORKER_ID},
            "enough": True,
        },
        {
            "code": "resources_busy",
            "message": f"when job {EXECUTION_ID} ends on worker {WORKER_ID}, there will be room",
            "figures": {"worker_id": WORKER_ID, "jobs": [EXECUTION_ID], "at": _SOON},
            "enough": True,
        },
    ],
    "position": {
        "ahead": 0,
        "waiting": 3,
        "exact": True,
        "starts_before": 2,
        "tenants_ahead": 0,
    },
    "history": [
        {
            "what": "queued",
            "since": AT,
            "until": None,
            "seconds": 12.5,
            "reason": "worker",
            "worker_id": None,
        }
    ],
    "deadline": _DEADLINE,
}

DRY_RUN: dict[str, Any] = {
    "verdict": "later",
    "message": f"would start at about {_SOON} on w3, because {_BUSY['message']}",
    "estimated_start": _ESTIMATE,
    "causes": [_BUSY],
    "deadline": _DEADLINE,
    "ref": None,
}

DRY_RUN_BATCH: dict[str, Any] = {"jobs": [{**DRY_RUN, "ref": "extract"}]}
