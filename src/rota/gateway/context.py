"""Context of a gateway's requests: headers, body budget, stream limit, cells' responses, and a
negative cache of tokens.

A tenant's token is known in its own cell only, and merged lists ask all cells: without the cache
every list would be a failed login at each of the others, and those are throttled. The gateway keeps
no state of jobs.
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
    """Negative cache of tokens: remembers for a while which cell does not know which token."""

    def __init__(self) -> None:
        self._refusals: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def recall(self, cell: str, headers: Iterable[tuple[str, str]]) -> T | None:
        """Returns the cell's recent refusal of this token, if there was one."""
        ends, refusal = self._refusals.get(_cache_key(cell, headers), (0.0, None))
        return refusal if asyncio.get_running_loop().time() < ends else None

    def note(self, cell: str, headers: Iterable[tuple[str, str]], refusal: T) -> None:
        """Remembers a refusal; the oldest is dropped first."""
        key = _cache_key(cell, headers)
        self._refusals[key] = (asyncio.get_running_loop().time() + UNKNOWN_TOKEN_S, refusal)
        self._refusals.move_to_end(key)
        if len(self._refusals) > UNKNOWN_TOKENS_MAX:
            self._refusals.popitem(last=False)


def _cache_key(cell: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Hashes the credentials, so that the token itself is not kept."""
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
"""Headers that a cell reads; others are not passed on."""
_NOT_PASSED_ON = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade", "date", "server", "set-cookie"),
    LEADER_HEADER.lower(),
)
"""Headers of an answer that concern one connection, that the HTTP server adds itself, cookies, and
the leader's address, which a gateway's clients may not reach."""


def request_headers(scope: Scope, headers: Headers, cell: str) -> list[tuple[str, str]]:
    """Returns the headers of a request that a cell gets."""
    passed = [(name, value) for name, value in headers.items() if name in _REQUEST_HEADERS]
    if cookies := "; ".join(_own_cookies(headers.getlist("cookie"), cell)):
        passed.append(("cookie", cookies))
    client = scope.get("client")
    if client is not None:
        # Never the client's own header: a cell without access control decides by this address.
        passed.append(("x-forwarded-for", str(client[0])))
    return passed


def response_headers(headers: Iterable[tuple[str, str]], cell: str, *, secure: bool) -> RawHeaders:
    """Returns the headers of a cell's answer that the client gets."""
    passed: RawHeaders = [(CELL_HEADER.lower().encode(), cell.encode())]
    for name, value in headers:
        name = name.lower()
        if name == "set-cookie":
            passed.append((b"set-cookie", _marked(value, cell, secure=secure)))
        elif name not in _NOT_PASSED_ON:
            passed.append((name.encode("latin-1"), value.encode("latin-1", "replace")))
    return passed


def _own_cookies(lines: Iterable[str], cell: str) -> Iterator[str]:
    """Yields the cookies that this cell set, under its own names."""
    for line in lines:
        for cookie in line.split(";"):
            name = cookie.strip()
            if name.startswith(f"{cell}."):
                yield name.removeprefix(f"{cell}.")


def _marked(cookie: str, cell: str, *, secure: bool) -> bytes:
    """Puts the cell's name before that of its cookie: each cell has sessions of its own."""
    safe = "" if not secure or "secure" in cookie.lower() else "; Secure"
    return f"{cell}.{cookie}{safe}".encode("latin-1", "replace")


_REFUSED = (401, 403)
"""Statuses of a cell that does not accept the token: a tenant's is not known in all cells."""


@dataclass(frozen=True, slots=True)
class CellResponse:
    """Response of one cell; status 0: there was none."""

    cell: Cell
    status: int
    body: bytes = b""
    headers: RawHeaders = field(default_factory=list)
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether the cell did what was asked."""
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """Whether the cell does not accept the token."""
        return self.status in _REFUSED

    @property
    def missing(self) -> bool:
        """Whether the cell could not answer now."""
        return self.status == 0 or self.status == 429 or self.status >= 500

    def as_response(self) -> Response:
        response = Response(self.body, self.status)
        response.raw_headers = self.headers
        return response


_LATER = {"Retry-After": str(RETRY_AFTER_S)}
_CLOSE = {"Connection": "close"}


class BodyBudget:
    """Body budget: reads request bodies, and limits how many bytes are held at once."""

    def __init__(self, limit: int = BODIES_BYTES_MAX) -> None:
        self._limit = limit
        self._held = 0

    @asynccontextmanager
    async def reading(self, headers: Headers, receive: Receive) -> AsyncIterator[bytes]:
        """Reads the whole body; it counts until the block ends."""
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
            raise _too_large()
        pieces: list[bytes] = []
        try:
            try:
                async with asyncio.timeout(BODY_READ_S):
                    await self._read(receive, pieces)
            except TimeoutError:
                detail = f"the request's body did not arrive within {BODY_READ_S:.0f} s"
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
                detail = "too many large requests at once: try again later"
                raise ProblemError(429, "busy", detail, headers={**_LATER, **_CLOSE})


def _too_large() -> ProblemError:
    detail = f"the request's body is larger than {BODY_BYTES_MAX} bytes"
    return ProblemError(413, "too_large", detail, headers=_CLOSE)


class StreamLimit:
    """Limits open streams, which do not end by themselves."""

    def __init__(self, limit: int = STREAMS_MAX) -> None:
        self._limit = limit
        self.taken = 0

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Counts one stream until the block ends; refuses it beyond the limit."""
        if self.taken >= self._limit:
            detail = f"{self._limit} streams are open already: close one, or try again later"
            raise ProblemError(429, "too_many_streams", detail, headers=_LATER)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """Parts of a gateway that its requests share."""

    directory: CellDirectory
    secure: bool = False
    """Whether clients reach this gateway by HTTPS."""
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)
    bodies: BodyBudget = field(default_factory=BodyBudget)
    streams: StreamLimit = field(default_factory=StreamLimit)
    unknown_tokens: TokenNegativeCache[CellResponse] = field(default_factory=TokenNegativeCache)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway shuts down: streams end."""


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """Request of a client, with its body."""

    context: GatewayContext
    scope: Scope
    headers: Headers
    params: Mapping[str, str]
    body: bytes

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """Path as the client encoded it, without the query."""
        return bytes(self.scope["raw_path"]).decode("latin-1")

    @property
    def target(self) -> str:
        """Path and query as the client encoded them."""
        query = bytes(self.scope["query_string"]).decode("latin-1")
        return f"{self.path}?{query}" if query else self.path
