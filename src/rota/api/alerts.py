"""Alerts: the rules and how each stands, silences, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from rota.alerts.board import News, Notice, State
from rota.alerts.channels import NotTakenError, check_address
from rota.alerts.limits import CHANNELS_MAX, RULES_MAX, WINDOW_MS_MAX, WINDOW_MS_MIN
from rota.alerts.rules import (
    DEFAULTS,
    SENSES,
    Book,
    Channel,
    Condition,
    Rule,
    Severity,
    Silence,
    usual,
)
from rota.alerts.watch import Watch
from rota.api.paging import Cursor, Limit, PageQuery, any_of, page_of
from rota.api.problems import ProblemError, invalid, not_found
from rota.api.routes import Call, NoQuery
from rota.wire.alerts import (
    AlertPage,
    AlertSpec,
    AlertView,
    ChannelPage,
    ChannelSpec,
    ChannelTrial,
    ChannelView,
    NoticePage,
    NoticeView,
    SilenceSpec,
    SilenceView,
    StateName,
)
from rota.wire.jobs import QueueName
from rota.wire.limits import PAGE_ITEMS_DEFAULT
from rota.wire.units import Duration, from_instant, number

V = TypeVar("V")

STATES: tuple[StateName, ...] = get_args(StateName)


class AlertsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which rules to list."""

    status: Annotated[str, any_of(STATES)] | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


# Rules, and how they stand


async def list_alerts(call: Call[None, AlertsQuery]) -> AlertPage:
    """Rules, by name; of some statuses only, if any are named."""
    watch = await _watch(call)
    wanted = [word.strip() for word in (call.query.status or "").split(",") if word.strip()]
    if unknown := [word for word in wanted if word not in STATES]:
        raise invalid("status", f"{unknown[0][:40]!r} is none of {', '.join(STATES)}")
    views = [_view(call, watch, rule) for rule in watch.book.all_rules()]
    found = [one for one in views if not wanted or one.status in wanted]
    query = PageQuery(call.query.limit, call.query.cursor)
    items, next_cursor = page_of(found, query, lambda one: one.name)
    return AlertPage(list(items), next_cursor)


async def show_alert(call: Call[None, NoQuery]) -> AlertView:
    """One rule."""
    watch = await _watch(call)
    return _view(call, watch, _rule(watch, _name_in(call)))


async def put_alert(call: Call[AlertSpec, NoQuery]) -> AlertView:
    """Sets a rule; what is left out is as its condition has it."""
    watch = await _watch(call)
    rule = _read_rule(_name_in(call), call.body)
    unknown = [one for one in rule.channels or () if one not in watch.book.channels]
    if unknown:
        raise invalid("channels", f"there is no channel {unknown[0]!r}: set it up first")

    def changed(book: Book) -> Book:
        rules = _put(book.rules, rule.name, rule, RULES_MAX, "rules")
        return replace(book, rules=rules)

    await watch.change(changed)
    return _view(call, watch, rule)


async def delete_alert(call: Call[None, NoQuery]) -> None:
    """A rule of somebody's is gone; a built-in one is as it was at first."""
    watch, name = await _watch(call), _name_in(call)
    if name not in watch.book.rules:
        if name in DEFAULTS:
            detail = f"{name} is built in and as it was at first: set `enabled` to false instead"
            raise ProblemError(409, "builtin", detail)
        raise not_found("alert", name)
    await watch.change(lambda book: replace(book, rules=_without(book.rules, name)))


async def silence_alert(call: Call[SilenceSpec, NoQuery]) -> AlertView:
    """Nobody is told of it for a while."""
    watch = await _watch(call)
    rule = _rule(watch, _name_in(call))
    now = call.parts.brain.clock.now()
    silence = Silence(rule.name, now + call.body.for_.ms, call.body.reason)

    def changed(book: Book) -> Book:
        live = {name: one for name, one in book.silences.items() if one.until > now}
        return replace(book, silences={**live, rule.name: silence})

    await watch.change(changed)
    return _view(call, watch, rule)


async def unsilence_alert(call: Call[None, NoQuery]) -> AlertView:
    """It may tell again; if it fires, it does so at the next look."""
    watch = await _watch(call)
    rule = _rule(watch, _name_in(call))
    await watch.change(lambda book: replace(book, silences=_without(book.silences, rule.name)))
    return _view(call, watch, rule)


async def list_notices(call: Call[None, PageQuery]) -> NoticePage:
    """What was told lately, newest first."""
    recent = (await _watch(call)).kept.board.recent[::-1]
    return NoticePage([_notice_view(one) for one in recent[: call.query.limit]], None)


# Who is told


async def list_channels(call: Call[None, PageQuery]) -> ChannelPage:
    """All, by name."""
    watch = await _watch(call)
    found = [watch.book.channels[name] for name in sorted(watch.book.channels)]
    items, next_cursor = page_of(found, call.query, lambda one: one.name)
    return ChannelPage([_channel_view(watch, one) for one in items], next_cursor)


