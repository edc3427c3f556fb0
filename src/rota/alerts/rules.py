"""Alert rules, channels and silences, as people set them, and the default rule of each condition.
Nothing here acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from rota.core.model import Instant, Millis

MINUTE_MS = 60_000


class Severity(StrEnum):
    """How much it matters, the least first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


RANK: Mapping[Severity, int] = {one: rank for rank, one in enumerate(Severity)}


class Condition(StrEnum):
    """What a rule can watch for."""

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
    DISK_LOW = "disk_low"


class ConditionInfo(msgspec.Struct, frozen=True):
    """What a condition's figure is, and with what a rule begins that says nothing else."""

    meaning: str
    unit: str
    threshold: float
    window_ms: Millis = 10 * MINUTE_MS
    for_ms: Millis = 0
    at_least: int = 1
    severity: Severity = Severity.WARNING
    by_queue: bool = False
    """Whether it can be watched for one queue."""


CONDITION_INFOS: Mapping[Condition, ConditionInfo] = {
    Condition.BACKLOG_GROWS: ConditionInfo(
        "more jobs wait than at the beginning of the window, by so many",
        "jobs", 1_000, for_ms=5 * MINUTE_MS, by_queue=True,
    ),
    Condition.WAIT: ConditionInfo(
        "a job that comes next has been ready for so long",
        "s", 600, for_ms=MINUTE_MS, by_queue=True,
    ),
    Condition.FAILURE_RATE: ConditionInfo(
        "this part of the jobs that ended in the window failed",
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
    Condition.SCHEDULE_LATE: ConditionInfo("a schedule's run was made so much too late", "s", 10),
    Condition.SCHEDULE_MISSED: ConditionInfo(
        "so many runs of schedules were left out because their time was over", "runs", 1
    ),
    Condition.DEADLINE_AT_RISK: ConditionInfo(
        "so many jobs came to be at risk to miss their deadline in the window", "jobs", 1
    ),
    Condition.DEADLINE_MISSED: ConditionInfo(
        "the deadlines of so many jobs passed in the window before they had ended", "jobs", 1
    ),
    Condition.LEADER_CHANGED: ConditionInfo(
        "another server led, so many times in the window", "times", 1
    ),
    Condition.STORE_SLOW: ConditionInfo(
        "one in twenty appends to the journal took at least so long",
        "s", 0.5, window_ms=5 * MINUTE_MS, for_ms=MINUTE_MS, at_least=20,
    ),
    Condition.TABLES_BEHIND: ConditionInfo(
        "the tables are so far behind the journal", "s", 15, for_ms=MINUTE_MS
    ),
    Condition.DISK_LOW: ConditionInfo(
        "less than so much is free on the data disk",
        "bytes", float(1 << 30), severity=Severity.CRITICAL,
    ),
}  # fmt: skip


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """When to tell whom."""

    name: str
    condition: Condition
    threshold: float
    window_ms: Millis
    for_ms: Millis
    """It must have held for so long; and be over for so long to count as over."""
    at_least: int
    """Of what is measured or counted in the window: fewer say nothing."""
    severity: Severity
    queue: str = ""
    """Only this one; empty: all together, or the worst of all."""
    channels: tuple[str, ...] | None = None
    """Who is told; None: everybody."""
    repeat_ms: Millis = 0
    """Told again this often while it goes on; 0: once."""
    enabled: bool = True


def default_rule(condition: Condition, name: str) -> AlertRule:
    """A rule that says nothing but what it watches for."""
    sense = CONDITION_INFOS[condition]
    return AlertRule(
        name=name,
        condition=condition,
        threshold=sense.threshold,
        window_ms=sense.window_ms,
        for_ms=sense.for_ms,
        at_least=sense.at_least,
        severity=sense.severity,
    )


DEFAULT_RULES: Mapping[str, AlertRule] = {
    one.value: default_rule(one, one.value) for one in Condition
}
"""The rules that are there before anybody sets one: one of each kind, named like it."""


class Channel(msgspec.Struct, frozen=True):
    """Somebody who is told."""

    name: str
    url: str
    """`http(s)://` is sent a document; everything else is an address of the library's."""
    secret: str = ""
    """Signs what goes to a webhook."""
    severity: Severity = Severity.INFO
    """What matters less is not told."""

    @property
    def shown(self) -> str:
        """Without what only the sender should know: most addresses carry a password or a key."""
        scheme, _, rest = self.url.partition("://")
        if scheme not in ("http", "https"):
            return f"{scheme}://…"
        host = rest.partition("/")[0].rpartition("@")[2]
        return f"{scheme}://{host}/…"

    def __repr__(self) -> str:
        return f"Channel({self.name!r}, {self.shown!r})"


class Silence(msgspec.Struct, frozen=True):
    """A rule that tells nobody for a while."""

    rule: str
    until: Instant
    reason: str = ""


class AlertSettings(msgspec.Struct, frozen=True):
    """All that people have set."""

    rules: Mapping[str, AlertRule] = {}
    """Those that differ from the defaults."""
    channels: Mapping[str, Channel] = {}
    silences: Mapping[str, Silence] = {}

    def all_rules(self) -> list[AlertRule]:
        """Defaults and others, by name."""
        found = {**DEFAULT_RULES, **self.rules}
        return [found[name] for name in sorted(found)]

    def rule(self, name: str) -> AlertRule | None:
        """One of them."""
        return self.rules.get(name) or DEFAULT_RULES.get(name)

    def silenced(self, rule: str, now: Instant) -> bool:
        """Whether nobody is to be told of it now."""
        silence = self.silences.get(rule)
        return silence is not None and silence.until > now
