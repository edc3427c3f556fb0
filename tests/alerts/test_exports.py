"""Files for Prometheus and Grafana: promtool accepts them, and their metrics exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from rota.alerts.rules import DEFAULT_RULES, Condition
from tests.alerts.promtool import promtool
from tests.api.in_process_server import InProcessServer, open_server

NAME = re.compile(r"\b((?:rota|process)_[a-z_]+)\b")
ONLY_AMONG_OTHERS = ("rota_standby_lag_seconds",)
DEPLOY = files("rota.alerts").joinpath("deploy")


def rule_file() -> str:
    return DEPLOY.joinpath("prometheus-rules.yml").read_text("utf-8")


def dashboard() -> Any:
    return json.loads(DEPLOY.joinpath("grafana-dashboard.json").read_text("utf-8"))


def queries() -> Iterator[str]:
    board = dashboard()
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (note["expr"] for note in board["annotations"]["list"])


async def scrape(server: InProcessServer) -> str:
    await server.finish(await server.start(await server.register()))
    await server.submit()
    return (await server.http.get("/metrics")).text


async def test_every_query_names_metrics_that_exist() -> None:
    async with open_server() as server:
        scraped = re.findall(r"^(\w+?)(?:\{| )", await scrape(server), re.MULTILINE)
    rules = re.findall("expr: (.+)", rule_file())
    asked = {name for query in (*rules, *queries()) for name in NAME.findall(query)}
    assert len(asked) > 15
    assert sorted(asked - set(scraped) - set(ONLY_AMONG_OTHERS)) == []


def test_the_file_has_a_rule_for_each_condition_and_promtool_accepts_them(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(rule_file())
    run = promtool("check", "rules", str(file))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(Condition) + 1} rules found" in run.stdout


@pytest.mark.parametrize("condition", Condition)
def test_a_rule_of_the_file_equals_the_built_in_one(
    condition: Condition,
) -> None:
    rule = DEFAULT_RULES[condition.value]
    name = "".join(word.capitalize() for word in rule.name.split("_"))
    _, _, after = rule_file().partition(f"- alert: Rota{name}\n")
    entry, _, _ = after.partition("- alert: ")
    bound = "< 1073741824" if condition is Condition.DISK_LOW else f">= {rule.threshold:g}"
    assert bound in entry
    assert f"for: {rule.for_ms // 1000}s\n" in entry
    assert f"severity: {rule.severity.value}\n" in entry


async def test_promtool_accepts_the_answer_to_a_scrape() -> None:
    async with open_server() as server:
        scraped = await scrape(server)
    run = promtool("check", "metrics", given=scraped)
    assert run.returncode == 0, run.stdout + run.stderr


def test_each_rule_fires_in_promtool_on_metrics_that_meet_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rule_file())
    (tmp_path / "test.yml").write_text(_PROMTOOL_TEST)
    run = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_dashboard_has_panels_with_titles_and_queries() -> None:
    board = dashboard()
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in board["panels"]})
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["targets"]
    for query in queries():
        assert query.count("(") == query.count(")")


@pytest.mark.parametrize("query", list(queries()))
def test_promtool_accepts_each_query_of_the_dashboard(query: str, tmp_path: Path) -> None:
    """It is checked as a recording rule, with Grafana's variables filled in."""
    plain = query.replace("$__rate_interval", "1m").replace("$job", ".+")
    file = tmp_path / "rules.yml"
    file.write_text(
        "groups:\n- name: g\n  rules:\n  - record: a:b\n    expr: |\n      " + plain + "\n"
    )
    run = promtool("check", "rules", str(file))
    assert run.returncode == 0, run.stdout + run.stderr


