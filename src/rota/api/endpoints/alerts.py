"""Endpoints of alerts: rules, their state, silences, notification channels, recent
notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from rota.alerts.evaluator import AlertEvaluator
from rota.alerts.limits import CHANNELS_MAX, RULES_MAX, WINDOW_MS_MAX, WINDOW_MS_MIN
from rota.alerts.notifier import (
    Delivery,
    DeliveryError,
    Outbox,
    OutboxEntry,
    check_address,
    recipients,
)
from rota.alerts.rules import (
    CONDITION_INFOS,
    DEFAULT_RULES,
    AlertRule,
    AlertSettings,
    Channel,
    Condition,
    Severity,
    Silence,
    default_rule,
)
from rota.alerts.state import Notification, NotificationKind, RuleStatus
from rota.api.auth.roles import Permission
from rota.api.pagination import Cursor, Limit, PageQuery, comma_list_of, page_of, read_words
from rota.api.problems import invalid, not_found
from rota.api.router import Call, NoQuery, Operation
from rota.api.tenant_scope import name_in
from rota.wire.alerts import (
    AlertPage,
    AlertSpec,
    AlertTrial,
    AlertView,
    ChannelPage,
    ChannelSpec,
    ChannelTrial,
    ChannelView,
    DeliveryView,
    NoticePage,
    NoticeView,
    SilenceSpec,
    SilenceView,
    StateName,
)
from rota.wire.formats import Duration, from_instant, from_instant_or_none, number
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.problems import ProblemError

V = TypeVar("V")

STATES: tuple[StateName, ...] = get_args(StateName)


class AlertsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of alert rules."""

    status: Annotated[str, comma_list_of(STATES)] | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


@Operation(
    "GET",
    "/alerts",
    "List alert rules with their state",
    tag="Alerts",
    permission=Permission.READ_ALL,
    query=AlertsQuery,
    answer=AlertPage,
    description="By name. `status=firing,pending` shows those that need attention.",
    examples={"answer": "alerts"},
)
async def list_alerts(call: Call[None, AlertsQuery]) -> AlertPage:
    evaluator = await alerts_of(call)
    wanted = read_words(call.query.status)
    if unknown := [word for word in wanted if word not in STATES]:
        raise invalid("status", f"{unknown[0][:40]!r} is none of {', '.join(STATES)}")
    views = [_view(call, evaluator, rule) for rule in evaluator.settings.all_rules()]
    found = [one for one in views if not wanted or one.status in wanted]
    query = PageQuery(call.query.limit, call.query.cursor)
    items, next_cursor = page_of(found, query, lambda one: one.name)
    return AlertPage(list(items), next_cursor)


@Operation(
    "GET",
    "/alerts/{name}",
    "Show an alert rule with its state",
    tag="Alerts",
    permission=Permission.READ_ALL,
    answer=AlertView,
    errors=(404,),
    examples={"answer": "alert"},
)
async def show_alert(call: Call[None, NoQuery]) -> AlertView:
    evaluator = await alerts_of(call)
    return _view(call, evaluator, _rule(evaluator, name_in(call)))


@Operation(
    "PUT",
    "/alerts/{name}",
    "Set an alert rule",
    tag="Alerts",
    permission=Permission.OPERATE,
    body=AlertSpec,
    answer=AlertView,
    errors=(409,),
    description=(
        "Settings that are left out are the defaults of the condition. A name that is not built "
        "in needs a `condition`."
    ),
    examples={"body": "alert_spec", "answer": "alert"},
)
async def put_alert(call: Call[AlertSpec, NoQuery]) -> AlertView:
    evaluator = await alerts_of(call)
    rule = _checked_rule(evaluator, name_in(call), call.body)

    def changed(settings: AlertSettings) -> AlertSettings:
        rules = with_entry(settings.rules, rule.name, rule, RULES_MAX, "rules")
        return replace(settings, rules=rules)

    await evaluator.change(changed)
    return _view(call, evaluator, rule)


