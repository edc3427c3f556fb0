"""The state machine of alerts: turns findings into notifications. Pure.

A rule goes from `ok` to `pending` when it begins to hold, to `firing` when it has held for as
long as it says, and back when it has been over for as long. One notification says that it fires,
one that it is over; nothing in between, unless the rule is to be repeated. A silenced rule moves
all the same; if it still fires when the silence ends, that is sent then.
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
    """Where a rule is."""

    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"


class NotificationKind(StrEnum):
    """What a notice says."""

    FIRING = "firing"
    RESOLVED = "resolved"
    TEST = "test"


class Notification(msgspec.Struct, frozen=True):
    """What somebody is told."""

    id: str
    """The same however often it is sent."""
    rule: str
    news: NotificationKind
    severity: Severity
    said: str
    queue: str
    value: float
    threshold: float
    since: Instant
    """When it began."""
    at: Instant


class RuleState(msgspec.Struct, frozen=True):
    """Where one rule is."""

    state: RuleStatus
    since: Instant
    """Of pending or firing: when it began to hold."""
    value: float
    said: str
    over_since: Instant | None = None
    """Of a firing one that does not hold any more."""
    told_at: Instant | None = None
    """When a notice of this time was last made; None: nobody knows."""


class AlertState(msgspec.Struct):
    """All that must outlive a change of the leader, small enough to be written as one note."""

    places: dict[str, RuleState] = {}
    """Of rules that are not ok."""
    recent: list[Notification] = []
    """Newest last."""
    epoch: int = 0
    """The newest leadership that was seen."""
    leader: str = ""
    """Whose it was."""

    def state(self, rule: str) -> RuleState | None:
        """None: ok."""
        return self.places.get(rule)

    def fingerprint(self) -> list[tuple[object, ...]]:
        """Another one when there is something to write: a figure that only changes is not."""
        return [
            (name, one.state, one.since, one.over_since, one.told_at)
            for name, one in sorted(self.places.items())
        ]

    def advance(
        self, book: AlertSettings, findings: Mapping[str, Finding | None], now: Instant
    ) -> list[Notification]:
        """Moves every rule; answers what has to be told now."""
        rules = {rule.name: rule for rule in book.all_rules() if rule.enabled}
        for gone in [name for name in self.places if name not in rules]:
            del self.places[gone]  # nobody watches for it any more, so nobody is told
        notices: list[Notification] = []
        for rule in rules.values():
            self._move(rule, findings.get(rule.name), now)
            over = self._end(rule, now)
            if not book.silenced(rule.name, now):
                notices += over or self._notify(rule, now)
        self.recent = [*self.recent, *notices][-RECENT_KEPT:]
        return notices

    def _move(self, rule: AlertRule, finding: Finding | None, now: Instant) -> None:
        place = self.places.get(rule.name)
        if finding is None or not finding.holds:
            if place is None or place.state is RuleStatus.PENDING:
                self.places.pop(rule.name, None)
            elif finding is not None and place.over_since is None:
                self.places[rule.name] = replace(place, over_since=now)
            return
        if place is None:
            place = RuleState(RuleStatus.PENDING, now, finding.value, finding.said)
        if place.state is RuleStatus.PENDING and now - place.since >= rule.for_ms:
            place = replace(place, state=RuleStatus.FIRING)
        self.places[rule.name] = replace(
            place, value=finding.value, said=finding.said, over_since=None
        )

    def _end(self, rule: AlertRule, now: Instant) -> list[Notification]:
        """A firing one that has been over for as long as it had to hold before."""
        place = self.places.get(rule.name)
        if place is None or place.over_since is None or now - place.over_since < rule.for_ms:
            return []
        del self.places[rule.name]
        # Whoever was never told that it began need not be told that it is over.
        return (
            []
            if place.told_at is None
            else [_notification(rule, place, NotificationKind.RESOLVED, now)]
        )

    def _notify(self, rule: AlertRule, now: Instant) -> list[Notification]:
        place = self.places.get(rule.name)
        if place is None or place.state is not RuleStatus.FIRING or place.over_since is not None:
            return []
        told = place.told_at
        if told is not None and not (rule.repeat_ms and now - told >= rule.repeat_ms):
            return []
        place = self.places[rule.name] = replace(place, told_at=now)
        return [_notification(rule, place, NotificationKind.FIRING, now)]


def _notification(
    rule: AlertRule, place: RuleState, news: NotificationKind, now: Instant
) -> Notification:
    return Notification(
        id=f"{rule.name}/{place.since}/{news.value}/{now}",
        rule=rule.name,
        news=news,
        severity=rule.severity,
        said=place.said,
        queue=rule.queue,
        value=place.value,
        threshold=rule.threshold,
        since=place.since,
        at=now,
    )
