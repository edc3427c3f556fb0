"""Ways to tell somebody of an event: one method, which returns when it has been taken."""

from __future__ import annotations

import hashlib
import hmac
from typing import Protocol

import aiohttp
import msgspec

from rota.events.config import AnySink, ConfigError, RedisSink, WebhookSink
from rota.events.limits import ANSWER_BYTES_MAX, SEND_S_MAX
from rota.events.telling import EventDict
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
            from rota.events.redis_streams import RedisTransport

            return RedisTransport(sink)
        from rota.events.brokers import broker_transport

        return broker_transport(sink)
    except ImportError as error:
        raise ConfigError(missing_package(sink.name, error)) from error


def missing_package(name: str, error: ImportError) -> str:
    """What to install."""
    return f"{name} needs a package that is not here ({error.name}): pip install 'rota[brokers]'"