_PROMTOOL_TEST = """
rule_files: [rules.yml]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
      - {series: 'rota_leader{job="cell"}', values: '1x60'}
      - {series: 'rota_epoch{job="cell"}', values: '4x20 5x40'}
      - {series: 'rota_jobs{job="cell",status="queued",queue="a"}', values: '0x10 0+100x50'}
      - {series: 'rota_jobs_finished_total{job="cell",status="failed",queue="a"}', values: '0+3x60'}
      - {series: 'rota_jobs_finished_total{job="cell",status="succeeded",queue="a"}', values: '0+5x60'}
      - {series: 'rota_ready_wait_seconds{job="cell"}', values: '900x60'}
      - {series: 'rota_workers{job="cell",status="online"}', values: '0x60'}
      - {series: 'rota_workers_lost{job="cell"}', values: '0x20 1x40'}
      - {series: 'rota_schedule_occurrences_total{job="cell",outcome="skipped",reason="missed"}', values: '0x20 1x40'}
      - {series: 'rota_deadlines_total{job="cell",outcome="at_risk"}', values: '0x20 1x40'}
      - {series: 'rota_deadlines_total{job="cell",outcome="missed"}', values: '0x20 1x40'}
      - {series: 'rota_schedule_lateness_seconds_bucket{job="cell",le="10.0"}', values: '0x60'}
      - {series: 'rota_schedule_lateness_seconds_bucket{job="cell",le="30.0"}', values: '0+1x60'}
      - {series: 'rota_schedule_lateness_seconds_bucket{job="cell",le="+Inf"}', values: '0+1x60'}
      - {series: 'rota_append_seconds_bucket{job="cell",le="0.5"}', values: '0x60'}
      - {series: 'rota_append_seconds_bucket{job="cell",le="1.0"}', values: '0+9x60'}
      - {series: 'rota_append_seconds_bucket{job="cell",le="+Inf"}', values: '0+9x60'}
      - {series: 'rota_projection_lag_seconds{job="cell"}', values: '60x60'}
      - {series: 'rota_quarantined_jobs{job="cell"}', values: '0x20 2x40'}
      - {series: 'rota_lost_records_total{job="cell",instance="a"}', values: '0x60'}
      - {series: 'rota_lost_records_total{job="cell",instance="b"}', values: '_x20 3x40'}
      - {series: 'rota_data_disk_free_bytes{job="cell"}', values: '1000x60'}
    promql_expr_test:
      - expr: count(ALERTS{alertstate="firing",job="cell"})
        eval_time: 18m
        exp_samples: [{labels: '{}', value: 16}]
  - interval: 30s
    input_series:
      - {series: 'rota_leader{job="calm"}', values: '1x60'}
      - {series: 'rota_epoch{job="calm"}', values: '4x60'}
      - {series: 'rota_jobs{job="calm",status="queued",queue="a"}', values: '5x60'}
      - {series: 'rota_jobs_finished_total{job="calm",status="failed",queue="a"}', values: '7x60'}
      - {series: 'rota_jobs_finished_total{job="calm",status="succeeded",queue="a"}', values: '0+9x60'}
      - {series: 'rota_ready_wait_seconds{job="calm"}', values: '9x60'}
      - {series: 'rota_workers{job="calm",status="online"}', values: '2x60'}
      - {series: 'rota_workers_lost{job="calm"}', values: '3x60'}
      - {series: 'rota_schedule_occurrences_total{job="calm",outcome="skipped",reason="missed"}', values: '8x60'}
      - {series: 'rota_deadlines_total{job="calm",outcome="missed"}', values: '8x60'}
      - {series: 'rota_deadlines_total{job="calm",outcome="met"}', values: '0+9x60'}
      - {series: 'rota_append_seconds_bucket{job="calm",le="0.5"}', values: '0+9x60'}
      - {series: 'rota_append_seconds_bucket{job="calm",le="+Inf"}', values: '0+9x60'}
      - {series: 'rota_projection_lag_seconds{job="calm"}', values: '0x60'}
      - {series: 'rota_quarantined_jobs{job="calm"}', values: '0x60'}
      - {series: 'rota_lost_records_total{job="calm"}', values: '7x60'}
      - {series: 'rota_data_disk_free_bytes{job="calm"}', values: '1000000000000x60'}
    promql_expr_test:
      - expr: count(ALERTS)
        eval_time: 18m
        exp_samples: []
"""  # noqa: E501  (one series a line reads best)
