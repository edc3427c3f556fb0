"""Examples of alerts, for the document and its tests."""

from __future__ import annotations

from typing import Any

ALERT_SPEC: dict[str, Any] = {
    "condition": "wait",
    "queue": "gpu",
    "threshold": 1800,
    "for": "5m",
    "severity": "critical",
    "channels": ["on-call"],
}
ALERT: dict[str, Any] = {
    "name": "gpu-wait",
    "condition": "wait",
    "status": "firing",
    "value": 2710.4,
    "threshold": 1800.0,
    "unit": "s",
    "message": "wait of queue gpu: 2,710 s (from 1,800 s); a job that comes next has been ready"
    " for so long",
    "since": "2026-03-01T09:05:00.000Z",
    "severity": "critical",
    "queue": "gpu",
    "window": 600,
    "for": 300,
    "at_least": 1,
    "channels": ["on-call"],
    "repeat": None,
    "enabled": True,
    "silence": None,
    "builtin": False,
    "meaning": "a job that comes next has been ready for so long",
}
SILENCED: dict[str, Any] = {
    **ALERT,
    "silence": {"until": "2026-03-01T12:00:00.000Z", "reason": "new machines come at noon"},
}
ALERTS: dict[str, Any] = {"items": [ALERT], "next_cursor": None}
NOTICES: dict[str, Any] = {
    "items": [
        {
            "name": "gpu-wait",
            "status": "firing",
            "severity": "critical",
            "message": ALERT["message"],
            "value": 2710.4,
            "since": "2026-03-01T09:05:00.000Z",
            "at": "2026-03-01T09:10:00.000Z",
            "deliveries": [
                {
                    "channel": "on-call",
                    "status": "waiting",
                    "tries": 2,
                    "at": "2026-03-01T09:10:10.100Z",
                    "error": "it answered 503",
                    "next_try": "2026-03-01T09:10:30.100Z",
                }
            ],
        }
    ],
    "next_cursor": None,
}
CHANNEL_SPEC: dict[str, Any] = {
    "url": "https://hooks.example/rota",
    "secret": "at-least-sixteen-characters",
    "severity": "warning",
}
CHANNEL: dict[str, Any] = {
    "name": "on-call",
    "url": "https://hooks.example/…",
    "signed": True,
    "severity": "warning",
    "waiting": 0,
    "last": {
        "channel": "on-call",
        "status": "taken",
        "tries": 1,
        "at": "2026-03-01T08:00:00.000Z",
        "error": None,
        "next_try": None,
    },
}
CHANNELS: dict[str, Any] = {"items": [CHANNEL], "next_cursor": None}
ALERT_TRIAL: dict[str, Any] = {
    "holds": True,
    "value": 2710.4,
    "threshold": 1800.0,
    "unit": "s",
    "message": ALERT["message"],
    "tells": ["on-call"],
}
TRIAL: dict[str, Any] = {"taken": True, "message": "taken"}