@Operation(
    "POST",
    "/alerts/{name}/test",
    "Test an alert rule",
    tag="Alerts",
    permission=Permission.READ_ALL,
    repeatable=True,
    body=AlertSpec,
    answer=AlertTrial,
    description=(
        "Takes a rule's body and compares it with the current values; stores nothing and sends "
        "nothing."
    ),
    examples={"body": "alert_spec", "answer": "alert_trial"},
)
async def try_alert(call: Call[AlertSpec, NoQuery]) -> AlertTrial:
    evaluator = await alerts_of(call)
    rule = _checked_rule(evaluator, name_in(call), call.body)
    finding = await evaluator.try_rule(rule)
    return AlertTrial(
        holds=None if finding is None else finding.holds,
        value=None if finding is None else finding.value,
        threshold=rule.threshold,
        unit=CONDITION_INFOS[rule.condition].unit,
        message="" if finding is None else finding.said,
        tells=recipients(rule, evaluator.settings),
    )


@Operation(
    "DELETE",
    "/alerts/{name}",
    "Delete an alert rule, or reset a built-in one",
    tag="Alerts",
    permission=Permission.OPERATE,
    status=204,
    errors=(404, 409),
)
async def delete_alert(call: Call[None, NoQuery]) -> None:
    evaluator, name = await alerts_of(call), name_in(call)
    if name not in evaluator.settings.rules:
        if name in DEFAULT_RULES:
            detail = f"{name} is built in and unchanged: set `enabled` to false to switch it off"
            raise ProblemError(409, "builtin", detail)
        raise not_found("alert", name)
    await evaluator.change(
        lambda settings: replace(settings, rules=without_entry(settings.rules, name))
    )


@Operation(
    "PUT",
    "/alerts/{name}/silence",
    "Silence an alert for a while",
    tag="Alerts",
    permission=Permission.OPERATE,
    body=SilenceSpec,
    answer=AlertView,
    errors=(404,),
    description="If it still fires when the silence ends, a notification is sent then.",
    examples={"body": "silence_alert_body", "answer": "silenced"},
)
async def silence_alert(call: Call[SilenceSpec, NoQuery]) -> AlertView:
    evaluator = await alerts_of(call)
    rule = _rule(evaluator, name_in(call))
    now = call.deps.brain.clock.now()
    silence = Silence(rule.name, now + call.body.for_.ms, call.body.reason)

    def changed(settings: AlertSettings) -> AlertSettings:
        live = {name: one for name, one in settings.silences.items() if one.until > now}
        return replace(settings, silences={**live, rule.name: silence})

    await evaluator.change(changed)
    return _view(call, evaluator, rule)


@Operation(
    "DELETE",
    "/alerts/{name}/silence",
    "End the silence of an alert",
    tag="Alerts",
    permission=Permission.OPERATE,
    answer=AlertView,
    errors=(404,),
    examples={"answer": "alert"},
)
async def unsilence_alert(call: Call[None, NoQuery]) -> AlertView:
    evaluator = await alerts_of(call)
    rule = _rule(evaluator, name_in(call))
    await evaluator.change(
        lambda settings: replace(settings, silences=without_entry(settings.silences, rule.name))
    )
    return _view(call, evaluator, rule)


async def alerts_of(call: Call[Any, Any]) -> AlertEvaluator:
    evaluator = call.deps.alerts
    await evaluator.open()
    return evaluator


def _checked_rule(evaluator: AlertEvaluator, name: str, spec: AlertSpec) -> AlertRule:
    """Converts a rule; refuses one with a channel that does not exist."""
    rule = _read_rule(name, spec)
    unknown = [one for one in rule.channels or () if one not in evaluator.settings.channels]
    if unknown:
        raise invalid("channels", f"there is no channel {unknown[0]!r}: set it up first")
    return rule


def _read_rule(name: str, spec: AlertSpec) -> AlertRule:
    builtin = DEFAULT_RULES.get(name)
    if not isinstance(spec.condition, UnsetType):
        condition = Condition(spec.condition)
    elif builtin is not None:
        condition = builtin.condition
    else:
        raise invalid("condition", f"is needed for {name!r}: one of {', '.join(Condition)}")
    if spec.queue is not None and not CONDITION_INFOS[condition].by_queue:
        raise invalid("queue", f"{condition.value} covers all queues together: leave it out")
    given: dict[str, Any] = {
        "threshold": spec.threshold,
        "window_ms": _ms(spec.window),
        "for_ms": _ms(spec.for_),
        "at_least": spec.at_least,
        "severity": spec.severity
        if isinstance(spec.severity, UnsetType)
        else Severity(spec.severity),
        "queue": spec.queue or "",
        "channels": None if spec.channels is None else tuple(spec.channels),
        "repeat_ms": 0 if spec.repeat is None else spec.repeat.ms,
        "enabled": spec.enabled,
    }
    known = {key: value for key, value in given.items() if not isinstance(value, UnsetType)}
    rule: AlertRule = replace(default_rule(condition, name), **known)
    if not WINDOW_MS_MIN <= rule.window_ms <= WINDOW_MS_MAX:
        raise invalid("window", f"between {WINDOW_MS_MIN // 1000}s and {WINDOW_MS_MAX // 1000}s")
    return rule


