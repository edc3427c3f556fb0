"""HTTP/1.1 for short calls: one write a request, one parse an answer, on lines that are kept.

A worker asks all day, and what it asks and hears is small. A general client spends several times
what a call is worth on what these calls do not use: cookies, redirects, streams, compression.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

KEPT_S = 15.0
"""A line that nobody has used for so long is not trusted any more: who knows what lies between."""
KEPT_MAX = 32
"""Lines that wait for the next call, to one server."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""More is no short answer."""
_PLAIN = re.compile(r"[!-~]*")
_TEXT = re.compile(r"[ -~]*")


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


class Line(asyncio.Protocol):
    """One connection, with one call on it at a time."""

    def __init__(self) -> None:
        self.is_open = True
        self.free_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Heard] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: dict[str, str] = {}
        self._has_head = False
        self._body: list[bytes] = []
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no common class

    async def ask(self, request: bytes) -> Heard:
        """The answer to one request; raises BrokenError."""
        assert self._transport is not None
        if not self.is_open:
            raise BrokenError("the connection was closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._size = 0
        self._await_head()
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            if self._answer.cancelled():
                self.close()  # an answer that still comes would be taken for the next call's

    def close(self) -> None:
        """Hangs up."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _await_head(self) -> None:
        self._headers, self._has_head = {}, False
        self._body.clear()

    # What comes.

    def data_received(self, data: bytes) -> None:
        """A piece of an answer."""
        self._size += len(data)
        if self._parser is None or self._size > ANSWER_BYTES_MAX:
            self._break_off("sent what nobody asked for")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._break_off(f"does not speak HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer of unknown length ends with the connection; any other breaks off."""
        measured = "content-length" in self._headers or "transfer-encoding" in self._headers
        if exc is None and self._has_head and not measured:
            self._whole()
        self._break_off("closed the connection" if exc is None else str(exc))

    def on_header(self, name: bytes, value: bytes) -> None:
        """For the parser."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """For the parser."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """For the parser."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """For the parser."""
        assert self._parser is not None
        if self._parser.get_status_code() < 200:
            self._await_head()  # a word in between: the answer is still to come
            return
        self.is_open = self.is_open and self._parser.should_keep_alive()
        self._whole()

    def _whole(self) -> None:
        parser, self._parser = self._parser, None
        if parser is not None and self._answer is not None and not self._answer.done():
            heard = Heard(parser.get_status_code(), self._headers, b"".join(self._body))
            self._answer.set_result(heard)

    def _break_off(self, why: str) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BrokenError(why))


class Lines:
    """Calls to any server, on lines that are opened when none is free."""

    def __init__(self, headers: dict[str, str], connect_s: float) -> None:
        self._connect_s = connect_s
        self._headers = headers
        self._free: dict[Address, list[Line]] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def send(
        self, method: str, server: str, path: str, body: bytes, headers: dict[str, str]
    ) -> Heard:
        """Raises BrokenError and OSError; and TimeoutError where no connection comes about."""
        address = address_of(server)
        if not _PLAIN.fullmatch(path):
            raise BrokenError(f"{path!r} cannot be asked for")
        head = (
            f"{method} {address.prefix}{path} HTTP/1.1\r\nHost: {address.name}\r\n"
            f"{_head_lines({**self._headers, **headers})}Content-Length: {len(body)}\r\n\r\n"
        )
        line = self._take(address) or await self._open(address)
        heard = await line.ask(head.encode("ascii") + body)
        self._give_back(address, line)
        return heard

    async def close(self) -> None:
        """Lets go of the lines that are free; those in use end with their calls."""
        self._closed = True
        for lines in self._free.values():
            for line in lines:
                line.close()
        self._free.clear()
        await asyncio.sleep(0)  # the loop hangs up in its next round

    def _take(self, address: Address) -> Line | None:
        oldest = asyncio.get_running_loop().time() - KEPT_S
        free = self._free.get(address, [])
        while free:
            line = free.pop()
            if line.is_open and line.free_since > oldest:
                return line
            line.close()
        return None

    def _give_back(self, address: Address, line: Line) -> None:
        free = self._free.setdefault(address, [])
        if line.is_open and not self._closed and len(free) < KEPT_MAX:
            line.free_since = asyncio.get_running_loop().time()
            free.append(line)
        else:
            line.close()

    async def _open(self, address: Address) -> Line:
        if address.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        async with asyncio.timeout(self._connect_s):
            _, line = await asyncio.get_running_loop().create_connection(
                Line, address.host, address.port, ssl=self._tls if address.tls else None
            )
        return line


def _head_lines(headers: dict[str, str]) -> str:
    for name, value in headers.items():
        if not _TEXT.fullmatch(value):
            raise BrokenError(f"the header {name} has characters that no header may have")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
