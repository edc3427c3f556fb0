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
    "jobs_quarantined",
    "records_lost",
    "disk_low",
]
SeverityName: TypeAlias = Literal["info", "warning", "critical"]
StateName: TypeAlias = Literal["ok", "pending", "firing", "off"]
NotificationKindName: TypeAlias = Literal["firing", "resolved", "test"]
DeliveryName: TypeAlias = Literal["taken", "waiting", "given_up"]
Secret: TypeAlias = Annotated[str, Meta(min_length=16, max_length=256)]


class AlertSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An alert rule to set; fields that are left out have the condition's defaults."""

    condition: ConditionName | UnsetType = UNSET
    """Left out: the condition of the existing rule of this name."""
    threshold: Annotated[float, Meta(ge=0, le=1e18)] | UnsetType = UNSET
    window: SomeTime | UnsetType = UNSET
    for_: Duration | UnsetType = msgspec.field(name="for", default=UNSET)
    at_least: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    severity: SeverityName | UnsetType = UNSET
    queue: QueueName | None = None
    channels: list[QueueName] | None = None
    """Channels to notify; left out: all."""
    repeat: Duration | None = None
    """Interval of repeated notifications while the rule is firing; left out: only one."""
    enabled: bool = True


class SilenceView(msgspec.Struct):
    """A silence: the rule sends no notifications until then."""

    until: Time
    reason: str


class AlertView(msgspec.Struct):
    """An alert rule and its state; times in seconds."""

    name: QueueName
    condition: ConditionName
    status: StateName
    """`pending`: the condition holds, but not for long enough yet; `off`: the rule is disabled."""
    value: float | None
    """The measured value; null: there is not enough data yet."""
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
    """Whether it exists by default."""
    meaning: str


class AlertPage(msgspec.Struct):
    """A page of alert rules, by name."""

    items: list[AlertView]
    next_cursor: str | None


class AlertTrial(msgspec.Struct):
    """Result of evaluating a rule now, without setting it."""

    holds: bool | None
    """Null: there is not enough data yet, because no whole window has passed."""
    value: float | None
    threshold: float
    unit: str
    message: str
    tells: list[QueueName]
    """Channels that would be notified if the condition had held for long enough."""


class DeliveryView(msgspec.Struct):
    """Delivery of a notification to one channel."""

    channel: QueueName
    status: DeliveryName
    tries: int
    at: Time | None
    """When it was last tried; null: not yet."""
    error: str | None
    """Why the last try failed."""
    next_try: Time | None


class NoticeView(msgspec.Struct):
    """A notification."""

    name: QueueName
    status: NotificationKindName
    severity: SeverityName
    message: str
    value: float
    since: Time
    at: Time
    deliveries: list[DeliveryView]
    """By channel; empty: there was no channel to notify, or the notification is too old to be
    remembered.
    """


class NoticePage(msgspec.Struct):
    """A page of recent notifications, newest first."""

    items: list[NoticeView]
    next_cursor: str | None


class SilenceSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Length of a silence, and the reason for it."""

    for_: SomeTime = msgspec.field(name="for")
    reason: Annotated[str, Meta(max_length=200)] = ""


class ChannelSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A channel to set: where notifications are sent."""

    url: Annotated[str, Meta(min_length=5, max_length=ALERT_URL_CHARS_MAX, pattern=ANY_URL)]
    """`https://…` gets a JSON document; `mailto://…`, `slack://…` and others a message."""
    secret: Secret | None = None
    """Signs the requests to a webhook."""
    severity: SeverityName = "info"
    """Less severe alerts are not sent."""


class ChannelView(msgspec.Struct):
    """A channel. Its URL may contain a secret, so it is never shown whole."""

    name: QueueName
    url: str
    signed: bool
    severity: SeverityName
    waiting: int
    """Notifications that are not delivered yet."""
    last: DeliveryView | None
    """The newest delivery, tests included; null: none lately."""


class ChannelPage(msgspec.Struct):
    """A page of channels, by name."""

    items: list[ChannelView]
    next_cursor: str | None


class ChannelTrial(msgspec.Struct):
    """Result of a test notification."""

    taken: bool
    message: str
