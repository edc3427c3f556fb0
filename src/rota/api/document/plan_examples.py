"""Examples of planning for the OpenAPI document; a test reads each with the type it stands for."""

from __future__ import annotations

from typing import Any

from rota.api.document.examples import AT

_ARRIVAL: dict[str, Any] = {"jobs_per_second": 0.4, "work_per_second": 6.0}
_CREW: dict[str, Any] = {"online": 3, "idle": 0, "needed": 5, "add": 2, "remove": 0}
_SUMS: dict[str, Any] = {
    "runs": 1200,
    "cpu_hours_asked": 40.0,
    "cpu_hours_used": 11.5,
    "cpu_hours_wasted": 28.5,
    "memory_gib_hours_asked": 20.0,
    "memory_gib_hours_used": 6.25,
    "memory_gib_hours_wasted": 13.75,
}

AUTOSCALE: dict[str, Any] = {
    "at": AT,
    "target": 300,
    "jobs": 240,
    "work": 3600.0,
    "running": 12,
    "arrival": _ARRIVAL,
    "workers": _CREW,
    "stranded": 0,
    "queues": {
        "default": {
            "jobs": 240,
            "work": 3600.0,
            "running": 12,
            "arrival": _ARRIVAL,
            "workers": _CREW,
            "stranded": 0,
            "paused": False,
            "shapes": [
                {
                    "requirements": {
                        "cpu": 1,
                        "memory": 268435456,
                        "storage": 0,
                        "gpu": 0,
                        "custom": {},
                        "capabilities": [],
                    },
                    "jobs": 240,
                    "work": 3600.0,
                    "running": 12,
                    "arrival": _ARRIVAL,
                    "slots": 18.6,
                    "per_worker": 4,
                    "kind": 0,
                }
            ],
        }
    },
    "kinds": [
        {
            "size": {"cpu": 4, "memory": 8589934592, "storage": 0, "gpu": 0, "custom": {}},
            "capabilities": ["linux"],
            "queues": None,
            "only": [],
            "workers": _CREW,
        }
    ],
}

WASTE: dict[str, Any] = {
    "since": AT,
    "sums": _SUMS,
    "tenants": [{"tenant": "default", "sums": _SUMS}],
    "items": [
        {
            "tenant": "default",
            "name": "invoice",
            "sums": _SUMS,
            "asked": {"cpu": 2, "memory": 1073741824},
            "used": {
                "cpu": {"p50": 0.5, "p95": 0.75, "max": 0.9},
                "memory": {"p50": 335544320, "p95": 402653184, "max": 419430400},
                "runtime": {"p50": 58.0, "p95": 75.0, "max": 91.2},
            },
            "suggestion": {"cpu": 0.8, "memory": 503316480},
        }
    ],
}

SIMULATION_SPEC: dict[str, Any] = {
    "from": "2026-01-24T00:00:00Z",
    "to": "2026-01-31T00:00:00Z",
    "workers": 5,
    "policies": ["recorded", "current", "easy"],
}
_TRIAL: dict[str, Any] = {
    "avg_wait": 41.2,
    "p50_wait": 3.0,
    "p95_wait": 190.5,
    "max_wait": 900.0,
    "slowdown": 3.4,
    "utilisation": 0.71,
    "makespan": 604000.0,
    "preemptions": 0,
    "peak_waiting": 310,
    "waits": [12.0, None],
    "uses": [0.62, 0.8],
}
SIMULATION: dict[str, Any] = {
    "from": AT,
    "jobs": 12840,
    "left_out": 3,
    "is_cut": False,
    "workers": 5,
    "cpus": 40.0,
    "load": 0.68,
    "span": 604000.0,
    "policies": [{"policy": "recorded", **_TRIAL}, {"policy": "easy", **_TRIAL}],
}
TRACE = "; MaxProcs: 4\n" + "".join(
    f"{number} {60 * number} 0 300 2 -1 -1 2 600 -1 1 1 1 1 1 -1 -1 -1\n" for number in range(1, 4)
)
"""Three jobs of two processors and five minutes, a minute apart."""
TRACED: dict[str, Any] = {**SIMULATION, "from": None, "is_cut": True}
