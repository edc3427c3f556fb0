"""Who is told of alerts, what was told lately, and what became of each notice on its way."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from rota.alerts.evaluator import AlertEvaluator
from rota.alerts.limits import CHANNELS_MAX
from rota.alerts.notifier import Delivery, DeliveryError, Outbox, OutboxEntry, check_address
from rota.alerts.rules import AlertSettings, Channel, Severity
from rota.alerts.state import Notification, NotificationKind
from rota.api.customs.paging import PageQuery, page_of
from rota.api.door.roles import Permission
from rota.api.lookup import name_in
from rota.api.problems import invalid, not_found
from rota.api.routes import Call, NoQuery, Operation
from rota.api.watch.alerts import alerts_of, with_entry, without_entry
from rota.wire.alerts import (
    ChannelPage,
    ChannelSpec,
    ChannelTrial,
    ChannelView,
    DeliveryView,
    NoticePage,
    NoticeView,
)
from rota.wire.problems import ProblemError
from rota.wire.units import from_instant, from_instant_or_none


@Operation(
    "GET",
    "/alert-notices",
    "List what was told lately, newest first",
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
    "List who is told, by name",
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
    "Set up somebody to tell",
    tag="Alerts",
    permission=Permission.ADMINISTER,
    body=ChannelSpec,
    answer=ChannelView,
    errors=(409,),
    description=(
        "An `https://` address gets a JSON document, signed if there is a secret. All "
        "others go through the apprise library: `mailto://`, `slack://`, `pagerduty://` and many "
        "more. Neither address nor secret is ever shown again."
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
    "Tell somebody no longer",
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
    "Send a notice that says it is a test",
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
