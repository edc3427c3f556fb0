"""Sends notifications to channels: by signed webhooks, or through the library apprise; keeps an
outbox for retries with exponential backoff.

A notification stays in the outbox until it is delivered, or too old to matter. The structs are
stored by field name, so some fields keep an old word.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from rota.alerts.limits import (
    ANSWER_BYTES_MAX,
    DELIVERIES_KEPT,
    GIVE_UP_MS,
    OUTBOX_MAX,
    RETRY_MS_FIRST,
    RETRY_MS_MAX,
    SEND_S_MAX,
)
from rota.alerts.rules import RANK, AlertRule, AlertSettings, Channel, Severity
from rota.alerts.state import Notification, NotificationKind
from rota.core.model import Instant
from rota.wire.formats import from_instant

if TYPE_CHECKING:
    import aiohttp


class OutboxEntry(msgspec.Struct, frozen=True):
    """Notification that waits for one channel."""

    channel: str
    notice: Notification
    """The notification."""
    tries: int = 0
    due_at: Instant = 0
    tried_at: Instant | None = None
    error: str = ""
    """The reason why the last attempt failed."""


class Delivery(msgspec.Struct, frozen=True):
    """Result of sending a notification to one channel."""

    notice_id: str
    """The notification's id."""
    channel: str
    at: Instant
    tries: int
    error: str = ""
    """The reason why it was dropped; empty: it was delivered."""


TOO_MANY = "too many notifications waited for this channel"


class Outbox(msgspec.Struct):
    """Outbox: notifications that wait for their channels, and the results of others."""

    letters: list[OutboxEntry] = []
    """Entries that wait, the oldest first."""
    past: list[Delivery] = []
    """Results, the newest last."""

    def put(self, notifications: Sequence[Notification], settings: AlertSettings) -> None:
        """Adds notifications for all channels of their rules."""
        for one in notifications:
            rule = settings.rule(one.rule)
            if rule is not None:
                self.letters += [OutboxEntry(name, one) for name in recipients(rule, settings)]
        for entry in self.letters[:-OUTBOX_MAX]:
            self._note(entry, entry.notice.at, TOO_MANY)
        del self.letters[:-OUTBOX_MAX]

    def due(self, now: Instant) -> list[OutboxEntry]:
        """Returns the first entry of each channel, if it is due; the others wait for it."""
        first: dict[str, OutboxEntry] = {}
        for entry in self.letters:
            first.setdefault(entry.channel, entry)
        return [entry for entry in first.values() if entry.due_at <= now]

    def delivered(self, entry: OutboxEntry, now: Instant) -> None:
        self.drop(entry)
        self._note(replace(entry, tries=entry.tries + 1), now)

    def drop(self, entry: OutboxEntry) -> None:
        """Removes an entry without a result."""
        self.letters = [one for one in self.letters if one is not entry]

    def failed(self, entry: OutboxEntry, now: Instant, error: str) -> bool:
        """Schedules the next attempt; False: the entry is too old, and dropped."""
        tries = entry.tries + 1
        if now - entry.notice.at >= GIVE_UP_MS:
            self.drop(entry)
            self._note(replace(entry, tries=tries), now, error)
            return False
        pause = min(RETRY_MS_FIRST * 2**entry.tries, RETRY_MS_MAX)
        later = replace(entry, tries=tries, due_at=now + pause, tried_at=now, error=error)
        self.letters = [later if one is entry else one for one in self.letters]
        return True

    def tried(self, entry: OutboxEntry, now: Instant, error: str = "") -> None:
        """Keeps the result of a test notification, which is not sent again."""
        self._note(replace(entry, tries=1), now, error)

    def forget(self, channel: str) -> None:
        """Drops all entries of a deleted channel."""
        self.letters = [one for one in self.letters if one.channel != channel]

    def _note(self, entry: OutboxEntry, now: Instant, error: str = "") -> None:
        done = Delivery(entry.notice.id, entry.channel, now, entry.tries, error)
        self.past = [*self.past, done][-DELIVERIES_KEPT:]


def recipients(rule: AlertRule, settings: AlertSettings) -> list[str]:
    """Returns the names of the channels that get a rule's notifications."""
    return [
        channel.name
        for channel in settings.channels.values()
        if (rule.channels is None or channel.name in rule.channels)
        and RANK[rule.severity] >= RANK[channel.severity]
    ]


SIGNATURE = "Rota-Signature"
WEBHOOK_SCHEMES = ("http://", "https://")
APPRISE_MISSING = "apprise is not installed: pip install 'rota[notify]', or use an https:// address"
_STATUS: Mapping[NotificationKind, str] = {
    NotificationKind.FIRING: "FIRING",
    NotificationKind.RESOLVED: "resolved",
    NotificationKind.TEST: "test",
}


class DeliveryError(Exception):
    """A notification was not delivered; the text says why, without secrets."""


class NotificationSender(Protocol):
    """Interface to send notifications."""

    async def send(self, channel: Channel, notification: Notification, now: Instant) -> None:
        """Returns when the channel has taken it; raises DeliveryError."""
        ...


