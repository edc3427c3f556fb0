"""Asks a server as often as it can, for `rota bench`: bodies are made once, answers barely read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from rota.cli.problems import Failure
from rota.sdk import Endpoint
from rota.sdk.clock import Clock
from rota.wire.problems import Problem
from rota.wire.units import encode

TOO_MANY = 429
PAUSE_S = 0.02
"""After a 429: whoever asks too fast waits for the server's next breath, and goes on."""
CALL_S = 60.0
"""No call of a bench is held by the server for longer."""
JSON = {"Content-Type": "application/json"}


@dataclass(slots=True)
class Line:
    """The way to one server; `held_back` counts the answers that said `too many requests`."""

    http: aiohttp.ClientSession
    url: str
    clock: Clock
    held_back: int = 0
    _decode: msgspec.json.Decoder[Any] = field(default_factory=msgspec.json.Decoder)

    @classmethod
    def open(cls, endpoint: Endpoint, clock: Clock) -> Line:
        """To the first server named: figures of several would be figures of none."""
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        http = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=CALL_S),
        )
        return cls(http, endpoint.url, clock)

    async def close(self) -> None:
        """Hangs up."""
        await self.http.close()

    async def send(self, method: str, path: str, body: bytes = b"", key: str = "") -> bytes:
        """The answer's body, however often it takes; what is refused ends the bench."""
        headers = dict(JSON) if body else {}
        if key:
            headers["Idempotency-Key"] = key
        while True:
            try:
                async with self.http.request(
                    method,
                    self.url + path,
                    data=body or None,
                    headers=headers,
                    allow_redirects=False,  # the token goes no further than to whom it was given
                ) as answer:
                    told = await answer.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise Failure(
                    f"{self.url}: {method} {path}: {str(error) or 'no answer'}"
                ) from error
            if answer.status < 300:
                return told
            if answer.status != TOO_MANY:
                raise Failure(f"{self.url}: {method} {path}: {_said(answer.status, told)}")
            self.held_back += 1
            await asyncio.sleep(PAUSE_S)

    async def ask(self, method: str, path: str, record: object = None) -> Any:
        """For what is not measured: JSON in, JSON out."""
        told = await self.send(method, path, b"" if record is None else encode(record))
        return self._decode.decode(told) if told else None

    async def timed_ms(self, method: str, path: str, body: bytes = b"", key: str = "") -> float:
        """How long one call took."""
        began = self.clock.elapsed_s()
        await self.send(method, path, body, key)
        return (self.clock.elapsed_s() - began) * 1_000


def _said(status: int, body: bytes) -> str:
    try:
        return f"{msgspec.json.decode(body, type=Problem).detail} (HTTP {status})"
    except msgspec.MsgspecError:
        return f"HTTP {status}"
