"""Sends notifications to channels: signed webhooks, everything else through one library (apprise),
with an outbox for retries.

A notification stays in the outbox until its channel took it, or until it is too old to be news.
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
    """One notice for one address."""

    channel: str
    notice: Notification
    tries: int = 0
    due_at: Instant = 0
    tried_at: Instant | None = None
    error: str = ""
    """Why it was not taken the last time."""


class Delivery(msgspec.Struct, frozen=True):
    """What became of a letter in the end."""

    notice_id: str
    channel: str
    at: Instant
    tries: int
    error: str = ""
    """Why it was given up; empty: it was taken."""


TOO_MANY = "too many notices waited for this address"


class Outbox(msgspec.Struct):
    """Those that were not taken yet, oldest first, and what became of others."""

    letters: list[OutboxEntry] = []
    past: list[Delivery] = []
    """Newest last."""

    def put(self, notices: Sequence[Notification], book: AlertSettings) -> None:
        """For everybody who is to be told."""
        for notice in notices:
            rule = book.rule(notice.rule)
            if rule is not None:
                self.letters += [OutboxEntry(name, notice) for name in recipients(rule, book)]
        for letter in self.letters[:-OUTBOX_MAX]:
            self._note(letter, letter.notice.at, TOO_MANY)
        del self.letters[:-OUTBOX_MAX]

    def due(self, now: Instant) -> list[OutboxEntry]:
        """The first of each address, if it is time: what follows waits, so they stay in order."""
        first: dict[str, OutboxEntry] = {}
        for letter in self.letters:
            first.setdefault(letter.channel, letter)
        return [letter for letter in first.values() if letter.due_at <= now]

    def delivered(self, letter: OutboxEntry, now: Instant) -> None:
        """It has arrived."""
        self.drop(letter)
        self._note(replace(letter, tries=letter.tries + 1), now)

    def drop(self, letter: OutboxEntry) -> None:
        """Nobody is there to take it."""
        self.letters = [one for one in self.letters if one is not letter]

    def failed(self, letter: OutboxEntry, now: Instant, error: str) -> bool:
        """To be tried again later; False: it is given up."""
        tries = letter.tries + 1
        if now - letter.notice.at >= GIVE_UP_MS:
            self.drop(letter)
            self._note(replace(letter, tries=tries), now, error)
            return False
        pause = min(RETRY_MS_FIRST * 2**letter.tries, RETRY_MS_MAX)
        later = replace(letter, tries=tries, due_at=now + pause, tried_at=now, error=error)
        self.letters = [later if one is letter else one for one in self.letters]
        return True

    def tried(self, letter: OutboxEntry, now: Instant, error: str = "") -> None:
        """One that was sent only to try the address; it is not kept for later."""
        self._note(replace(letter, tries=1), now, error)

    def forget(self, channel: str) -> None:
        """The address is gone."""
        self.letters = [one for one in self.letters if one.channel != channel]

    def _note(self, letter: OutboxEntry, now: Instant, error: str = "") -> None:
        done = Delivery(letter.notice.id, letter.channel, now, letter.tries, error)
        self.past = [*self.past, done][-DELIVERIES_KEPT:]


def recipients(rule: AlertRule, book: AlertSettings) -> list[str]:
    """Who hears of a rule."""
    return [
        channel.name
        for channel in book.channels.values()
        if (rule.channels is None or channel.name in rule.channels)
        and RANK[rule.severity] >= RANK[channel.severity]
    ]


SIGNATURE = "Rota-Signature"
WEBHOOK_SCHEMES = ("http://", "https://")
APPRISE_MISSING = "apprise is not installed: pip install 'rota[notify]', or use an https:// address"
_FIRST_WORD: Mapping[NotificationKind, str] = {
    NotificationKind.FIRING: "FIRING",
    NotificationKind.RESOLVED: "resolved",
    NotificationKind.TEST: "test",
}


class DeliveryError(Exception):
    """Nobody took it; the text says why, and names nothing secret."""


class NotificationSender(Protocol):
    """A way to tell somebody."""

    async def send(self, channel: Channel, notice: Notification, now: Instant) -> None:
        """Returns when it was taken; raises NotTakenError."""
        ...


def check_address(url: str) -> None:
    """Raises ValueError that says what is wrong with it."""
    if url.startswith(WEBHOOK_SCHEMES):
        from yarl import URL  # loaded only by who has a webhook

        try:
            if not url.isprintable():
                raise ValueError
            host = URL(url).host
        except ValueError:
            # Its words would quote the address, which may be a secret.
            raise ValueError("the address makes no sense: write https://host/path") from None
        if not host:
            raise ValueError("the address names no host")
        return
    apprise = _apprise()
    if apprise is None:
        raise ValueError(APPRISE_MISSING)
    # Never the address itself: it is the secret.
    if apprise.Apprise.instantiate(url, suppress_exceptions=True) is None:
        raise ValueError(
            "no address that can be told: https://…, mailto://…, slack://… and others, as"
            " https://appriseit.com/services lists them"
        )


def title_of(notice: Notification, cell: str) -> str:
    """One line that says it all on a phone."""
    where = f" {cell}:" if cell else ""
    return f"[Rota]{where} {_FIRST_WORD[notice.news]} {notice.rule} ({notice.severity.value})"


def webhook_body(notice: Notification, cell: str) -> dict[str, Any]:
    """What a webhook gets."""
    told = msgspec.to_builtins(notice)
    told["status"] = told.pop("news")
    told["message"] = told.pop("said")
    told["since"], told["at"] = from_instant(notice.since), from_instant(notice.at)
    return {"version": 1, "cell": cell, **told}


class Notifier:
    """Sends for real."""

    def __init__(self, cell: str = "") -> None:
        self._cell = cell

    async def send(self, channel: Channel, notice: Notification, now: Instant) -> None:
        """One notice to one address."""
        way = self._send_webhook if channel.url.startswith(WEBHOOK_SCHEMES) else self._send_apprise
        try:
            async with asyncio.timeout(SEND_S_MAX):
                await way(channel, notice, now)
        except TimeoutError:
            raise DeliveryError(f"no answer within {SEND_S_MAX:g} s") from None

    async def _send_webhook(self, channel: Channel, notice: Notification, now: Instant) -> None:
        import aiohttp  # slow to load, and most servers have nobody to tell

        body = msgspec.json.encode(webhook_body(notice, self._cell))
        headers = {"Content-Type": "application/json"}
        if channel.secret:
            headers[SIGNATURE] = signature(channel.secret, now // 1000, body)
        try:
            async with (
                # A proxy that the operator named in the environment is used.
                aiohttp.ClientSession(auto_decompress=False, trust_env=True) as http,
                http.post(channel.url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                await _read_answer(answer)
        except aiohttp.ClientError as error:
            raise DeliveryError(f"it cannot be reached: {_reason(error)}") from error
        if not 200 <= answer.status < 300:
            raise DeliveryError(f"it answered {answer.status}")

    async def _send_apprise(self, channel: Channel, notice: Notification, now: Instant) -> None:
        title = title_of(notice, self._cell)
        text = f"{notice.said}\nsince {from_instant(notice.since)}"
        # The library waits for sockets: beside the loop, never in it.
        taken = await asyncio.to_thread(_send_by_apprise, channel.url, title, text, notice)
        if not taken:
            raise DeliveryError("the service did not take it, or cannot be reached")


def signature(secret: str, stamp_s: int, body: bytes) -> str:
    """As `rota events` signs: `t=SECONDS,v1=HMAC-SHA256 of "SECONDS.BODY"`."""
    signed = str(stamp_s).encode() + b"." + body
    return f"t={stamp_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def _reason(error: aiohttp.ClientError) -> str:
    """Never the error's own text: it may quote the address, which is the secret."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return type(error).__name__


async def _read_answer(answer: aiohttp.ClientResponse) -> None:
    size = 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            return


def _send_by_apprise(url: str, title: str, text: str, notice: Notification) -> bool:
    apprise = _apprise()
    if apprise is None:
        raise DeliveryError(APPRISE_MISSING)
    told = apprise.Apprise()
    kind = apprise.NotifyType.INFO
    if notice.news is NotificationKind.RESOLVED:
        kind = apprise.NotifyType.SUCCESS
    elif notice.news is NotificationKind.FIRING:
        critical = notice.severity is Severity.CRITICAL
        kind = apprise.NotifyType.FAILURE if critical else apprise.NotifyType.WARNING
    return bool(told.add(url)) and bool(told.notify(body=text, title=title, notify_type=kind))


def _apprise() -> Any:
    """The library, if it is there; loaded only by who has an address for it."""
    try:
        import apprise
    except ImportError:
        return None
    # Its lines name whole addresses, with passwords; what went wrong we say ourselves.
    logging.getLogger("apprise").disabled = True
    return apprise
