"""Alert rules, channels and silences, as operators set them, and the default rule of each
condition. They are data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from rota.core.model import Instant, Millis

MINUTE_MS = 60_000


class Severity(StrEnum):
    """Severity of an alert, the lowest first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


RANK: Mapping[Severity, int] = {one: rank for rank, one in enumerate(Severity)}


class Condition(StrEnum):
    """Condition that a rule can watch."""

    BACKLOG_GROWS = "backlog_grows"
    WAIT = "wait"
    FAILURE_RATE = "failure_rate"
    DEAD_LETTERS = "dead_letters"
    WORKER_LOST = "worker_lost"
    NO_WORKERS = "no_workers"
    SCHEDULE_LATE = "schedule_late"
    SCHEDULE_MISSED = "schedule_missed"
    DEADLINE_AT_RISK = "deadline_at_risk"
    DEADLINE_MISSED = "deadline_missed"
    LEADER_CHANGED = "leader_changed"
    STORE_SLOW = "store_slow"
    TABLES_BEHIND = "tables_behind"
    JOBS_QUARANTINED = "jobs_quarantined"
    RECORDS_LOST = "records_lost"
    DISK_LOW = "disk_low"


class ConditionInfo(msgspec.Struct, frozen=True):
    """Describes a condition, and gives the defaults of its rules."""

    meaning: str
    unit: str
    threshold: float
    window_ms: Millis = 10 * MINUTE_MS
    for_ms: Millis = 0
    at_least: int = 1
    severity: Severity = Severity.WARNING
    by_queue: bool = False
    """Whether a rule may name a queue."""


CONDITION_INFOS: Mapping[Condition, ConditionInfo] = {
    Condition.BACKLOG_GROWS: ConditionInfo(
        "so many more jobs wait than at the beginning of the window",
        "jobs", 1_000, for_ms=5 * MINUTE_MS, by_queue=True,
    ),
    Condition.WAIT: ConditionInfo(
        "the next job to start has been ready for so long",
        "s", 600, for_ms=MINUTE_MS, by_queue=True,
    ),
    Condition.FAILURE_RATE: ConditionInfo(
        "this share of the jobs that ended in the window failed",
        "ratio", 0.2, at_least=20, by_queue=True,
    ),
    Condition.DEAD_LETTERS: ConditionInfo(
        "so many jobs used up their attempts in the window", "jobs", 1, by_queue=True
    ),
    Condition.WORKER_LOST: ConditionInfo("so many workers fell silent in the window", "workers", 1),
    Condition.NO_WORKERS: ConditionInfo(
        "so many jobs wait while no worker is online",
        "jobs", 1, for_ms=MINUTE_MS, severity=Severity.CRITICAL,
    ),
    Condition.SCHEDULE_LATE: ConditionInfo("a schedule's run was created so late", "s", 10),
    Condition.SCHEDULE_MISSED: ConditionInfo(
        "so many runs of schedules were skipped because they were too late", "runs", 1
    ),
    Condition.DEADLINE_AT_RISK: ConditionInfo(
        "so many jobs became likely to miss their deadline in the window", "jobs", 1
    ),
    Condition.DEADLINE_MISSED: ConditionInfo(
        "so many jobs missed their deadline in the window", "jobs", 1
    ),
    Condition.LEADER_CHANGED: ConditionInfo(
        "the leader changed so many times in the window", "times", 1
    ),
    Condition.STORE_SLOW: ConditionInfo(
        "one in twenty appends to the journal took at least so long",
        "s", 0.5, window_ms=5 * MINUTE_MS, for_ms=MINUTE_MS, at_least=20,
    ),
    Condition.TABLES_BEHIND: ConditionInfo(
        "the tables are so far behind the journal", "s", 10, for_ms=MINUTE_MS
    ),
    Condition.JOBS_QUARANTINED: ConditionInfo(
        "so many jobs are in quarantine, because the tables refuse their changes", "jobs", 1
    ),
    Condition.RECORDS_LOST: ConditionInfo(
        "a failover of the database lost so many records of the journal in the window",
        "records", 1, window_ms=60 * MINUTE_MS, severity=Severity.CRITICAL,
    ),
    Condition.DISK_LOW: ConditionInfo(
        "less than so much is free on the data disk",
        "bytes", float(1 << 30), severity=Severity.CRITICAL,
    ),
}  # fmt: skip


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """Alert rule: when a notification is sent, and to which channels."""

    name: str
    condition: Condition
    threshold: float
    window_ms: Millis
    for_ms: Millis
    """The condition must hold for so long to fire, and have ended for so long to resolve."""
    at_least: int
    """Measurements in the window: with fewer the rule does not fire."""
    severity: Severity
    queue: str = ""
    """The queue that it watches; empty: all together, or the worst of all."""
    channels: tuple[str, ...] | None = None
    """Channels that are notified; None: all."""
    repeat_ms: Millis = 0
    """Pause between repeated notifications while it fires; 0: no repetition."""
    enabled: bool = True


def default_rule(condition: Condition, name: str) -> AlertRule:
    """Makes the rule of a condition with its defaults."""
    info = CONDITION_INFOS[condition]
    return AlertRule(
        name=name,
        condition=condition,
        threshold=info.threshold,
        window_ms=info.window_ms,
        for_ms=info.for_ms,
        at_least=info.at_least,
        severity=info.severity,
    )


DEFAULT_RULES: Mapping[str, AlertRule] = {
    one.value: default_rule(one, one.value) for one in Condition
}
"""Built-in rules: one for each condition, with its name."""


class Channel(msgspec.Struct, frozen=True):
    """Channel: an address that gets notifications."""

    name: str
    url: str
    """`http(s)://`: a webhook; all else is an address of apprise, the notification library."""
    secret: str = ""
    """Key that signs requests to a webhook."""
    severity: Severity = Severity.INFO
    """Lowest severity that is sent."""

    @property
    def shown(self) -> str:
        """The URL without its secrets: most addresses carry a password or a key."""
        scheme, _, rest = self.url.partition("://")
        if scheme not in ("http", "https"):
            return f"{scheme}://…"
        host = rest.partition("/")[0].rpartition("@")[2]
        return f"{scheme}://{host}/…"

    def __repr__(self) -> str:
        return f"Channel({self.name!r}, {self.shown!r})"


class Silence(msgspec.Struct, frozen=True):
    """Silence: a rule sends no notifications until a time."""

    rule: str
    until: Instant
    reason: str = ""


class AlertSettings(msgspec.Struct, frozen=True):
    """Everything that operators have set. It is stored by field name."""

    rules: Mapping[str, AlertRule] = {}
    """Rules that differ from the defaults, and further ones."""
    channels: Mapping[str, Channel] = {}
    silences: Mapping[str, Silence] = {}

    def all_rules(self) -> list[AlertRule]:
        """Lists built-in and other rules by name."""
        found = {**DEFAULT_RULES, **self.rules}
        return [found[name] for name in sorted(found)]

    def rule(self, name: str) -> AlertRule | None:
        return self.rules.get(name) or DEFAULT_RULES.get(name)

    def silenced(self, rule: str, now: Instant) -> bool:
        """Whether the rule sends no notifications now."""
        silence = self.silences.get(rule)
        return silence is not None and silence.until > now
