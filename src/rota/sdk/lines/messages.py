"""HTTP/1.1 for short calls: a request as one piece of bytes, an answer parsed as it comes; no I/O.

A general client spends several times what such a call is worth on what these calls do not use:
cookies, redirects, streams, compression.

Why: docs/decisions/0004-http-on-msgspec-and-own-client-transport.md.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import httptools

if TYPE_CHECKING:
    from rota.sdk.calls import Call

KEPT_S = 5.0
"""A client's line that nobody has used for so long is not trusted any more: who knows what lies
between. A worker's is used more evenly (awaited_lines.py)."""
_PLAIN = re.compile(r"[!-~]*")
_TEXT = re.compile(r"[ -~]*")
_REFUSED = f"[Errno {errno.ECONNREFUSED}]"
PLAIN_THERE = "WRONG_VERSION_NUMBER"
"""What TLS makes of a server that speaks without it."""
SPEAKS_PLAIN = "it speaks http there, not https"


class BrokenError(Exception):
    """No whole answer came, and why."""


class Heard(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    """By their names in lower case."""
    body: bytes


class Address(NamedTuple):
    """Where a server's URL leads."""

    host: str
    port: int
    tls: bool
    name: str
    """As the Host header has it."""
    prefix: str
    """Of every path."""


@lru_cache(maxsize=64)
def address_of(server: str) -> Address:
    """Raises BrokenError for what is no HTTP URL."""
    url = urlsplit(server)
    if url.scheme not in ("http", "https") or not url.hostname or not _PLAIN.fullmatch(server):
        raise BrokenError(f"{server!r} is no http or https URL")
    tls = url.scheme == "https"
    name = url.netloc.rpartition("@")[2]
    return Address(url.hostname, url.port or (443 if tls else 80), tls, name, url.path.rstrip("/"))


def head_lines(headers: Mapping[str, str]) -> str:
    """Headers as they are sent; raises BrokenError for what would be more than one."""
    for name, value in headers.items():
        if not _TEXT.fullmatch(value):
            raise BrokenError(f"the header {name} has characters that no header may have")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def request_to(address: Address, method: str, path: str, lines: str, body: bytes | None) -> bytes:
    """All bytes of a request; `lines` are its headers."""
    if not _PLAIN.fullmatch(path):
        raise BrokenError(f"{path!r} cannot be asked for")
    head = f"{method} {address.prefix}{path} HTTP/1.1\r\nHost: {address.name}\r\n{lines}"
    if body is None:
        return f"{head}\r\n".encode("ascii")
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body


def request_for(address: Address, call: Call[Any], lines: str) -> bytes:
    """The same for a call of the API."""
    path = f"{call.path}?{urlencode(call.params)}" if call.params else call.path
    body = call.body
    if body is not None:
        lines = f"{lines}Content-Type: {call.media}\r\n"
    elif call.method not in ("GET", "DELETE"):
        body = b""  # who changes something is expected to say how long it is
    return request_to(address, call.method, path, lines, body)


def words(error: BrokenError | OSError) -> str:
    """What went wrong with a connection, in a few words."""
    # Of several addresses of one name asyncio tells all failures in one text.
    if isinstance(error, ConnectionRefusedError) or _REFUSED in str(error):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if PLAIN_THERE in str(error):
        return SPEAKS_PLAIN
    return str(error)[:120] or type(error).__name__


class Hearing:
    """The answer to one request, as it comes."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self._left = bytes_max
        self.keeps = False
        """The connection may be used for the next request; known when the answer is there."""
        self._heard: Heard | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._await_head()

    def _await_head(self) -> None:
        self._headers: dict[str, str] = {}
        self._has_head = False
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> Heard | None:
        """The answer, once it is whole; raises BrokenError."""
        if self._heard is not None:
            self.keeps = False  # whatever it is, nobody asked for it
            return self._heard
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise BrokenError("sent more than a short answer")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise BrokenError(f"does not speak HTTP: {error}") from None
        return self._heard

    def end(self) -> Heard:
        """The other side has hung up. An answer of unknown length ends so; any other breaks off."""
        measured = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._heard is None and self._has_head and not measured:
            self._whole()
        if self._heard is None:
            raise BrokenError("closed the connection")
        self.keeps = False
        return self._heard

    def _whole(self) -> None:
        status = self._parser.get_status_code()
        self._heard = Heard(status, self._headers, b"".join(self._body))

    # For the parser.

    def on_message_begin(self) -> None:
        """The answer begins, or what comes after it."""
        if self._heard is not None:
            self.keeps = False  # whatever it is, nobody asked for it
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of them."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """That was the last."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A piece."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """That was all."""
        if self._heard is not None:
            return
        if self._parser.get_status_code() < 200:
            self._await_head()  # a word in between: the answer is still to come
            return
        self.keeps = self._parser.should_keep_alive()
        self._whole()