async def put_channel(call: Call[ChannelSpec, NoQuery]) -> ChannelView:
    """Somebody to tell, or the same at another address."""
    watch, spec = await _watch(call), call.body
    try:
        # A thread: the library takes a while to load.
        await asyncio.to_thread(check_address, spec.url)
    except ValueError as error:
        raise invalid("url", str(error)) from None
    channel = Channel(_name_in(call), spec.url, spec.secret or "", Severity(spec.severity))

    def changed(book: Book) -> Book:
        kept = _put(book.channels, channel.name, channel, CHANNELS_MAX, "channels")
        return replace(book, channels=kept)

    await watch.change(changed)
    return _channel_view(watch, channel)


async def delete_channel(call: Call[None, NoQuery]) -> None:
    """Told no longer; what still waited for it is dropped."""
    watch, name = await _watch(call), _name_in(call)
    if name not in watch.book.channels:
        raise not_found("channel", name)
    users = [one.name for one in watch.book.rules.values() if name in (one.channels or ())]
    if users:
        detail = f"the rule {users[0]!r} tells {name!r}: change it first"
        raise ProblemError(409, "channel_in_use", detail)
    await watch.change(lambda book: replace(book, channels=_without(book.channels, name)))


async def try_channel(call: Call[None, NoQuery]) -> ChannelTrial:
    """Sends a notice that says it is a test, and says what became of it."""
    watch, name = await _watch(call), _name_in(call)
    if name not in watch.book.channels:
        raise not_found("channel", name)
    now = call.parts.brain.clock.now()
    said = f"somebody asked Rota whether {name!r} can be told"
    notice = Notice(f"test/{now}", "test", News.TEST, Severity.INFO, said, "", 0.0, 0.0, now, now)
    try:
        await watch.send(name, notice)
    except NotTakenError as error:
        return ChannelTrial(taken=False, message=str(error))
    return ChannelTrial(taken=True, message="taken")


# Reading and showing


async def _watch(call: Call[Any, Any]) -> Watch:
    watch = call.parts.alerts
    await watch.open()
    return watch


def _read_rule(name: str, spec: AlertSpec) -> Rule:
    builtin = DEFAULTS.get(name)
    if not isinstance(spec.condition, UnsetType):
        condition = Condition(spec.condition)
    elif builtin is not None:
        condition = builtin.condition
    else:
        raise invalid("condition", f"say what {name!r} watches for: {', '.join(Condition)}")
    if spec.queue is not None and not SENSES[condition].by_queue:
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
    rule: Rule = replace(usual(condition, name), **known)
    if not WINDOW_MS_MIN <= rule.window_ms <= WINDOW_MS_MAX:
        raise invalid("window", f"between {WINDOW_MS_MIN // 1000}s and {WINDOW_MS_MAX // 1000}s")
    return rule


def _ms(length: Duration | UnsetType) -> int | UnsetType:
    return length if isinstance(length, UnsetType) else length.ms


def _view(call: Call[Any, Any], watch: Watch, rule: Rule) -> AlertView:
    now = call.parts.brain.clock.now()
    place, finding = watch.kept.board.state(rule.name), watch.findings.get(rule.name)
    status = State.OK if place is None else place.state
    silence = watch.book.silences.get(rule.name)
    sense = SENSES[rule.condition]
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
        builtin=rule.name in DEFAULTS,
        meaning=sense.meaning,
    )


def _silence_view(silence: Silence) -> SilenceView:
    return SilenceView(from_instant(silence.until), silence.reason)


def _notice_view(one: Notice) -> NoticeView:
    return NoticeView(
        name=one.rule,
        status=one.news.value,
        severity=one.severity.value,
        message=one.said,
        value=one.value,
        since=from_instant(one.since),
        at=from_instant(one.at),
    )


def _channel_view(watch: Watch, channel: Channel) -> ChannelView:
    waiting = sum(one.channel == channel.name for one in watch.kept.outbox.letters)
    return ChannelView(
        name=channel.name,
        url=channel.shown,
        signed=bool(channel.secret),
        severity=channel.severity.value,
        waiting=waiting,
    )


def _rule(watch: Watch, name: str) -> Rule:
    rule = watch.book.rule(name)
    if rule is None:
        raise not_found("alert", name)
    return rule


def _put(kept: Mapping[str, V], name: str, value: V, limit: int, what: str) -> dict[str, V]:
    if name not in kept and len(kept) >= limit:
        raise ProblemError(409, "too_many", f"there are {limit} {what} already: remove one first")
    return {**kept, name: value}


def _without(kept: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in kept.items() if key != name}


def _name_in(call: Call[Any, Any]) -> str:
    try:
        return msgspec.convert(call.path["name"], QueueName)
    except msgspec.ValidationError:
        raise invalid("name", "letters, digits and any of _ . : @ -") from None
