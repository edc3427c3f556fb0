"""What a gateway works with, and what it keeps between requests: no state of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from rota.gateway.fleet import CellDirectory
from rota.gateway.limits import BODIES_BYTES_MAX, BODY_READ_S, RETRY_AFTER_S, STREAMS_MAX
from rota.gateway.metrics import GatewayMetrics
from rota.gateway.strangers import TokenNegativeCache
from rota.gateway.told import CellResponse
from rota.wire.limits import BODY_BYTES_MAX
from rota.wire.problems import ClientDisconnectedError, ProblemError

_LATER = {"Retry-After": str(RETRY_AFTER_S)}
_CLOSE = {"Connection": "close"}


class BodyBudget:
    """Reads request bodies, and bounds how much of them is held at once."""

    def __init__(self, limit: int = BODIES_BYTES_MAX) -> None:
        self._limit = limit
        self._held = 0

    @asynccontextmanager
    async def reading(self, headers: Headers, receive: Receive) -> AsyncIterator[bytes]:
        """The whole body, counted until the request is done with."""
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
            raise _too_large()
        pieces: list[bytes] = []
        try:
            try:
                async with asyncio.timeout(BODY_READ_S):
                    await self._read(receive, pieces)
            except TimeoutError:
                detail = f"the body did not come within {BODY_READ_S:.0f} s"
                raise ProblemError(408, "too_slow", detail, headers=_CLOSE) from None
            yield b"".join(pieces)
        finally:
            self._held -= sum(len(piece) for piece in pieces)

    async def _read(self, receive: Receive, pieces: list[bytes]) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnectedError
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            self._held += len(piece)
            more = message.get("more_body", False)
            if size > BODY_BYTES_MAX:
                raise _too_large()
            if self._held > self._limit:
                detail = "too many large requests at once: ask again later"
                raise ProblemError(429, "busy", detail, headers={**_LATER, **_CLOSE})


def _too_large() -> ProblemError:
    detail = f"the body is larger than {BODY_BYTES_MAX} bytes"
    return ProblemError(413, "too_large", detail, headers=_CLOSE)


class StreamLimit:
    """Counts open streams, so that endless ones cannot take the whole gateway."""

    def __init__(self, limit: int = STREAMS_MAX) -> None:
        self._limit = limit
        self.taken = 0

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """One seat, given back whatever happens."""
        if self.taken >= self._limit:
            detail = f"{self._limit} streams are open already: close one, or ask again later"
            raise ProblemError(429, "too_many_streams", detail, headers=_LATER)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """Everything that serving a request needs."""

    directory: CellDirectory
    secure: bool = False
    """This gateway is reached by HTTPS."""
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)
    bodies: BodyBudget = field(default_factory=BodyBudget)
    streams: StreamLimit = field(default_factory=StreamLimit)
    unknown_tokens: TokenNegativeCache[CellResponse] = field(default_factory=TokenNegativeCache)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway shuts down: streams end."""


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """One request, read."""

    context: GatewayContext
    scope: Scope
    headers: Headers
    params: Mapping[str, str]
    body: bytes

    @property
    def method(self) -> str:
        """The verb."""
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """As it came over the line, without the query."""
        return bytes(self.scope["raw_path"]).decode("latin-1")

    @property
    def target(self) -> str:
        """Path and query as they came over the line."""
        query = bytes(self.scope["query_string"]).decode("latin-1")
        return f"{self.path}?{query}" if query else self.path
