"""Event sinks: follows the stream of changes from the last offset and delivers each to a
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

from rota.events.config import AnySink, ConfigError, RedisSink, WebhookSink
from rota.events.limits import ANSWER_BYTES_MAX, EVENT_LIMITS, OFFSET_EVERY, SEND_S_MAX, EventLimits
from rota.events.publisher import EventBackoff, EventDict, Offsets
from rota.sdk import AsyncClient, Event, RotaError
from rota.sdk.clock import SystemClock
from rota.wire.events import STRUCTURED

SIGNATURE = "Rota-Signature"


class DeliveryError(Exception):
    """The receiver did not take it; the text says what it said."""


class EventTransport(Protocol):
    """Somebody who is told."""

    async def send(self, event: EventDict) -> None:
        """Returns when the receiver has it; raises if that is not known."""
        ...

    async def close(self) -> None:
        """Gives everything back."""
        ...


def signature(secret: str, stamp_s: int, body: bytes) -> str:
    """What proves who sent a request, and when: `t=SECONDS,v1=HMAC-SHA256 of "SECONDS.BODY"`."""
    signed = str(stamp_s).encode() + b"." + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={stamp_s},v1={digest}"


class WebhookTransport:
    """Signed requests. The URL is the operator's own; redirects are not followed."""

    def __init__(self, sink: WebhookSink) -> None:
        self._sink = sink
        self._clock = SystemClock()
        self._http: aiohttp.ClientSession | None = None

    async def send(self, event: EventDict) -> None:
        """Taken when the receiver says 2xx."""
        body = msgspec.json.encode(event)
        headers = {
            **self._sink.headers,
            "Content-Type": STRUCTURED,
            SIGNATURE: signature(self._sink.secret, self._clock.now_ms() // 1000, body),
        }
        if self._http is None:  # it belongs to the loop that runs when it is made
            self._http = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=SEND_S_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # nobody reads what it says
                trust_env=True,  # a proxy that the operator named in the environment
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
        """Closes the connections."""
        if self._http is not None:
            await self._http.close()


def open_transport(sink: AnySink) -> EventTransport:
    """The way that a sink asks for; loads the broker's client only if one is needed."""
    if isinstance(sink, WebhookSink):
        return WebhookTransport(sink)
    try:
        if isinstance(sink, RedisSink):
            from rota.events.brokers import RedisTransport

            return RedisTransport(sink)
        from rota.events.brokers import broker_transport

        return broker_transport(sink)
    except ImportError as error:
        raise ConfigError(missing_package(sink.name, error)) from error


def missing_package(name: str, error: ImportError) -> str:
    """What to install."""
    return f"{name} needs a package that is not here ({error.name}): pip install 'rota[brokers]'"


log = structlog.get_logger("rota.events")

_NOT_YET = f"{10**17}.0"
"""A place that no journal will come to."""


class Follower:
    """One sink. Changes go out one after the other, so those of a job stay in order."""

    def __init__(
        self,
        sink: AnySink,
        client: AsyncClient,
        outlet: EventTransport,
        positions: Offsets,
        limits: EventLimits = EVENT_LIMITS,
    ) -> None:
        self._sink = sink
        self._limits = limits
        self._client = client
        self._transport = outlet
        self._offsets = positions
        self._offset: str | None = positions.load(sink.name)
        self._unsaved = 0

    async def run(self) -> None:
        """Until the stream breaks for good, which is an error."""
        if self._offset is None:
            # Noted before the first change is told: from here on nothing is missed.
            self._offset = await self._head()
            self._save_offset()
        try:
            async for one in self._client.stream(after=self._offset):
                await self._take(one)
        finally:
            self._save_offset()
            await self._transport.close()

    async def _head(self) -> str:
        """Where the journal is now: what the server says to a place that is not there yet."""
        async for one in self._client.stream(after=_NOT_YET):
            return one.id
        raise ConnectionError("the stream ended before it began")

    def _save_offset(self) -> None:
        self._offsets.save(self._sink.name, self._offset)
        self._unsaved = 0

    async def _take(self, one: Event) -> None:
        if one.kind == "reset":
            log.error("changes_missed", sink=self._sink.name, place=one.id)
        event = event_of_change(one)
        if any(_fits(pattern, event["type"]) for pattern in self._sink.events):
            await self._send(event)
        self._offset = one.id
        self._unsaved += 1
        if self._unsaved >= OFFSET_EVERY:
            self._save_offset()

    async def _send(self, event: EventDict) -> None:
        pauses, tries = EventBackoff(self._sink.name, self._limits), 0
        while True:
            tries += 1
            try:
                await self._transport.send(event)
                return
            except Exception as error:  # noqa: BLE001  (each broker has errors of its own)
                reason = f"{type(error).__name__}: {error}"
            if tries == self._sink.attempts:
                await self._give_up(event, tries, reason)
                return
            pause_s = pauses.next_s()
            log.warning(
                "not_told", sink=self._sink.name, change=event["id"], reason=reason, again=pause_s
            )
            await asyncio.sleep(pause_s)

    async def _give_up(self, event: EventDict, tries: int, reason: str) -> None:
        """Dead: kept in a file, in the log, and told to the server, where a trigger may act."""
        grave = self._offsets.keep_undelivered(self._sink.name, event)
        log.error("dead_letter", sink=self._sink.name, change=event["id"], reason=reason)
        alarm = {
            "specversion": "1.0",
            "id": event["id"],
            "source": f"/sinks/{self._sink.name}",
            "type": "sink.dead",
            "data": {"event": event, "tries": tries, "reason": reason, "kept": str(grave)},
        }
        try:
            await self._client.send_event(alarm)
        except RotaError as error:
            log.error("alarm_failed", sink=self._sink.name, reason=str(error))


def event_of_change(one: Event) -> EventDict:
    """A change of the stream as an event; its place in the journal is its id."""
    if one.kind == "reset":
        about: dict[str, Any] = {"message": "changes were missed: they are no longer kept"}
        return _event(one.id, "rota.stream.reset", about)
    change = one.change
    return _event(
        one.id,
        f"rota.{change.kind}.{change.status}",
        msgspec.to_builtins(change),
        time=change.at,
        subject=change.id,
    )


def _event(place: str, kind: str, about: dict[str, Any], **more: str) -> EventDict:
    plain: EventDict = {"specversion": "1.0", "id": place, "source": "rota", "type": kind}
    return {**plain, **more, "data": about}


def _fits(pattern: str, kind: str) -> bool:
    return pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))
