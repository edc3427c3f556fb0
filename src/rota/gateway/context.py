"""What a gateway needs to serve a request: headers, body budget, stream limit, cells' responses,
and a negative cache of tokens.

A tenant's token is known in its own cell only, and merged answers ask all of them: without the
cache every list would be a failed try at each of the others, and those are throttled. No state
of jobs is kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, TypeVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope

from rota.gateway.cells import Cell, CellDirectory
from rota.gateway.limits import (
    BODIES_BYTES_MAX,
    BODY_READ_S,
    RETRY_AFTER_S,
    STREAMS_MAX,
    UNKNOWN_TOKEN_S,
    UNKNOWN_TOKENS_MAX,
)
from rota.gateway.metrics import GatewayMetrics
from rota.gateway.problems import CELL_HEADER
from rota.wire.limits import BODY_BYTES_MAX
from rota.wire.problems import ClientDisconnectedError, ProblemError
from rota.wire.workers import LEADER_HEADER

T = TypeVar("T")


class TokenNegativeCache(Generic[T]):
    """What each cell answered to those it does not know."""

    def __init__(self) -> None:
        self._said: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def recall(self, cell: str, headers: Iterable[tuple[str, str]]) -> T | None:
        """The refusal of the last minute, if there was one."""
        ends, said = self._said.get(_cache_key(cell, headers), (0.0, None))
        return said if asyncio.get_running_loop().time() < ends else None

    def note(self, cell: str, headers: Iterable[tuple[str, str]], said: T) -> None:
        """Remembers one; the oldest is forgotten first."""
        key = _cache_key(cell, headers)
        self._said[key] = (asyncio.get_running_loop().time() + UNKNOWN_TOKEN_S, said)
        self._said.move_to_end(key)
        if len(self._said) > UNKNOWN_TOKENS_MAX:
            self._said.popitem(last=False)


def _cache_key(cell: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Of what the cell went by; the token itself is not kept."""
    shown = [pair for pair in headers if pair[0] in ("authorization", "cookie")]
    return blake2b(repr((cell, shown)).encode(), digest_size=16).digest()


RawHeaders = list[tuple[bytes, bytes]]

_REQUEST_HEADERS = (
    "accept",
    "authorization",
    "content-type",
    "idempotency-key",
    "if-none-match",
    "last-event-id",
    "traceparent",
    "tracestate",
    "user-agent",
)
"""All that a cell reads. Whatever else a client sends is between it and the gateway."""
_KEPT_BACK = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade", "date", "server", "set-cookie"),
    LEADER_HEADER.lower(),
)
"""Of an answer: what concerns one line only, what the HTTP server adds itself, cookies, and where a
cell's leader is: clients of a gateway need not reach it."""


def request_headers(scope: Scope, headers: Headers, cell: str) -> list[tuple[str, str]]:
    """The headers that a cell gets."""
    passed = [(name, value) for name, value in headers.items() if name in _REQUEST_HEADERS]
    if cookies := "; ".join(_own_cookies(headers.getlist("cookie"), cell)):
        passed.append(("cookie", cookies))
    client = scope.get("client")
    if client is not None:
        # Never the client's own word: a cell without access control goes by this address.
        passed.append(("x-forwarded-for", str(client[0])))
    return passed


def response_headers(headers: Iterable[tuple[str, str]], cell: str, *, secure: bool) -> RawHeaders:
    """The headers that the client gets."""
    passed: RawHeaders = [(CELL_HEADER.lower().encode(), cell.encode())]
    for name, value in headers:
        name = name.lower()
        if name == "set-cookie":
            passed.append((b"set-cookie", _marked(value, cell, secure=secure)))
        elif name not in _KEPT_BACK:
            passed.append((name.encode("latin-1"), value.encode("latin-1", "replace")))
    return passed


def _own_cookies(lines: Iterable[str], cell: str) -> Iterator[str]:
    """Those that this cell set, by the names it knows."""
    for line in lines:
        for cookie in line.split(";"):
            name = cookie.strip()
            if name.startswith(f"{cell}."):
                yield name.removeprefix(f"{cell}.")


def _marked(cookie: str, cell: str, *, secure: bool) -> bytes:
    """A cell's cookie under a name that says whose it is: their sessions are not the same."""
    safe = "" if not secure or "secure" in cookie.lower() else "; Secure"
    return f"{cell}.{cookie}{safe}".encode("latin-1", "replace")


_REFUSED = (401, 403)
"""This token is not for that cell: a tenant's need not be known in all of them."""


@dataclass(frozen=True, slots=True)
class CellResponse:
    """One answer; status 0: none."""

    cell: Cell
    status: int
    body: bytes = b""
    headers: RawHeaders = field(default_factory=list)
    why: str = ""

    @property
    def good(self) -> bool:
        """It did what was asked."""
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """It does not know who asks."""
        return self.status in _REFUSED

    @property
    def missing(self) -> bool:
        """It could not answer now."""
        return self.status == 0 or self.status == 429 or self.status >= 500

    def as_response(self) -> Response:
        """The cell's own answer."""
        response = Response(self.body, self.status)
        response.raw_headers = self.headers
        return response


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
