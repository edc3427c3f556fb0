"""The state machine of alerts: one notification when a rule fires, one when it resolves."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from rota.alerts.conditions import Finding
from rota.alerts.rules import DEFAULT_RULES, AlertSettings, Silence
from rota.alerts.state import AlertState, Notification, NotificationKind, RuleStatus

YES, NO = Finding(7, holds=True, said="seven"), Finding(0, holds=False, said="none")
RULE = replace(DEFAULT_RULES["wait"], for_ms=60_000)
SETTINGS = AlertSettings(rules={"wait": RULE})
MINUTE = 60_000


def advance(
    state: AlertState, finding: Finding | None, now: int, settings: AlertSettings = SETTINGS
) -> list[Notification]:
    return state.advance(settings, {"wait": finding}, now)


def fire(state: AlertState) -> None:
    advance(state, YES, 0)
    assert [one.news for one in advance(state, YES, MINUTE)] == [NotificationKind.FIRING]


def test_a_rule_fires_after_its_condition_has_held_for_long_enough() -> None:
    state = AlertState()
    assert advance(state, YES, 0) == []
    assert state.places["wait"].state is RuleStatus.PENDING
    assert advance(state, YES, MINUTE - 1) == []
    (notification,) = advance(state, YES, MINUTE)
    assert (notification.rule, notification.news, notification.since, notification.said) == (
        "wait",
        "firing",
        0,
        "seven",
    )


def test_a_condition_that_ends_sooner_does_not_fire() -> None:
    state = AlertState()
    advance(state, YES, 0)
    assert advance(state, NO, 30_000) == []
    assert advance(state, YES, 50_000) == []
    assert advance(state, YES, MINUTE + 1) == []


def test_a_rule_that_fires_on_sends_one_notification() -> None:
    state = AlertState()
    fire(state)
    assert [advance(state, YES, MINUTE * n) for n in range(2, 200)] == [[]] * 198


def test_a_rule_resolves_after_its_condition_has_ended_for_as_long() -> None:
    state = AlertState()
    fire(state)
    assert advance(state, NO, 2 * MINUTE) == []
    assert advance(state, YES, 3 * MINUTE - 1) == []  # it holds again
    assert advance(state, NO, 4 * MINUTE) == []
    (notification,) = advance(state, NO, 5 * MINUTE)
    assert notification.news is NotificationKind.RESOLVED
    assert state.places == {}
    assert advance(state, NO, 6 * MINUTE) == []


def test_a_rule_without_data_keeps_firing() -> None:
    state = AlertState()
    fire(state)
    assert advance(state, None, 20 * MINUTE) == []
    assert state.places["wait"].state is RuleStatus.FIRING


def test_a_silenced_rule_sends_nothing_until_the_silence_ends() -> None:
    state = AlertState()
    silent = replace(SETTINGS, silences={"wait": Silence("wait", until=10 * MINUTE)})
    for n in range(10):
        assert advance(state, YES, n * MINUTE, silent) == []
    assert state.places["wait"].state is RuleStatus.FIRING
    assert [one.news for one in advance(state, YES, 10 * MINUTE, silent)] == [
        NotificationKind.FIRING
    ]


def test_a_rule_that_fired_and_resolved_in_silence_sends_nothing() -> None:
    state = AlertState()
    silent = replace(SETTINGS, silences={"wait": Silence("wait", until=10 * MINUTE)})
    advance(state, YES, 0, silent)
    advance(state, YES, MINUTE, silent)
    assert advance(state, NO, 11 * MINUTE, silent) == []
    assert advance(state, NO, 12 * MINUTE, silent) == []
    assert state.places == {}


def test_a_rule_that_repeats_sends_a_notification_each_time() -> None:
    state = AlertState()
    settings = AlertSettings(rules={"wait": replace(RULE, repeat_ms=10 * MINUTE)})
    minutes = [n for n in range(35) for _ in advance(state, YES, n * MINUTE, settings)]
    assert minutes == [1, 11, 21, 31]


def test_a_rule_that_is_switched_off_while_it_fires_sends_nothing_more() -> None:
    state = AlertState()
    fire(state)
    off = AlertSettings(rules={"wait": replace(RULE, enabled=False)})
    assert advance(state, YES, 3 * MINUTE, off) == []
    assert state.places == {}


def test_the_next_leader_continues_without_a_second_notification() -> None:
    state = AlertState()
    fire(state)
    next_leader = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=AlertState)
    assert advance(next_leader, None, 2 * MINUTE) == []  # has not seen enough yet
    assert advance(next_leader, YES, 3 * MINUTE) == []
    advance(next_leader, NO, 4 * MINUTE)
    assert [one.news for one in advance(next_leader, NO, 5 * MINUTE)] == [NotificationKind.RESOLVED]


def test_a_value_that_changes_alone_is_not_stored() -> None:
    state = AlertState()
    fire(state)
    before = state.fingerprint()
    advance(state, Finding(99, holds=True, said="ninety-nine"), 2 * MINUTE)
    assert state.places["wait"].value == 99
    assert state.fingerprint() == before
