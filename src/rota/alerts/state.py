"""State machine of alerts: turns findings into notifications. It is pure.

A rule goes from `ok` to `pending` when its condition begins to hold, to `firing` when it has held
for `for_ms`, and back to `ok` when it has ended for as long. One notification is sent when it
fires and one when it resolves; none in between, unless the rule repeats. A silenced rule changes
its state all the same; if it still fires when the silence ends, a notification is sent then.

The structs are stored by field name, so some fields keep an old word.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from rota.alerts.conditions import Finding
from rota.alerts.limits import RECENT_KEPT
from rota.alerts.rules import AlertRule, AlertSettings, Severity
from rota.core.model import Instant


class RuleStatus(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"


class NotificationKind(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"
    TEST = "test"


class Notification(msgspec.Struct, frozen=True):
    """Notification to be sent to channels."""

    id: str
    """Unique, and unchanged when it is sent again."""
    rule: str
    news: NotificationKind
    """Its kind."""
    severity: Severity
    said: str
    """The message."""
    queue: str
    value: float
    threshold: float
    since: Instant
    """When the condition began to hold."""
    at: Instant


class RuleState(msgspec.Struct, frozen=True):
    """State of one rule that is pending or firing."""

    state: RuleStatus
    since: Instant
    """When the condition began to hold."""
    value: float
    said: str
    """The message."""
    over_since: Instant | None = None
    """When the condition of a firing rule ended."""
    told_at: Instant | None = None
    """When a notification was last made since then; None: none was."""


class AlertState(msgspec.Struct):
    """State of all alerts that survives a change of the leader; small enough for one note."""

    places: dict[str, RuleState] = {}
    """States of the rules that are not ok, by name."""
    recent: list[Notification] = []
    """Recent notifications, the newest last."""
    epoch: int = 0
    """The newest epoch that was seen."""
    leader: str = ""
    """The leader of that epoch."""

    def state(self, rule: str) -> RuleState | None:
        """Returns the state of a rule; None: ok."""
        return self.places.get(rule)

    def fingerprint(self) -> list[tuple[object, ...]]:
        """Changes when the state must be stored; a new value alone is no reason."""
        return [
            (name, one.state, one.since, one.over_since, one.told_at)
            for name, one in sorted(self.places.items())
        ]

    def advance(
        self, settings: AlertSettings, findings: Mapping[str, Finding | None], now: Instant
    ) -> list[Notification]:
        """Changes the state of every rule; returns the notifications to send now."""
        rules = {rule.name: rule for rule in settings.all_rules() if rule.enabled}
        for removed in [name for name in self.places if name not in rules]:
            del self.places[removed]  # without a notification: the rule is not evaluated any more
        notifications: list[Notification] = []
        for rule in rules.values():
            self._advance(rule, findings.get(rule.name), now)
            resolved = self._resolve(rule, now)
            if not settings.silenced(rule.name, now):
                notifications += resolved or self._notify(rule, now)
        self.recent = [*self.recent, *notifications][-RECENT_KEPT:]
        return notifications

    def _advance(self, rule: AlertRule, finding: Finding | None, now: Instant) -> None:
        current = self.places.get(rule.name)
        if finding is None or not finding.holds:
            if current is None or current.state is RuleStatus.PENDING:
                self.places.pop(rule.name, None)
            elif finding is not None and current.over_since is None:
                self.places[rule.name] = replace(current, over_since=now)
            return
        if current is None:
            current = RuleState(RuleStatus.PENDING, now, finding.value, finding.said)
        if current.state is RuleStatus.PENDING and now - current.since >= rule.for_ms:
            current = replace(current, state=RuleStatus.FIRING)
        self.places[rule.name] = replace(
            current, value=finding.value, said=finding.said, over_since=None
        )

    def _resolve(self, rule: AlertRule, now: Instant) -> list[Notification]:
        """Ends a firing rule whose condition has ended for as long as it had to hold."""
        current = self.places.get(rule.name)
        if current is None or current.over_since is None or now - current.over_since < rule.for_ms:
            return []
        del self.places[rule.name]
        if current.told_at is None:
            return []  # no notification said that it fires, so none says that it resolved
        return [_notification(rule, current, NotificationKind.RESOLVED, now)]

    def _notify(self, rule: AlertRule, now: Instant) -> list[Notification]:
        current = self.places.get(rule.name)
        if (
            current is None
            or current.state is not RuleStatus.FIRING
            or current.over_since is not None
        ):
            return []
        last = current.told_at
        if last is not None and not (rule.repeat_ms and now - last >= rule.repeat_ms):
            return []
        current = self.places[rule.name] = replace(current, told_at=now)
        return [_notification(rule, current, NotificationKind.FIRING, now)]


def _notification(
    rule: AlertRule, state: RuleState, kind: NotificationKind, now: Instant
) -> Notification:
    return Notification(
        id=f"{rule.name}/{state.since}/{kind.value}/{now}",
        rule=rule.name,
        news=kind,
        severity=rule.severity,
        said=state.said,
        queue=rule.queue,
        value=state.value,
        threshold=rule.threshold,
        since=state.since,
        at=now,
    )
