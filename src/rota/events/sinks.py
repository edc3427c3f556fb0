"""Event sinks: follow the stream of changes from the last offset and deliver each change to a
transport, in order, at least once.

The webhook transport is here; those of brokers are in `events/brokers.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import Any, Protocol

import aiohttp
import msgspec
import structlog

from rota.events.config import AnySink, ConfigError, WebhookSink
from rota.events.limits import ANSWER_BYTES_MAX, EVENT_LIMITS, OFFSET_EVERY, SEND_S_MAX, EventLimits
from rota.events.publisher import EventBackoff, EventDict, Offsets
from rota.sdk import AsyncClient, Event, RotaError
from rota.sdk.clock import SystemClock
from rota.wire.events import STRUCTURED

log = structlog.get_logger("rota.events")

SIGNATURE = "Rota-Signature"
_BEYOND_THE_JOURNAL = f"{10**17}.0"


class DeliveryError(Exception):
    """The receiver did not accept an event; the text says what it answered."""


class EventTransport(Protocol):
    """Transport of a sink's events."""

    async def send(self, event: EventDict) -> None:
        """Returns when the receiver has the event; raises if that is unknown."""
        ...

    async def close(self) -> None: ...


def signature(secret: str, stamp_s: int, body: bytes) -> str:
    """Proves who sent a request, and when: `t=SECONDS,v1=HMAC-SHA256 of "SECONDS.BODY"`."""
    signed = str(stamp_s).encode() + b"." + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={stamp_s},v1={digest}"


class WebhookTransport:
    """Sends events as signed requests to the operator's URL; follows no redirects."""

    def __init__(self, sink: WebhookSink) -> None:
        self._sink = sink
        self._clock = SystemClock()
        self._http: aiohttp.ClientSession | None = None

    async def send(self, event: EventDict) -> None:
        """Sends an event; the receiver accepts it with a status of 2xx."""
        body = msgspec.json.encode(event)
        headers = {
            **self._sink.headers,
            "Content-Type": STRUCTURED,
            SIGNATURE: signature(self._sink.secret, self._clock.now_ms() // 1000, body),
        }
        if self._http is None:  # made here: it belongs to the loop that runs then
            self._http = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=SEND_S_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # the answer's body is not used
                trust_env=True,  # a proxy that is set in the environment is used
            )
        try:
            async with self._http.post(
                self._sink.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                # Read to the end, so that the connection can be used again.
                size = 0
                async for piece in answer.content.iter_any():
                    size += len(piece)
                    if size > ANSWER_BYTES_MAX:
                        break
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DeliveryError(f"{type(error).__name__}: {error}") from error
        if not 200 <= answer.status < 300:
            raise DeliveryError(f"it answered {answer.status}")

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


def open_transport(sink: AnySink) -> EventTransport:
    """Opens a sink's transport; loads a broker's client only where one is needed."""
    if isinstance(sink, WebhookSink):
        return WebhookTransport(sink)
    from rota.events.brokers import broker_transport

    try:
        return broker_transport(sink)
    except ImportError as error:
        raise ConfigError(missing_package(sink.name, error)) from error


def missing_package(name: str, error: ImportError) -> str:
    """Says which package to install."""
    return (
        f"{name} needs a package that is not installed ({error.name}): pip install 'rota[brokers]'"
    )


class Follower:
    """Follows the changes for one sink; sends one after the other, so a job's stay in order."""

    def __init__(
        self,
        sink: AnySink,
        client: AsyncClient,
        transport: EventTransport,
        offsets: Offsets,
        limits: EventLimits = EVENT_LIMITS,
    ) -> None:
        self._sink = sink
        self._limits = limits
        self._client = client
        self._transport = transport
        self._offsets = offsets
        self._offset: str | None = offsets.load(sink.name)
        self._unsaved = 0

    async def run(self) -> None:
        """Runs until the stream breaks for good, which is an error."""
        if self._offset is None:
            # Saved before the first change is sent: no change after it is missed.
            self._offset = await self._head()
            self._save_offset()
        try:
            async for one in self._client.stream(after=self._offset):
                await self._take(one)
        finally:
            self._save_offset()
            await self._transport.close()

    async def _head(self) -> str:
        """Returns the journal's end, which the server answers to an offset beyond it."""
        async for one in self._client.stream(after=_BEYOND_THE_JOURNAL):
            return one.id
        raise ConnectionError("the stream ended before it began")

    def _save_offset(self) -> None:
        self._offsets.save(self._sink.name, self._offset)
        self._unsaved = 0

    async def _take(self, one: Event) -> None:
        if one.kind == "reset":
            log.error("changes_missed", sink=self._sink.name, offset=one.id)
        event = event_of_change(one)
        if any(_fits(pattern, event["type"]) for pattern in self._sink.events):
            await self._send(event)
        self._offset = one.id
        self._unsaved += 1
        if self._unsaved >= OFFSET_EVERY:
            self._save_offset()

    async def _send(self, event: EventDict) -> None:
        backoff, tries = EventBackoff(self._sink.name, self._limits), 0
        while True:
            tries += 1
            try:
                await self._transport.send(event)
                return
            except Exception as error:  # noqa: BLE001  (each broker has errors of its own)
                reason = f"{type(error).__name__}: {error}"
            if tries == self._sink.attempts:
                await self._keep_undelivered(event, tries, reason)
                return
            pause_s, change = backoff.next_s(), event["id"]
            log.warning(
                "change_not_sent",
                sink=self._sink.name,
                change=change,
                reason=reason,
                retry_s=pause_s,
            )
            await asyncio.sleep(pause_s)

    async def _keep_undelivered(self, event: EventDict, tries: int, reason: str) -> None:
        """Keeps a change in the file of dead letters and sends an event for triggers."""
        path = self._offsets.keep_undelivered(self._sink.name, event)
        log.error("dead_letter", sink=self._sink.name, change=event["id"], reason=reason)
        notice = {
            "specversion": "1.0",
            "id": event["id"],
            "source": f"/sinks/{self._sink.name}",
            "type": "sink.dead",
            "data": {"event": event, "tries": tries, "reason": reason, "kept": str(path)},
        }
        try:
            await self._client.send_event(notice)
        except RotaError as error:
            log.error("dead_letter_event_not_sent", sink=self._sink.name, reason=str(error))


def event_of_change(one: Event) -> EventDict:
    """Makes an event of a change; its offset in the journal is its id."""
    if one.kind == "reset":
        data: dict[str, Any] = {"message": "changes were missed: they are no longer kept"}
        return _event(one.id, "rota.stream.reset", data)
    change = one.change
    return _event(
        one.id,
        f"rota.{change.kind}.{change.status}",
        msgspec.to_builtins(change),
        time=change.at,
        subject=change.id,
    )


def _event(offset: str, kind: str, data: dict[str, Any], **more: str) -> EventDict:
    plain: EventDict = {"specversion": "1.0", "id": offset, "source": "rota", "type": kind}
    return {**plain, **more, "data": data}


def _fits(pattern: str, kind: str) -> bool:
    return pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))
