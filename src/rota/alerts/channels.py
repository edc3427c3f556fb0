"""Tells somebody: a signed document to a webhook, everything else through one library (apprise)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from rota.alerts.board import News, Notice
from rota.alerts.limits import ANSWER_BYTES_MAX, SEND_S_MAX
from rota.alerts.rules import Channel, Severity
from rota.core.model import Instant
from rota.wire.units import from_instant

if TYPE_CHECKING:
    import aiohttp

SIGNATURE = "Rota-Signature"
WEBHOOK = ("http://", "https://")
MISSING = "apprise is not installed: pip install 'rota[notify]', or use an https:// address"
_FIRST_WORD: Mapping[News, str] = {
    News.FIRING: "FIRING",
    News.RESOLVED: "resolved",
    News.TEST: "test",
}


class NotTakenError(Exception):
    """Nobody took it; the text says why, and names nothing secret."""


class Post(Protocol):
    """A way to tell somebody."""

    async def send(self, channel: Channel, notice: Notice, now: Instant) -> None:
        """Returns when it was taken; raises NotTakenError."""
        ...


def check_address(url: str) -> None:
    """Raises ValueError that says what is wrong with it."""
    if url.startswith(WEBHOOK):
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
        raise ValueError(MISSING)
    # Never the address itself: it is the secret.
    if apprise.Apprise.instantiate(url, suppress_exceptions=True) is None:
        raise ValueError(
            "no address that can be told: https://…, mailto://…, slack://… and others, as"
            " https://appriseit.com/services lists them"
        )


def title_of(notice: Notice, cell: str) -> str:
    """One line that says it all on a phone."""
    where = f" {cell}:" if cell else ""
    return f"[Rota]{where} {_FIRST_WORD[notice.news]} {notice.rule} ({notice.severity.value})"


def document_of(notice: Notice, cell: str) -> dict[str, Any]:
    """What a webhook gets."""
    told = msgspec.to_builtins(notice)
    told["status"] = told.pop("news")
    told["message"] = told.pop("said")
    told["since"], told["at"] = from_instant(notice.since), from_instant(notice.at)
    return {"version": 1, "cell": cell, **told}


class Carrier:
    """Sends for real."""

    def __init__(self, cell: str = "") -> None:
        self._cell = cell

    async def send(self, channel: Channel, notice: Notice, now: Instant) -> None:
        """One notice to one address."""
        way = self._post if channel.url.startswith(WEBHOOK) else self._notify
        try:
            async with asyncio.timeout(SEND_S_MAX):
                await way(channel, notice, now)
        except TimeoutError:
            raise NotTakenError(f"no answer within {SEND_S_MAX:g} s") from None

    async def _post(self, channel: Channel, notice: Notice, now: Instant) -> None:
        import aiohttp  # slow to load, and most servers have nobody to tell

        body = msgspec.json.encode(document_of(notice, self._cell))
        headers = {"Content-Type": "application/json"}
        if channel.secret:
            headers[SIGNATURE] = signature(channel.secret, now // 1000, body)
        try:
            async with (
                # A proxy that the operator named in the environment is used.
                aiohttp.ClientSession(auto_decompress=False, trust_env=True) as http,
                http.post(channel.url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                await _swallow(answer)
        except aiohttp.ClientError as error:
            raise NotTakenError(f"it cannot be reached: {_reason(error)}") from error
        if not 200 <= answer.status < 300:
            raise NotTakenError(f"it answered {answer.status}")

    async def _notify(self, channel: Channel, notice: Notice, now: Instant) -> None:
        title = title_of(notice, self._cell)
        text = f"{notice.said}\nsince {from_instant(notice.since)}"
        # The library waits for sockets: beside the loop, never in it.
        taken = await asyncio.to_thread(_tell, channel.url, title, text, notice)
        if not taken:
            raise NotTakenError("the service did not take it, or cannot be reached")


def signature(secret: str, stamp_s: int, body: bytes) -> str:
    """As `rota events` signs: `t=SECONDS,v1=HMAC-SHA256 of "SECONDS.BODY"`."""
    signed = str(stamp_s).encode() + b"." + body
    return f"t={stamp_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def _reason(error: aiohttp.ClientError) -> str:
    """Never the error's own text: it may quote the address, which is the secret."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return type(error).__name__


async def _swallow(answer: aiohttp.ClientResponse) -> None:
    size = 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            return


def _tell(url: str, title: str, text: str, notice: Notice) -> bool:
    apprise = _apprise()
    if apprise is None:
        raise NotTakenError(MISSING)
    told = apprise.Apprise()
    kind = apprise.NotifyType.INFO
    if notice.news is News.RESOLVED:
        kind = apprise.NotifyType.SUCCESS
    elif notice.news is News.FIRING:
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
