"""Compares the figures with one rule. Pure: what was seen comes in, what it means goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from rota.alerts.figures import QueueSample, SampleHistory, exceeded_by, measured_between
from rota.alerts.rules import CONDITION_INFOS, AlertRule, Condition

ONE_IN_TWENTY = 0.05
ANY = 0.0
AT_ONCE = (Condition.WAIT, Condition.NO_WORKERS, Condition.TABLES_BEHIND, Condition.DISK_LOW)
"""What one look tells; the others compare with the beginning of the window."""


class Finding(msgspec.Struct, frozen=True):
    """What a rule's figure is, and whether that is what it watches for."""

    value: float
    holds: bool
    said: str
    """For people."""


Measure = Callable[[AlertRule, SampleHistory], float | None]
"""A rule's figure; None: there is too little to tell."""


def evaluate_rule(rule: AlertRule, history: SampleHistory) -> Finding | None:
    """None: nothing can be said yet."""
    value = _MEASURES[rule.condition](rule, history)
    if value is None:
        return None
    below = rule.condition is Condition.DISK_LOW
    holds = value < rule.threshold if below else value >= rule.threshold
    seen = rule.condition in AT_ONCE or history.covers(rule.window_ms, rule.queue)
    if not holds and not seen:
        # A new leader has not seen what an old one saw, nor anybody a queue that no rule named
        # before: that it is over cannot be said yet.
        return None
    return Finding(value, holds, describe(rule, value))


def describe(rule: AlertRule, value: float) -> str:
    """One line: what is watched for, where, the figure and the threshold."""
    sense = CONDITION_INFOS[rule.condition]
    place = f" of queue {rule.queue}" if rule.queue else ""
    limit = "at most" if rule.condition is Condition.DISK_LOW else "from"
    figure = f"{_amount(value, sense.unit)} ({limit} {_amount(rule.threshold, sense.unit)})"
    return f"{rule.condition.value.replace('_', ' ')}{place}: {figure}; {sense.meaning}"


def _amount(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value:.1%}"
    if unit == "bytes":
        return f"{value / (1 << 30):.2f} GiB"
    if value == 1 and unit != "s":
        return f"1 {unit.removesuffix('s')}"
    shown = f"{value:g}" if value < 1_000 else f"{value:,.0f}"
    return f"{shown} {unit}"


def _queue(rule: AlertRule, history: SampleHistory) -> tuple[QueueSample, QueueSample]:
    nothing = QueueSample()
    now = history.newest.queues.get(rule.queue, nothing)
    # A queue that was not looked at then begins with what it is now.
    return history.before(rule.window_ms).queues.get(rule.queue, now), now


def _growth(rule: AlertRule, history: SampleHistory) -> float | None:
    then, now = _queue(rule, history)
    return now.waiting - then.waiting


def _wait(rule: AlertRule, history: SampleHistory) -> float | None:
    return _queue(rule, history)[1].ready_ms / 1000


def _failure_rate(rule: AlertRule, history: SampleHistory) -> float | None:
    then, now = _queue(rule, history)
    ended = now.ended - then.ended
    return 0.0 if ended < rule.at_least else (now.failed - then.failed) / ended


def _exhausted_jobs(rule: AlertRule, history: SampleHistory) -> float | None:
    then, now = _queue(rule, history)
    return now.failed - then.failed


def _lost_workers(rule: AlertRule, history: SampleHistory) -> float | None:
    edge = history.newest.wall - rule.window_ms
    return sum(at >= edge for at in history.newest.lost)


def _unserved(rule: AlertRule, history: SampleHistory) -> float | None:
    newest = history.newest
    return 0 if newest.online else newest.queues[""].waiting


def _lateness(rule: AlertRule, history: SampleHistory) -> float | None:
    then = history.before(rule.window_ms)
    return exceeded_by(measured_between(then.lateness, history.newest.lateness), ANY)


def _missed(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.missed - history.before(rule.window_ms).missed


def _at_risk(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.at_risk - history.before(rule.window_ms).at_risk


def _overdue(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.overdue - history.before(rule.window_ms).overdue


def _leaders(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.leader_changes_within(rule.window_ms)


def _slow_appends(rule: AlertRule, history: SampleHistory) -> float | None:
    then = history.before(rule.window_ms)
    found = measured_between(then.appends, history.newest.appends)
    enough = sum(count for _, count in found) >= rule.at_least
    return exceeded_by(found, ONE_IN_TWENTY) if enough else 0.0


def _behind(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.behind_s


def _disk(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.disk_free


_MEASURES: Mapping[Condition, Measure] = {
    Condition.BACKLOG_GROWS: _growth,
    Condition.WAIT: _wait,
    Condition.FAILURE_RATE: _failure_rate,
    Condition.DEAD_LETTERS: _exhausted_jobs,
    Condition.WORKER_LOST: _lost_workers,
    Condition.NO_WORKERS: _unserved,
    Condition.SCHEDULE_LATE: _lateness,
    Condition.SCHEDULE_MISSED: _missed,
    Condition.DEADLINE_AT_RISK: _at_risk,
    Condition.DEADLINE_MISSED: _overdue,
    Condition.LEADER_CHANGED: _leaders,
    Condition.STORE_SLOW: _slow_appends,
    Condition.TABLES_BEHIND: _behind,
    Condition.DISK_LOW: _disk,
}
