"""Alerts: rules about the metrics of a cell, their state, silences, channels, and notifications
sent.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.wire.formats import ANY_URL, Duration, SomeTime
from rota.wire.jobs import QueueName, Time
from rota.wire.limits import ALERT_URL_CHARS_MAX

ConditionName: TypeAlias = Literal[
    "backlog_grows",
    "wait",
    "failure_rate",
    "dead_letters",
    "worker_lost",
    "no_workers",
    "schedule_late",
    "schedule_missed",
    "deadline_at_risk",
    "deadline_missed",
    "leader_changed",
    "store_slow",
    "tables_behind",
    "disk_low",
]
SeverityName: TypeAlias = Literal["info", "warning", "critical"]
StateName: TypeAlias = Literal["ok", "pending", "firing", "off"]
NotificationKindName: TypeAlias = Literal["firing", "resolved", "test"]
DeliveryName: TypeAlias = Literal["taken", "waiting", "given_up"]
Secret: TypeAlias = Annotated[str, Meta(min_length=16, max_length=256)]


class AlertSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A rule; what is left out is as the condition has it."""

    condition: ConditionName | UnsetType = UNSET
    """Left out: what the rule of this name watches for."""
    threshold: Annotated[float, Meta(ge=0, le=1e18)] | UnsetType = UNSET
    window: SomeTime | UnsetType = UNSET
    for_: Duration | UnsetType = msgspec.field(name="for", default=UNSET)
    at_least: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    severity: SeverityName | UnsetType = UNSET
    queue: QueueName | None = None
    channels: list[QueueName] | None = None
    """Who is told; left out: everybody."""
    repeat: Duration | None = None
    """Told again this often while it goes on; left out: once."""
    enabled: bool = True


class SilenceView(msgspec.Struct):
    """A rule tells nobody until then."""

    until: Time
    reason: str


class AlertView(msgspec.Struct):
    """A rule, and what holds now; times in seconds."""

    name: QueueName
    condition: ConditionName
    status: StateName
    """`pending`: it holds, but not for long enough; `off`: nobody watches."""
    value: float | None
    """The figure; null: nothing can be said yet."""
    threshold: float
    unit: str
    message: str
    since: Time | None
    severity: SeverityName
    queue: QueueName | None
    window: float | int
    for_: float | int = msgspec.field(name="for")
    at_least: int
    channels: list[QueueName] | None
    repeat: float | int | None
    enabled: bool
    silence: SilenceView | None
    builtin: bool
    """Whether it is there without having been set."""
    meaning: str


class AlertPage(msgspec.Struct):
    """Rules, by name."""

    items: list[AlertView]
    next_cursor: str | None


class AlertTrial(msgspec.Struct):
    """What a rule would find now, if it were set."""

    holds: bool | None
    """Null: nothing can be said yet, for not a whole window was seen."""
    value: float | None
    threshold: float
    unit: str
    message: str
    tells: list[QueueName]
    """Who would be told, had it held for long enough."""


class DeliveryView(msgspec.Struct):
    """What became of a notice at one address."""

    channel: QueueName
    status: DeliveryName
    tries: int
    at: Time | None
    """When it was last tried; null: not yet."""
    error: str | None
    """Why it was not taken the last time."""
    next_try: Time | None


class NoticeView(msgspec.Struct):
    """Something that was told."""

    name: QueueName
    status: NotificationKindName
    severity: SeverityName
    message: str
    value: float
    since: Time
    at: Time
    deliveries: list[DeliveryView]
    """By channel; empty: nobody was to be told, or that is too long ago to be known."""


class NoticePage(msgspec.Struct):
    """What was told lately, newest first."""

    items: list[NoticeView]
    next_cursor: str | None


class SilenceSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """For how long a rule tells nobody, and why."""

    for_: SomeTime = msgspec.field(name="for")
    reason: Annotated[str, Meta(max_length=200)] = ""


class ChannelSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Somebody who is told."""

    url: Annotated[str, Meta(min_length=5, max_length=ALERT_URL_CHARS_MAX, pattern=ANY_URL)]
    """`https://…` gets a JSON document; `mailto://…`, `slack://…` and others a message."""
    secret: Secret | None = None
    """Signs what goes to a webhook."""
    severity: SeverityName = "info"
    """What matters less is not told."""


class ChannelView(msgspec.Struct):
    """Somebody who is told. The address, which is a secret of its own, is never shown whole."""

    name: QueueName
    url: str
    signed: bool
    severity: SeverityName
    waiting: int
    """Notices that were not taken yet."""
    last: DeliveryView | None
    """How the newest try went, tests too; null: nothing was sent lately."""


class ChannelPage(msgspec.Struct):
    """All who are told, by name."""

    items: list[ChannelView]
    next_cursor: str | None


class ChannelTrial(msgspec.Struct):
    """What became of a notice that was sent to try an address."""

    taken: bool
    message: str
