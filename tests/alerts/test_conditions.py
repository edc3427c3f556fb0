"""Each condition: a history in which it holds, and one in which it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rota.alerts.conditions import describe, evaluate_rule
from rota.alerts.rules import CONDITION_INFOS, DEFAULT_RULES, Condition
from tests.alerts.sampled import Scene

Deed = Callable[[Scene], None]


def _slow(scene: Scene) -> None:
    scene.appends.note(0.002, times=100)
    scene.appends.note(0.9, times=10)
    scene.pass_by()


def _quick_with_one_hiccup(scene: Scene) -> None:
    scene.appends.note(0.002, times=100)
    scene.appends.note(0.9)
    scene.pass_by()


def _late(scene: Scene, seconds: float) -> None:
    scene.lateness.note(0.004, times=1_000)
    scene.lateness.note(seconds)
    scene.pass_by()


HOLDS: dict[Condition, Deed] = {
    Condition.BACKLOG_GROWS: lambda scene: scene.queue(waiting=1_500),
    Condition.WAIT: lambda scene: scene.queue(ready_ms=601_000),
    Condition.FAILURE_RATE: lambda scene: scene.queue(ended=100, failed=25),
    Condition.DEAD_LETTERS: lambda scene: scene.queue(ended=1_000, failed=1),
    Condition.WORKER_LOST: lambda scene: scene.pass_by(lost=(scene.now - 60_000,)),
    Condition.NO_WORKERS: lambda scene: scene.queue(waiting=3) or scene.pass_by(online=0),
    Condition.SCHEDULE_LATE: lambda scene: _late(scene, 45),
    Condition.SCHEDULE_MISSED: lambda scene: scene.pass_by(missed=1),
    Condition.DEADLINE_AT_RISK: lambda scene: scene.pass_by(at_risk=1),
    Condition.DEADLINE_MISSED: lambda scene: scene.pass_by(overdue=1),
    Condition.LEADER_CHANGED: lambda scene: scene.history.leader_changes.append(scene.now),
    Condition.STORE_SLOW: _slow,
    Condition.TABLES_BEHIND: lambda scene: scene.pass_by(behind_s=20.0),
    Condition.DISK_LOW: lambda scene: scene.pass_by(disk_free=1 << 29),
}
HOLDS_NOT: dict[Condition, Deed] = {
    Condition.BACKLOG_GROWS: lambda scene: scene.queue(waiting=900),
    Condition.WAIT: lambda scene: scene.queue(ready_ms=500_000, waiting=1_000_000),
    Condition.FAILURE_RATE: lambda scene: scene.queue(ended=10, failed=10),
    Condition.DEAD_LETTERS: lambda scene: scene.queue(ended=1_000),
    Condition.WORKER_LOST: lambda scene: scene.pass_by(lost=(scene.now - 3_600_000,)),
    Condition.NO_WORKERS: lambda scene: scene.pass_by(online=0),
    Condition.SCHEDULE_LATE: lambda scene: _late(scene, 4),
    Condition.SCHEDULE_MISSED: lambda scene: scene.pass_by(),
    Condition.DEADLINE_AT_RISK: lambda scene: scene.pass_by(overdue=1),
    Condition.DEADLINE_MISSED: lambda scene: scene.pass_by(at_risk=1),
    Condition.LEADER_CHANGED: lambda scene: scene.history.leader_changes.append(
        scene.now - 3_600_000
    ),
    Condition.STORE_SLOW: _quick_with_one_hiccup,
    Condition.TABLES_BEHIND: lambda scene: scene.pass_by(behind_s=2.0),
    Condition.DISK_LOW: lambda scene: scene.pass_by(disk_free=1 << 33),
}


@pytest.mark.parametrize("condition", Condition)
def test_a_condition_holds_when_it_should_and_not_before(condition: Condition) -> None:
    rule = DEFAULT_RULES[condition.value]
    for deed, holds in ((HOLDS[condition], True), (HOLDS_NOT[condition], False)):
        scene = Scene()
        scene.pass_by(700)
        deed(scene)
        finding = evaluate_rule(rule, scene.history)
        assert finding is not None
        assert finding.holds is holds, finding.said
        assert CONDITION_INFOS[condition].meaning in finding.said


def test_what_grew_before_the_window_counts_no_more() -> None:
    scene = Scene()
    scene.queue(waiting=5_000)
    scene.pass_by(900)
    finding = evaluate_rule(DEFAULT_RULES["backlog_grows"], scene.history)
    assert finding is not None
    assert not finding.holds


def test_a_rule_for_one_queue_looks_at_no_other() -> None:
    scene = Scene()
    scene.pass_by(700)
    scene.queue("gpu", ready_ms=0)
    scene.queue(ready_ms=9_000_000)
    rule = replace(DEFAULT_RULES["wait"], queue="gpu")
    finding = evaluate_rule(rule, scene.history)
    assert finding is not None
    assert not finding.holds
    scene.queue("gpu", ready_ms=9_000_000)
    finding = evaluate_rule(rule, scene.history)
    assert finding is not None
    assert finding.holds
    assert "of queue gpu: 9,000 s" in finding.said


def test_a_queue_that_is_named_only_now_does_not_seem_to_grow() -> None:
    scene = Scene()
    scene.pass_by(700)
    scene.queue("old", waiting=100_000)
    rule = replace(DEFAULT_RULES["backlog_grows"], queue="old")
    assert evaluate_rule(rule, scene.history) is None, (
        "what it was at the window's beginning is not known"
    )


def test_a_new_leader_cannot_say_that_something_is_over() -> None:
    scene = Scene()
    scene.pass_by(60)
    assert evaluate_rule(DEFAULT_RULES["dead_letters"], scene.history) is None
    scene.queue(ended=1, failed=1)
    finding = evaluate_rule(DEFAULT_RULES["dead_letters"], scene.history)
    assert finding is not None
    assert finding.holds


def test_one_of_something_is_not_told_as_many() -> None:
    told = describe(DEFAULT_RULES["dead_letters"], 42)
    assert told.startswith("dead letters: 42 jobs (from 1 job);")
    assert describe(replace(DEFAULT_RULES["schedule_late"], threshold=1), 3).startswith(
        "schedule late: 3 s (from 1 s);"
    )
