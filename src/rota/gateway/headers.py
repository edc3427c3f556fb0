"""Which headers pass through, and how cookies of several cells share one browser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from starlette.datastructures import Headers
from starlette.types import Scope

from rota.gateway.problems import CELL_HEADER
from rota.wire.workers import LEADER_HEADER

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
