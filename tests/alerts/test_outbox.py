"""The outbox of notifications: recipients, order, retries and limits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.alerts.limits import DELIVERIES_KEPT, GIVE_UP_MS, OUTBOX_MAX, RETRY_MS_MAX
from rota.alerts.notifier import TOO_MANY, Outbox
from rota.alerts.rules import DEFAULT_RULES, AlertSettings, Channel, Severity
from rota.alerts.state import Notification, NotificationKind

SETTINGS = AlertSettings(
    channels={
        "mail": Channel("mail", "mailto://a"),
        "pager": Channel("pager", "https://b", severity=Severity.CRITICAL),
    }
)


def notification(rule: str = "wait", at: int = 0) -> Notification:
    severity = DEFAULT_RULES[rule].severity
    return Notification(
        f"{rule}/{at}", rule, NotificationKind.FIRING, severity, "", "", 1.0, 1.0, at, at
    )


def channels_of(outbox: Outbox) -> list[str]:
    return [entry.channel for entry in outbox.letters]


def test_a_channel_gets_notifications_of_its_severity_and_above() -> None:
    outbox = Outbox()
    outbox.put([notification("wait"), notification("no_workers")], SETTINGS)
    assert channels_of(outbox) == ["mail", "mail", "pager"]


def test_a_rule_that_names_its_channels_notifies_no_other() -> None:
    outbox = Outbox()
    rule = replace(DEFAULT_RULES["no_workers"], channels=("pager",))
    outbox.put([notification("no_workers")], replace(SETTINGS, rules={"no_workers": rule}))
    assert channels_of(outbox) == ["pager"]


def test_notifications_to_one_channel_stay_in_order() -> None:
    outbox = Outbox()
    outbox.put([notification(at=1), notification(at=2)], SETTINGS)
    (first,) = outbox.due(now=5)
    assert first.notice.at == 1
    outbox.failed(first, now=5, error="away")
    assert outbox.due(now=6) == []
    (again,) = outbox.due(now=5 + RETRY_MS_MAX)
    assert (again.notice.at, again.tries) == (1, 1)
    outbox.delivered(again, now=6)
    assert [one.notice.at for one in outbox.due(now=6)] == [2]


def test_a_notification_that_fails_is_retried_with_backoff_and_then_dropped() -> None:
    outbox = Outbox()
    outbox.put([notification()], SETTINGS)
    now, tries = 0, 0
    while outbox.letters:
        (entry,) = outbox.due(now)
        tries += 1
        outbox.failed(entry, now, f"away {tries}")
        if outbox.letters:
            assert outbox.letters[0].due_at - now <= RETRY_MS_MAX
            now = outbox.letters[0].due_at
    assert now >= GIVE_UP_MS
    assert tries == pytest.approx(GIVE_UP_MS / RETRY_MS_MAX, abs=8)
    (end,) = outbox.past
    assert (end.channel, end.tries, end.error) == ("mail", tries, f"away {tries}")


def test_a_channel_that_fails_for_long_does_not_fill_the_store() -> None:
    outbox = Outbox()
    for at in range(OUTBOX_MAX + 10):
        outbox.put([notification(at=at)], SETTINGS)
    assert len(outbox.letters) == OUTBOX_MAX
    assert outbox.letters[0].notice.at == 10
    assert [one.error for one in outbox.past] == [TOO_MANY] * 10


def test_results_are_kept_for_the_notifications_that_are_shown() -> None:
    outbox = Outbox()
    for at in range(DELIVERIES_KEPT + 5):
        outbox.put([notification(at=at)], SETTINGS)
        outbox.delivered(outbox.letters[0], now=at)
    assert len(outbox.past) == DELIVERIES_KEPT
    assert (outbox.past[0].notice_id, outbox.past[0].tries) == ("wait/5", 1)