def _ms(length: Duration | UnsetType) -> int | UnsetType:
    return length if isinstance(length, UnsetType) else length.ms


def _view(call: Call[Any, Any], evaluator: AlertEvaluator, rule: AlertRule) -> AlertView:
    now = call.deps.brain.clock.now()
    state, finding = evaluator.saved.board.state(rule.name), evaluator.findings.get(rule.name)
    status = RuleStatus.OK if state is None else state.state
    silence = evaluator.settings.silences.get(rule.name)
    info = CONDITION_INFOS[rule.condition]
    return AlertView(
        name=rule.name,
        condition=rule.condition.value,
        status=status.value if rule.enabled else "off",
        value=finding.value if finding else state.value if state else None,
        threshold=rule.threshold,
        unit=info.unit,
        message=state.said if state else finding.said if finding else "",
        since=None if state is None else from_instant(state.since),
        severity=rule.severity.value,
        queue=rule.queue or None,
        window=number(rule.window_ms),
        for_=number(rule.for_ms),
        at_least=rule.at_least,
        channels=None if rule.channels is None else list(rule.channels),
        repeat=number(rule.repeat_ms) if rule.repeat_ms else None,
        enabled=rule.enabled,
        silence=_silence_view(silence) if silence and silence.until > now else None,
        builtin=rule.name in DEFAULT_RULES,
        meaning=info.meaning,
    )


def _silence_view(silence: Silence) -> SilenceView:
    return SilenceView(from_instant(silence.until), silence.reason)


def _rule(evaluator: AlertEvaluator, name: str) -> AlertRule:
    rule = evaluator.settings.rule(name)
    if rule is None:
        raise not_found("alert", name)
    return rule


def with_entry(
    entries: Mapping[str, V], name: str, value: V, limit: int, what: str
) -> dict[str, V]:
    """Returns the entries with one more, unless there are too many."""
    if name not in entries and len(entries) >= limit:
        raise ProblemError(409, "too_many", f"there are {limit} {what} already: remove one first")
    return {**entries, name: value}


def without_entry(entries: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in entries.items() if key != name}


@Operation(
    "GET",
    "/alert-notices",
    "List recent notifications, newest first",
    tag="Alerts",
    permission=Permission.READ_ALL,
    query=PageQuery,
    answer=NoticePage,
    examples={"answer": "notices"},
)
async def list_notices(call: Call[None, PageQuery]) -> NoticePage:
    saved = (await alerts_of(call)).saved
    recent = saved.board.recent[::-1][: call.query.limit]
    return NoticePage([_notice_view(one, saved.outbox) for one in recent], None)


@Operation(
    "GET",
    "/alert-channels",
    "List notification channels, by name",
    tag="Alerts",
    permission=Permission.READ_ALL,
    query=PageQuery,
    answer=ChannelPage,
    examples={"answer": "channels"},
)
async def list_channels(call: Call[None, PageQuery]) -> ChannelPage:
    evaluator = await alerts_of(call)
    found = [evaluator.settings.channels[name] for name in sorted(evaluator.settings.channels)]
    items, next_cursor = page_of(found, call.query, lambda one: one.name)
    return ChannelPage([_channel_view(evaluator, one) for one in items], next_cursor)


@Operation(
    "PUT",
    "/alert-channels/{name}",
    "Set up a notification channel",
    tag="Alerts",
    permission=Permission.ADMINISTER,
    body=ChannelSpec,
    answer=ChannelView,
    errors=(409,),
    description=(
        "An `https://` address gets a JSON document, signed if there is a secret. Other addresses "
        "go through the apprise library: `mailto://`, `slack://`, `pagerduty://` and many more. "
        "Address and secret are never shown again."
    ),
    examples={"body": "channel_spec", "answer": "channel"},
)
async def put_channel(call: Call[ChannelSpec, NoQuery]) -> ChannelView:
    evaluator, spec = await alerts_of(call), call.body
    try:
        # In a thread: the library takes a while to load.
        await asyncio.to_thread(check_address, spec.url)
    except ValueError as error:
        raise invalid("url", str(error)) from None
    channel = Channel(name_in(call), spec.url, spec.secret or "", Severity(spec.severity))

    def changed(settings: AlertSettings) -> AlertSettings:
        channels = with_entry(settings.channels, channel.name, channel, CHANNELS_MAX, "channels")
        return replace(settings, channels=channels)

    await evaluator.change(changed)
    return _channel_view(evaluator, channel)


