"""The built-in rules as a rule file for Prometheus, for those who have their alerts there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from rota.alerts.rules import DEFAULTS, SENSES, Condition, Rule
from rota.core.model import Millis
from rota.core.times.slack import AT_RISK, MISSED

_WAITING = 'sum by (job) (rota_jobs{status="queued"})'
_HEAD = """\
# Rota's built-in alerts as rules for Prometheus. Written by `rota alerts rules`.
# Figures of a whole cell are told by its leader alone, so sums over all servers are right; the
# job label of the scrape tells cells apart.
groups:
  - name: rota
    rules:
      - alert: RotaNobodyLeads
        expr: sum by (job) (rota_leader) == 0
        for: 1m
        labels:
          severity: critical
        annotations:
          summary: no server of {{ $labels.job }} leads
          description: nothing starts; look at the servers' logs and at the store
"""


def rule_file() -> str:
    """YAML, as `promtool check rules` takes it."""
    return _HEAD + "".join(_entry(rule) for rule in DEFAULTS.values())


def _entry(rule: Rule) -> str:
    sense = SENSES[rule.condition]
    name = "Rota" + "".join(word.capitalize() for word in rule.name.split("_"))
    lines = (
        f"      - alert: {name}",
        f"        expr: {json.dumps(_EXPRESSIONS[rule.condition](rule))}",
        f"        for: {_span(rule.for_ms)}",
        "        labels:",
        f"          severity: {rule.severity.value}",
        "        annotations:",
        f"          summary: {rule.name.replace('_', ' ')} in {{{{ $labels.job }}}}",
        f"          description: {json.dumps(f'{sense.meaning}: {{{{ $value }}}} {sense.unit}')}",
    )
    return "\n".join(lines) + "\n"


def _span(length_ms: Millis) -> str:
    return f"{length_ms // 1000}s"


def _ended(states: str, rule: Rule) -> str:
    series = f'rota_jobs_finished_total{{status=~"{states}"}}'
    return f"sum by (job) (increase({series}[{_span(rule.window_ms)}]))"


def _quantile(name: str, part: float, rule: Rule) -> str:
    rate = f"rate({name}_bucket[{_span(rule.window_ms)}])"
    return f"histogram_quantile({part:g}, sum by (job, le) ({rate}))"


def _growth(rule: Rule) -> str:
    then = f'sum by (job) (rota_jobs{{status="queued"}} offset {_span(rule.window_ms)})'
    return f"{_WAITING} - {then} >= {rule.threshold:g}"


def _failure_rate(rule: Rule) -> str:
    ended = _ended("failed|succeeded", rule)
    rate = f"{_ended('failed', rule)} / {ended}"
    return f"{rate} >= {rule.threshold:g} and {ended} >= {rule.at_least}"


def _unserved(rule: Rule) -> str:
    there = 'sum by (job) (rota_workers{status!="offline"})'
    return f"{_WAITING} >= {rule.threshold:g} and {there} == 0"


def _missed(rule: Rule) -> str:
    series = 'rota_schedule_occurrences_total{reason=~"missed|too_old|backlog"}'
    return f"sum by (job) (increase({series}[{_span(rule.window_ms)}])) >= {rule.threshold:g}"


def _deadlines(verdict: str, rule: Rule) -> str:
    series = f'rota_deadlines_total{{outcome="{verdict}"}}'
    return f"sum by (job) (increase({series}[{_span(rule.window_ms)}])) >= {rule.threshold:g}"


def _leaders(rule: Rule) -> str:
    then = f"min by (job) (min_over_time(rota_epoch[{_span(rule.window_ms)}]))"
    return f"max by (job) (rota_epoch) - {then} >= {rule.threshold:g}"


def _lost(rule: Rule) -> str:
    then = f"min_over_time(rota_workers_lost[{_span(rule.window_ms)}])"
    return f"max by (job) (rota_workers_lost - {then}) >= {rule.threshold:g}"


def _lateness(rule: Rule) -> str:
    return f"{_quantile('rota_schedule_lateness_seconds', 1, rule)} >= {rule.threshold:g}"


def _slow(rule: Rule) -> str:
    return f"{_quantile('rota_append_seconds', 0.95, rule)} >= {rule.threshold:g}"


_EXPRESSIONS: Mapping[Condition, Callable[[Rule], str]] = {
    Condition.BACKLOG_GROWS: _growth,
    Condition.WAIT: lambda rule: f"max by (job) (rota_ready_wait_seconds) >= {rule.threshold:g}",
    Condition.FAILURE_RATE: _failure_rate,
    Condition.DEAD_LETTERS: lambda rule: f"{_ended('failed', rule)} >= {rule.threshold:g}",
    Condition.WORKER_LOST: _lost,
    Condition.NO_WORKERS: _unserved,
    Condition.SCHEDULE_LATE: _lateness,
    Condition.SCHEDULE_MISSED: _missed,
    Condition.DEADLINE_AT_RISK: partial(_deadlines, AT_RISK),
    Condition.DEADLINE_MISSED: partial(_deadlines, MISSED),
    Condition.LEADER_CHANGED: _leaders,
    Condition.STORE_SLOW: _slow,
    Condition.TABLES_BEHIND: lambda rule: (
        f"max by (job) (rota_fold_lag_seconds) >= {rule.threshold:g}"
    ),
    Condition.DISK_LOW: lambda rule: (
        f"min by (job) (rota_data_disk_free_bytes) < {rule.threshold:.0f}"
    ),
}