def check_address(url: str) -> None:
    """Raises ValueError, which says what is wrong, for an address that cannot be used."""
    if url.startswith(WEBHOOK_SCHEMES):
        from yarl import URL  # loaded only where a webhook is set

        try:
            if not url.isprintable():
                raise ValueError
            host = URL(url).host
        except ValueError:
            # The error's text would quote the address, which may be a secret.
            raise ValueError("the address is not a valid URL: write https://host/path") from None
        if not host:
            raise ValueError("the address has no host: write https://host/path")
        return
    apprise = _apprise()
    if apprise is None:
        raise ValueError(APPRISE_MISSING)
    # Messages never quote the address: it is a secret.
    if apprise.Apprise.instantiate(url, suppress_exceptions=True) is None:
        raise ValueError(
            "the address is of no known service: use https://…, mailto://…, slack://… or another"
            " one of https://appriseit.com/services"
        )


def title_of(notification: Notification, cell: str) -> str:
    """Writes a title that says all in one line on a phone."""
    where = f" {cell}:" if cell else ""
    status = _STATUS[notification.news]
    return f"[Rota]{where} {status} {notification.rule} ({notification.severity.value})"


def webhook_body(notification: Notification, cell: str) -> dict[str, Any]:
    """Makes the body of a request to a webhook."""
    fields = msgspec.to_builtins(notification)
    fields["status"], fields["message"] = fields.pop("news"), fields.pop("said")
    fields["since"] = from_instant(notification.since)
    fields["at"] = from_instant(notification.at)
    return {"version": 1, "cell": cell, **fields}


class Notifier:
    """Sends notifications over the network."""

    def __init__(self, cell: str = "") -> None:
        self._cell = cell

    async def send(self, channel: Channel, notification: Notification, now: Instant) -> None:
        """Sends one notification to one channel; raises DeliveryError."""
        send = self._send_webhook if channel.url.startswith(WEBHOOK_SCHEMES) else self._send_apprise
        try:
            async with asyncio.timeout(SEND_S_MAX):
                await send(channel, notification, now)
        except TimeoutError:
            raise DeliveryError(f"no answer within {SEND_S_MAX:g} s") from None

    async def _send_webhook(
        self, channel: Channel, notification: Notification, now: Instant
    ) -> None:
        import aiohttp  # slow to load, and most servers have no channels

        body = msgspec.json.encode(webhook_body(notification, self._cell))
        headers = {"Content-Type": "application/json"}
        if channel.secret:
            headers[SIGNATURE] = signature(channel.secret, now // 1000, body)
        try:
            async with (
                # With `trust_env` a proxy that is set in the environment is used.
                aiohttp.ClientSession(auto_decompress=False, trust_env=True) as http,
                http.post(channel.url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                await _read_answer(answer)
        except aiohttp.ClientError as error:
            raise DeliveryError(f"it cannot be reached: {_reason(error)}") from error
        if not 200 <= answer.status < 300:
            raise DeliveryError(f"it answered {answer.status}")

    async def _send_apprise(
        self, channel: Channel, notification: Notification, now: Instant
    ) -> None:
        title = title_of(notification, self._cell)
        text = f"{notification.said}\nsince {from_instant(notification.since)}"
        # In a thread: the library blocks while it waits for sockets.
        sent = await asyncio.to_thread(_send_by_apprise, channel.url, title, text, notification)
        if not sent:
            raise DeliveryError("the service refused the notification or cannot be reached")


def signature(secret: str, stamp_s: int, body: bytes) -> str:
    """Signs as `rota events` does: `t=SECONDS,v1=HMAC-SHA256 of "SECONDS.BODY"`."""
    signed = str(stamp_s).encode() + b"." + body
    return f"t={stamp_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def _reason(error: aiohttp.ClientError) -> str:
    # Never the error's own text: it may quote the address, which is a secret.
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return type(error).__name__


async def _read_answer(answer: aiohttp.ClientResponse) -> None:
    size = 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            return


def _send_by_apprise(url: str, title: str, text: str, notification: Notification) -> bool:
    apprise = _apprise()
    if apprise is None:
        raise DeliveryError(APPRISE_MISSING)
    sender = apprise.Apprise()
    kind = apprise.NotifyType.INFO
    if notification.news is NotificationKind.RESOLVED:
        kind = apprise.NotifyType.SUCCESS
    elif notification.news is NotificationKind.FIRING:
        critical = notification.severity is Severity.CRITICAL
        kind = apprise.NotifyType.FAILURE if critical else apprise.NotifyType.WARNING
    return bool(sender.add(url)) and bool(sender.notify(body=text, title=title, notify_type=kind))


def _apprise() -> Any:
    """Loads the library, if it is installed; only a channel of it needs it."""
    try:
        import apprise
    except ImportError:
        return None
    # Its log lines contain whole addresses with passwords.
    logging.getLogger("apprise").disabled = True
    return apprise
