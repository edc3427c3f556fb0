"""Alert conditions: for each a history in which it holds, and one in which it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rota.alerts.conditions import describe, evaluate_rule
from rota.alerts.rules import CONDITION_INFOS, DEFAULT_RULES, Condition
from rota.store.protocol import Loss, Seq
from tests.alerts.sampled import Samples

Change = Callable[[Samples], None]


def _slow(samples: Samples) -> None:
    samples.appends.note(0.002, times=100)
    samples.appends.note(0.9, times=10)
    samples.pass_by()


def _quick_with_one_hiccup(samples: Samples) -> None:
    samples.appends.note(0.002, times=100)
    samples.appends.note(0.9)
    samples.pass_by()


def _late(samples: Samples, seconds: float) -> None:
    samples.lateness.note(0.004, times=1_000)
    samples.lateness.note(seconds)
    samples.pass_by()


HOLDS: dict[Condition, Change] = {
    Condition.BACKLOG_GROWS: lambda samples: samples.queue(waiting=1_500),
    Condition.WAIT: lambda samples: samples.queue(ready_ms=601_000),
    Condition.FAILURE_RATE: lambda samples: samples.queue(ended=100, failed=25),
    Condition.DEAD_LETTERS: lambda samples: samples.queue(ended=1_000, failed=1),
    Condition.WORKER_LOST: lambda samples: samples.pass_by(lost=(samples.now - 60_000,)),
    Condition.NO_WORKERS: lambda samples: samples.queue(waiting=3) or samples.pass_by(online=0),
    Condition.SCHEDULE_LATE: lambda samples: _late(samples, 45),
    Condition.SCHEDULE_MISSED: lambda samples: samples.pass_by(missed=1),
    Condition.DEADLINE_AT_RISK: lambda samples: samples.pass_by(at_risk=1),
    Condition.DEADLINE_MISSED: lambda samples: samples.pass_by(overdue=1),
    Condition.LEADER_CHANGED: lambda samples: samples.history.leader_changes.append(samples.now),
    Condition.STORE_SLOW: _slow,
    Condition.TABLES_BEHIND: lambda samples: samples.pass_by(behind_s=20.0),
    Condition.JOBS_QUARANTINED: lambda samples: samples.pass_by(quarantined=1),
    Condition.RECORDS_LOST: lambda samples: samples.pass_by(
        losses=(Loss(samples.now - 60_000, 0, Seq(9)),)
    ),
    Condition.DISK_LOW: lambda samples: samples.pass_by(disk_free=1 << 29),
}
HOLDS_NOT: dict[Condition, Change] = {
    Condition.BACKLOG_GROWS: lambda samples: samples.queue(waiting=900),
    Condition.WAIT: lambda samples: samples.queue(ready_ms=500_000, waiting=1_000_000),
    Condition.FAILURE_RATE: lambda samples: samples.queue(ended=10, failed=10),
    Condition.DEAD_LETTERS: lambda samples: samples.queue(ended=1_000),
    Condition.WORKER_LOST: lambda samples: samples.pass_by(lost=(samples.now - 3_600_000,)),
    Condition.NO_WORKERS: lambda samples: samples.pass_by(online=0),
    Condition.SCHEDULE_LATE: lambda samples: _late(samples, 4),
    Condition.SCHEDULE_MISSED: lambda samples: samples.pass_by(),
    Condition.DEADLINE_AT_RISK: lambda samples: samples.pass_by(overdue=1),
    Condition.DEADLINE_MISSED: lambda samples: samples.pass_by(at_risk=1),
    Condition.LEADER_CHANGED: lambda samples: samples.history.leader_changes.append(
        samples.now - 3_600_000
    ),
    Condition.STORE_SLOW: _quick_with_one_hiccup,
    Condition.TABLES_BEHIND: lambda samples: samples.pass_by(behind_s=2.0),
    Condition.JOBS_QUARANTINED: lambda samples: samples.pass_by(),
    Condition.RECORDS_LOST: lambda samples: samples.pass_by(
        losses=(Loss(samples.now - 3_700_000, 5, Seq(9)),)
    ),
    Condition.DISK_LOW: lambda samples: samples.pass_by(disk_free=1 << 33),
}


@pytest.mark.parametrize("condition", Condition)
def test_a_condition_holds_from_its_threshold_on(condition: Condition) -> None:
    rule = DEFAULT_RULES[condition.value]
    for change, holds in ((HOLDS[condition], True), (HOLDS_NOT[condition], False)):
        samples = Samples()
        samples.pass_by(700)
        change(samples)
        finding = evaluate_rule(rule, samples.history)
        assert finding is not None
        assert finding.holds is holds, finding.said
        assert CONDITION_INFOS[condition].meaning in finding.said


def test_a_backlog_that_grew_before_the_window_does_not_fire() -> None:
    samples = Samples()
    samples.queue(waiting=5_000)
    samples.pass_by(900)
    finding = evaluate_rule(DEFAULT_RULES["backlog_grows"], samples.history)
    assert finding is not None
    assert not finding.holds


def test_a_rule_for_one_queue_looks_at_no_other() -> None:
    samples = Samples()
    samples.pass_by(700)
    samples.queue("gpu", ready_ms=0)
    samples.queue(ready_ms=9_000_000)
    rule = replace(DEFAULT_RULES["wait"], queue="gpu")
    finding = evaluate_rule(rule, samples.history)
    assert finding is not None
    assert not finding.holds
    samples.queue("gpu", ready_ms=9_000_000)
    finding = evaluate_rule(rule, samples.history)
    assert finding is not None
    assert finding.holds
    assert "of queue gpu: 9,000 s" in finding.said


def test_a_queue_that_a_rule_names_only_now_does_not_seem_to_grow() -> None:
    samples = Samples()
    samples.pass_by(700)
    samples.queue("old", waiting=100_000)
    rule = replace(DEFAULT_RULES["backlog_grows"], queue="old")
    assert evaluate_rule(rule, samples.history) is None, (
        "its values at the window's beginning are unknown"
    )


def test_a_new_leader_does_not_say_that_a_condition_has_ended() -> None:
    samples = Samples()
    samples.pass_by(60)
    assert evaluate_rule(DEFAULT_RULES["dead_letters"], samples.history) is None
    samples.queue(ended=1, failed=1)
    finding = evaluate_rule(DEFAULT_RULES["dead_letters"], samples.history)
    assert finding is not None
    assert finding.holds


def test_a_message_has_units_in_singular_and_plural() -> None:
    message = describe(DEFAULT_RULES["dead_letters"], 42)
    assert message.startswith("dead letters: 42 jobs (from 1 job);")
    assert describe(replace(DEFAULT_RULES["schedule_late"], threshold=1), 3).startswith(
        "schedule late: 3 s (from 1 s);"
    )