@Operation(
    "DELETE",
    "/alert-channels/{name}",
    "Delete a notification channel",
    tag="Alerts",
    permission=Permission.ADMINISTER,
    status=204,
    errors=(404, 409),
)
async def delete_channel(call: Call[None, NoQuery]) -> None:
    evaluator, name = await alerts_of(call), name_in(call)
    if name not in evaluator.settings.channels:
        raise not_found("channel", name)
    users = [one.name for one in evaluator.settings.rules.values() if name in (one.channels or ())]
    if users:
        detail = f"the rule {users[0]!r} uses the channel {name!r}: change the rule first"
        raise ProblemError(409, "channel_in_use", detail)
    await evaluator.change(
        lambda settings: replace(settings, channels=without_entry(settings.channels, name))
    )


@Operation(
    "POST",
    "/alert-channels/{name}/test",
    "Send a test notification",
    tag="Alerts",
    permission=Permission.ADMINISTER,
    answer=ChannelTrial,
    errors=(404,),
    examples={"answer": "try_channel"},
)
async def try_channel(call: Call[None, NoQuery]) -> ChannelTrial:
    evaluator, name = await alerts_of(call), name_in(call)
    if name not in evaluator.settings.channels:
        raise not_found("channel", name)
    now = call.deps.brain.clock.now()
    message = f"test notification for the channel {name!r}"
    notice = Notification(
        f"test/{now}", "test", NotificationKind.TEST, Severity.INFO, message, "", 0.0, 0.0, now, now
    )
    try:
        await evaluator.try_channel(name, notice)
    except DeliveryError as error:
        return ChannelTrial(taken=False, message=str(error))
    return ChannelTrial(taken=True, message="delivered")


def _notice_view(one: Notification, outbox: Outbox) -> NoticeView:
    under_way = [
        _pending_delivery_view(entry) for entry in outbox.letters if entry.notice.id == one.id
    ]
    done = [_delivery_view(delivery) for delivery in outbox.past if delivery.notice_id == one.id]
    return NoticeView(
        name=one.rule,
        status=one.news.value,
        severity=one.severity.value,
        message=one.said,
        value=one.value,
        since=from_instant(one.since),
        at=from_instant(one.at),
        deliveries=sorted([*under_way, *done], key=lambda each: each.channel),
    )


def _channel_view(evaluator: AlertEvaluator, channel: Channel) -> ChannelView:
    outbox = evaluator.saved.outbox
    entries = [one for one in outbox.letters if one.channel == channel.name]
    return ChannelView(
        name=channel.name,
        url=channel.shown,
        signed=bool(channel.secret),
        severity=channel.severity.value,
        waiting=len(entries),
        last=_last_delivery(outbox, channel.name),
    )


def _last_delivery(outbox: Outbox, channel: str) -> DeliveryView | None:
    """Returns the newest attempt, of a notification that still waits or one that is done."""
    tried = [one for one in outbox.letters if one.channel == channel and one.tried_at is not None]
    done = [one for one in outbox.past if one.channel == channel][-1:]
    views = [*map(_delivery_view, done), *map(_pending_delivery_view, tried)]
    return max(views, key=lambda one: one.at or "", default=None)


def _pending_delivery_view(entry: OutboxEntry) -> DeliveryView:
    return DeliveryView(
        channel=entry.channel,
        status="waiting",
        tries=entry.tries,
        at=from_instant_or_none(entry.tried_at),
        error=entry.error or None,
        next_try=from_instant(entry.due_at) if entry.tries else None,
    )


def _delivery_view(done: Delivery) -> DeliveryView:
    return DeliveryView(
        channel=done.channel,
        status="given_up" if done.error else "taken",
        tries=done.tries,
        at=from_instant(done.at),
        error=done.error or None,
        next_try=None,
    )
