"""Endpoints of alerts: rules, their state, silences, channels, recent notifications."""

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
from rota.api.pagination import Cursor, Limit, PageQuery, comma_list_of, page_of
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
    """Which rules to list."""

    status: Annotated[str, comma_list_of(STATES)] | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


# Rules, and how they stand


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
    """Rules, by name; of some statuses only, if any are named."""
    watch = await alerts_of(call)
    wanted = [word.strip() for word in (call.query.status or "").split(",") if word.strip()]
    if unknown := [word for word in wanted if word not in STATES]:
        raise invalid("status", f"{unknown[0][:40]!r} is none of {', '.join(STATES)}")
    views = [_view(call, watch, rule) for rule in watch.settings.all_rules()]
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
    """One rule."""
    watch = await alerts_of(call)
    return _view(call, watch, _rule(watch, name_in(call)))


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
    """Sets a rule; what is left out is as its condition has it."""
    watch = await alerts_of(call)
    rule = _checked_rule(watch, name_in(call), call.body)

    def changed(book: AlertSettings) -> AlertSettings:
        rules = with_entry(book.rules, rule.name, rule, RULES_MAX, "rules")
        return replace(book, rules=rules)

    await watch.change(changed)
    return _view(call, watch, rule)


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
    """What a rule would find now; nothing is stored and nobody is told."""
    watch = await alerts_of(call)
    rule = _checked_rule(watch, name_in(call), call.body)
    finding = await watch.try_rule(rule)
    return AlertTrial(
        holds=None if finding is None else finding.holds,
        value=None if finding is None else finding.value,
        threshold=rule.threshold,
        unit=CONDITION_INFOS[rule.condition].unit,
        message="" if finding is None else finding.said,
        tells=recipients(rule, watch.settings),
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
    """A rule of somebody's is gone; a built-in one is as it was at first."""
    watch, name = await alerts_of(call), name_in(call)
    if name not in watch.settings.rules:
        if name in DEFAULT_RULES:
            detail = f"{name} is built in and as it was at first: set `enabled` to false instead"
            raise ProblemError(409, "builtin", detail)
        raise not_found("alert", name)
    await watch.change(lambda book: replace(book, rules=without_entry(book.rules, name)))


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
    """Nobody is told of it for a while."""
    watch = await alerts_of(call)
    rule = _rule(watch, name_in(call))
    now = call.deps.brain.clock.now()
    silence = Silence(rule.name, now + call.body.for_.ms, call.body.reason)

    def changed(book: AlertSettings) -> AlertSettings:
        live = {name: one for name, one in book.silences.items() if one.until > now}
        return replace(book, silences={**live, rule.name: silence})

    await watch.change(changed)
    return _view(call, watch, rule)


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
    """It may tell again; if it fires, it does so at the next look."""
    watch = await alerts_of(call)
    rule = _rule(watch, name_in(call))
    await watch.change(lambda book: replace(book, silences=without_entry(book.silences, rule.name)))
    return _view(call, watch, rule)


# Reading and showing


async def alerts_of(call: Call[Any, Any]) -> AlertEvaluator:
    watch = call.deps.alerts
    await watch.open()
    return watch


def _checked_rule(watch: AlertEvaluator, name: str, spec: AlertSpec) -> AlertRule:
    """As it is asked for, if all whom it would tell are there."""
    rule = _read_rule(name, spec)
    unknown = [one for one in rule.channels or () if one not in watch.settings.channels]
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
        raise invalid("condition", f"say what {name!r} watches for: {', '.join(Condition)}")
    if spec.queue is not None and not CONDITION_INFOS[condition].by_queue:
        raise invalid("queue", f"{condition.value} is watched for all queues together")
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


def _view(call: Call[Any, Any], watch: AlertEvaluator, rule: AlertRule) -> AlertView:
    now = call.deps.brain.clock.now()
    place, finding = watch.saved.board.state(rule.name), watch.findings.get(rule.name)
    status = RuleStatus.OK if place is None else place.state
    silence = watch.settings.silences.get(rule.name)
    sense = CONDITION_INFOS[rule.condition]
    return AlertView(
        name=rule.name,
        condition=rule.condition.value,
        status=status.value if rule.enabled else "off",
        value=finding.value if finding else place.value if place else None,
        threshold=rule.threshold,
        unit=sense.unit,
        message=place.said if place else finding.said if finding else "",
        since=None if place is None else from_instant(place.since),
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
        meaning=sense.meaning,
    )


def _silence_view(silence: Silence) -> SilenceView:
    return SilenceView(from_instant(silence.until), silence.reason)


def _rule(watch: AlertEvaluator, name: str) -> AlertRule:
    rule = watch.settings.rule(name)
    if rule is None:
        raise not_found("alert", name)
    return rule


def with_entry(kept: Mapping[str, V], name: str, value: V, limit: int, what: str) -> dict[str, V]:
    """The same with one more, unless there are too many."""
    if name not in kept and len(kept) >= limit:
        raise ProblemError(409, "too_many", f"there are {limit} {what} already: remove one first")
    return {**kept, name: value}


def without_entry(kept: Mapping[str, V], name: str) -> dict[str, V]:
    """The same without it."""
    return {key: value for key, value in kept.items() if key != name}


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
    """What was told lately, newest first."""
    kept = (await alerts_of(call)).saved
    recent = kept.board.recent[::-1][: call.query.limit]
    return NoticePage([_notice_view(one, kept.outbox) for one in recent], None)


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
    """All, by name."""
    watch = await alerts_of(call)
    found = [watch.settings.channels[name] for name in sorted(watch.settings.channels)]
    items, next_cursor = page_of(found, call.query, lambda one: one.name)
    return ChannelPage([_channel_view(watch, one) for one in items], next_cursor)


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
    """Somebody to tell, or the same at another address."""
    watch, spec = await alerts_of(call), call.body
    try:
        # A thread: the library takes a while to load.
        await asyncio.to_thread(check_address, spec.url)
    except ValueError as error:
        raise invalid("url", str(error)) from None
    channel = Channel(name_in(call), spec.url, spec.secret or "", Severity(spec.severity))

    def changed(book: AlertSettings) -> AlertSettings:
        kept = with_entry(book.channels, channel.name, channel, CHANNELS_MAX, "channels")
        return replace(book, channels=kept)

    await watch.change(changed)
    return _channel_view(watch, channel)


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
    """Told no longer; what still waited for it is dropped."""
    watch, name = await alerts_of(call), name_in(call)
    if name not in watch.settings.channels:
        raise not_found("channel", name)
    users = [one.name for one in watch.settings.rules.values() if name in (one.channels or ())]
    if users:
        detail = f"the rule {users[0]!r} tells {name!r}: change it first"
        raise ProblemError(409, "channel_in_use", detail)
    await watch.change(lambda book: replace(book, channels=without_entry(book.channels, name)))


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
    """Sends a notice that says it is a test, and says what became of it."""
    watch, name = await alerts_of(call), name_in(call)
    if name not in watch.settings.channels:
        raise not_found("channel", name)
    now = call.deps.brain.clock.now()
    said = f"somebody asked Rota whether {name!r} can be told"
    notice = Notification(
        f"test/{now}", "test", NotificationKind.TEST, Severity.INFO, said, "", 0.0, 0.0, now, now
    )
    try:
        await watch.try_channel(name, notice)
    except DeliveryError as error:
        return ChannelTrial(taken=False, message=str(error))
    return ChannelTrial(taken=True, message="taken")


def _notice_view(one: Notification, outbox: Outbox) -> NoticeView:
    under_way = [
        _pending_delivery_view(letter) for letter in outbox.letters if letter.notice.id == one.id
    ]
    done = [_delivery_view(past) for past in outbox.past if past.notice_id == one.id]
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


def _channel_view(watch: AlertEvaluator, channel: Channel) -> ChannelView:
    outbox = watch.saved.outbox
    letters = [one for one in outbox.letters if one.channel == channel.name]
    return ChannelView(
        name=channel.name,
        url=channel.shown,
        signed=bool(channel.secret),
        severity=channel.severity.value,
        waiting=len(letters),
        last=_last_delivery(outbox, channel.name),
    )


def _last_delivery(outbox: Outbox, channel: str) -> DeliveryView | None:
    """The newest try, be it of a notice that still waits or of one that is done with."""
    tried = [one for one in outbox.letters if one.channel == channel and one.tried_at is not None]
    done = [one for one in outbox.past if one.channel == channel][-1:]
    views = [*map(_delivery_view, done), *map(_pending_delivery_view, tried)]
    return max(views, key=lambda one: one.at or "", default=None)


def _pending_delivery_view(letter: OutboxEntry) -> DeliveryView:
    return DeliveryView(
        channel=letter.channel,
        status="waiting",
        tries=letter.tries,
        at=from_instant_or_none(letter.tried_at),
        error=letter.error or None,
        next_try=from_instant(letter.due_at) if letter.tries else None,
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
