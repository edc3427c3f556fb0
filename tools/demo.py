"""Fills a server with sample jobs through its API.

For the dashboard and its pictures. The jobs are shell commands that sleep, print and fail.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

SHELL = "/bin/sh"
NOISE = (
    r"""printf '\033[36m%s\033[0m starting {name}\n' "$(date +%T)"; """
    r"""for i in $(seq 1 {steps}); do """
    r"""printf '\033[32mINFO\033[0m  batch %s of {steps}: 500 rows in \033[1m%s ms\033[0m\n' """
    r""""$i" "$((40 + i * 7 % 90))"; """
    r"""echo "$(awk "BEGIN {{print $i/{steps}}}") batch $i" > "$ROTA_PROGRESS"; """
    r"""sleep {pause}; done; """
    r"""printf '\033[33mWARN\033[0m  3 rows skipped: no customer\n'; {end}"""
)
FAILURES = (
    ("send-invoice", 'echo "smtp: 451 try later" >&2; exit 75', "mail", 9),
    ("resize-image", 'echo "cannot identify image file" >&2; exit 3', "media", 6),
    ("sync-crm", 'echo "HTTP 503 from crm" >&2; exit 1', "default", 4),
    ("import-orders", 'echo "column \\"total\\" does not exist" >&2; exit 2', "etl", 2),
)
SCHEDULES: Sequence[Mapping[str, Any]] = (
    {"name": "nightly-backup", "cron": "0 3 * * *", "timezone": "Europe/Berlin"},
    {"name": "invoices", "cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"},
    {"name": "month-end", "cron": "30 22 L * *", "timezone": "America/New_York"},
    {"name": "heartbeat", "interval": "20s", "overlap": "skip"},
    {"name": "dst-check", "cron": "30 2 * * *", "timezone": "America/New_York"},
)


TENANTS = {"shop": 3, "research": 1, "internal": 1}
RENDER = (
    r"""[ "$ROTA_ATTEMPT" = 1 ] && { echo "printer: paper jam" >&2; exit 9; }; """
    r"""echo '{"pages": 3, "total": "129.90"}' > "$ROTA_RESULT"; """
    r"""echo "%PDF-1.7" > "$ROTA_ARTIFACTS/invoice.pdf"; echo rendered 3 pages"""
)


class Demo:
    """Fills one server; random choices are the same each time."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=30)
        self._rng = random.Random(7)
        self.stopping = threading.Event()
        """Ends a trickle before its time."""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        if answer.is_error:
            raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def seed(self, scale: int = 1) -> None:
        self._queues()
        self._tenants()
        self._failing()
        self._quick(40 * scale)
        self._pipeline()
        self._running()
        self._rich()
        self._waiting()
        self._schedules()
        self._alerts()
        self._triggers()

    def trickle(self, seconds: float) -> None:
        """Submits jobs for a while, so that charts have data."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stopping.wait(1):
            self._quick(self._rng.randint(2, 9))
            if self._rng.random() < 0.25:
                self._fail(*self._rng.choice(FAILURES)[:3], count=1)

    def _submit(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        answer = self.ask("POST", "/jobs/batch", {"jobs": list(jobs)})
        return list(answer["job_ids"])

    def _queues(self) -> None:
        for name, settings in {
            "mail": {"rate_limit": {"count": 600, "per": "1m"}, "weight": 2},
            "etl": {"max_workers": 6, "weight": 3},
            "media": {"max_workers": 4},
            "ml": {"priority": 10},
            "reports": {"paused": True},
        }.items():
            self.ask("PUT", f"/queues/{name}", settings)

    def _tenants(self) -> None:
        for name, weight in TENANTS.items():
            self.ask("PUT", f"/tenants/{name}", {"weight": weight, "quota": {"queued": 100_000}})

    def _failing(self) -> None:
        for name, script, queue, count in FAILURES:
            self._fail(name, script, queue, count=count)

    def _fail(self, name: str, script: str, queue: str, *, count: int) -> None:
        self._submit([_shell(name, script, queue=queue, requirements=_cpu(0.1))] * count)

    def _quick(self, count: int) -> None:
        names = ("send-mail", "resize-image", "thumbnail", "webhook", "index-page", "score-lead")
        teams = ("billing", "growth", "platform")
        jobs = []
        for _ in range(count):
            name, pause = self._rng.choice(names), self._rng.choice((0.02, 0.05, 0.1, 0.4))
            labels = {"team": self._rng.choice(teams), "env": "prod"}
            queue = {"send-mail": "mail", "resize-image": "media"}.get(name, "default")
            script = f"echo {name} done in {pause}; sleep {pause}"
            more = {"queue": queue, "labels": labels, "tenant": self._rng.choice([*TENANTS])}
            jobs.append(_shell(name, script, requirements=_cpu(0.2), **more))
        self._submit(jobs)

    def _pipeline(self) -> None:
        """Submits a graph (extract, transform, load, report) with one step that fails."""
        jobs: list[dict[str, Any]] = []
        for part in range(12):
            extract = _shell(f"extract-{part:02}", "sleep 0.3", queue="etl", ref=f"e{part}")
            script = "exit 4" if part == 7 else "sleep 0.5"
            after = [f"ref:e{part}"]
            transform = _shell(
                f"transform-{part:02}", script, queue="etl", ref=f"t{part}", dependencies=after
            )
            jobs += [extract, transform]
        good = [f"ref:t{part}" for part in range(12) if part != 7]
        jobs.append(_shell("load-warehouse", "sleep 8", queue="etl", ref="load", dependencies=good))
        jobs.append(_shell("load-archive", "sleep 1", queue="etl", dependencies=["ref:t7"]))
        report = {"dependencies": ["ref:load"], "labels": {"team": "finance"}}
        jobs.append(_shell("daily-report", "sleep 3", queue="etl", ref="report", **report))
        jobs.append(_shell("notify", "true", queue="mail", dependencies=["ref:report"]))
        self._submit([{**job, "requirements": _cpu(0.3)} for job in jobs])

    def _running(self) -> None:
        jobs = [
            _shell("train-model", _noise("train-model", 90, 2), queue="ml", labels={"team": "ml"}),
            _shell("rebuild-index", _noise("rebuild-index", 120, 1), labels={"team": "search"}),
            _shell("export-customers", _noise("export-customers", 60, 2), queue="etl"),
        ]
        self._submit([{**job, "requirements": _cpu(1)} for job in jobs])

    def _rich(self) -> None:
        """Submits a job with all details, an array, and a job that gets a reservation."""
        retry = {"max_attempts": 3, "delay": "1s"}
        payload = {"customer": 42, "month": "2026-01", "lines": [3, 5, 8]}
        render = _shell("render-invoice", RENDER, payload=payload, retry=retry, timeout="5m")
        array = _shell(
            "score-segment", "sleep 12", labels={"team": "growth"}, count=48, max_parallel=12
        )
        long = {"queue": "ml", "expected_runtime": "4m"}
        fine_tune = _shell("fine-tune", _noise("fine-tune", 120, 2), **long)
        self._submit(
            [
                {**render, "requirements": {"cpu": 0.5, "memory": "64MiB", "storage": "10MiB"}},
                {**array, "requirements": _cpu(0.2)},
                {**fine_tune, "requirements": {"cpu": 1, "memory": "1GiB", "gpu": 2}},
            ]
        )
        needs = {"cpu": 6, "memory": "32GiB", "gpu": 2}
        self._submit([_shell("evaluate-model", "sleep 5", requirements=needs, **long)])

    def _waiting(self) -> None:
        big = {"cpu": 64, "memory": "512GiB", "gpu": 8}
        later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3 * 3600))
        self._submit(
            [
                _shell("simulate-climate", "sleep 5", queue="ml", requirements=big),
                _shell("weekly-digest", "sleep 1", queue="reports"),
                _shell("weekly-digest", "sleep 1", queue="reports"),
                {**_shell("send-reminders", "sleep 1", queue="mail"), "run_at": later},
            ]
        )

    def _alerts(self) -> None:
        """Creates a rule, a silence, and a channel whose receiver does not answer."""
        self.ask("PUT", "/alert-channels/on-call", {"url": "http://127.0.0.1:9/rota"})
        rule = {"condition": "wait", "queue": "gpu", "threshold": 300, "severity": "critical"}
        self.ask("PUT", "/alerts/gpu-wait", {**rule, "channels": ["on-call"]})
        body = {"for": "2h", "reason": "moving racks"}
        self.ask("PUT", "/alerts/worker_lost/silence", body)

    def _schedules(self) -> None:
        for schedule in SCHEDULES:
            job = {**_shell(str(schedule["name"]), "sleep 1"), "requirements": _cpu(0.1)}
            self.ask("POST", "/schedules", {**schedule, "job": job})

    def _triggers(self) -> None:
        job = {**_shell("import-file", "cat $ROTA_PAYLOAD"), "requirements": _cpu(0.1)}
        wanted = {"event": "object.uploaded", "filter": "data.size > 1000", "job": job}
        self.ask("POST", "/triggers", {"name": "uploads", **wanted})
        self.ask(
            "POST",
            "/triggers",
            {
                "name": "orders",
                "event": "shop.order.*",
                "batch": {"size": 3, "wait": "5s"},
                "job": job,
            },
        )
        for number in range(8):
            kind = "object.uploaded" if number % 2 else "shop.order.created"
            data = {"path": f"/in/{number}.csv", "size": number * 400}
            event = {"id": f"e{number}", "source": "shop", "type": kind, "data": data}
            self.ask("POST", "/events", event)


def _noise(name: str, steps: int, pause: float) -> str:
    return NOISE.format(name=name, steps=steps, pause=pause, end="echo done")


def _cpu(amount: float) -> dict[str, Any]:
    return {"cpu": amount, "memory": "64MiB"}


def _shell(name: str, script: str, **more: Any) -> dict[str, Any]:
    task = {"kind": "command", "argv": [SHELL, "-c", script]}
    return {"name": name, "task": task, **more}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default=os.environ.get("ROTA_URL", "http://127.0.0.1:7070"))
    parser.add_argument("--token", default=os.environ.get("ROTA_TOKEN", ""))
    parser.add_argument("--for", dest="seconds", type=float, default=0, help="go on for so long")
    chosen = parser.parse_args(arguments)
    demo = Demo(chosen.url, chosen.token)
    demo.seed()
    demo.trickle(chosen.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
