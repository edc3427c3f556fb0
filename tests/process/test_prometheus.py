"""Prometheus scrapes a real server and evaluates the shipped rules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.alerts.promtool import need_prometheus
from tests.process.cell import Cell, free_port, shell, until

pytestmark = [pytest.mark.process, pytest.mark.slow]

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: cell
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def test_a_real_prometheus_reads_the_figures_and_the_rules(cell: Cell, tmp_path: Path) -> None:
    need_prometheus()
    cell.up("--workers", "1")
    client = cell.client()
    done = client.submit(shell("true"))
    broken = client.submit(shell("exit 3", "broken"))
    cell.until_status(client, done.job_id, "succeeded")
    cell.until_status(client, broken.job_id, "failed")
    port = free_port()
    prometheus = start(cell, tmp_path, port)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=10) as asking:
            ask = Asking(asking)
            until(lambda: ask.value("rota_leader") == 1, "a first scrape")
            assert ask.value("rota_jobs_submitted_total") == 2
            assert ask.value('rota_jobs_finished_total{status="failed"}') == 1
            assert ask.value("rota_job_run_seconds_count") == 2
            assert ask.value('up{job="cell"}') == 1
            rules = ask.get("rules")["groups"][0]["rules"]
            until(
                lambda: (
                    {rule["health"] for rule in ask.get("rules")["groups"][0]["rules"]} == {"ok"}
                ),
                "a look at every rule",
            )
            assert len(rules) == 17
            target = ask.get("targets")["activeTargets"][0]
            assert (target["health"], target["lastError"]) == ("up", "")
    finally:
        prometheus.terminate()
        prometheus.wait(30)


class Asking:
    """The HTTP API of Prometheus."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def get(self, path: str, **params: str) -> Any:
        try:
            answer = self._http.get(path, params=params)
        except httpx2.TransportError:
            return None
        return json.loads(answer.text)["data"] if answer.is_success else None

    def value(self, query: str) -> float | None:
        """Of the one series that it finds."""
        found = self.get("query", query=query)
        return float(found["result"][0]["value"][1]) if found and found["result"] else None


def start(cell: Cell, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """On loopback, with the cell's token and the rules as the command prints them."""
    rules, config = folder / "rules.yml", folder / "prometheus.yml"
    rules.write_text(cell.run("alerts", "rules").stdout)
    config.write_text(CONFIG.format(rules=rules, token=cell.token, port=cell.port))
    with (folder / "prometheus.log").open("wb") as said:
        return subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=said,
            stderr=subprocess.STDOUT,
        )
