"""Hostile client, as a process of its own: `python -m tests.fuzz.abuse NAME PORT TOKEN`.

Prints `started` when the attack is under way, and continues until its input ends. A separate
process, so that the measured effect comes from the server, not from the attacker.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache

STARTED = "started"
IDLE = 10_000
SLOW = 500
BUSY = 4
"""Connections of those who send as fast as they can."""
STREAMS = 100
GIGABYTE = 1 << 30
PIECE = 64 * 1024
PAUSE_S = 1.0
FILES = 20_000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Target:
    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self._token = token

    def head(self, line: str, *headers: str) -> bytes:
        who = (f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {self._token}")
        return "\r\n".join([f"{line} HTTP/1.1", *who, *headers, "", ""]).encode()

    @asynccontextmanager
    async def connection(self, receive_buffer: int | None = None) -> AsyncIterator[Streams]:
        """Opens a connection; `receive_buffer` bounds what the kernel buffers for a client that
        does not read."""
        plug = socket.socket()
        plug.setblocking(False)  # noqa: FBT003  (the standard library's signature)
        if receive_buffer is not None:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(plug, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=plug, limit=PIECE)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


class StartCounter:
    """Counts started connections, and reports when all have started."""

    def __init__(self, wanted: int) -> None:
        self._missing = wanted

    def begun(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            sys.stdout.write(f"{STARTED}\n")
            sys.stdout.flush()


Abuser = Callable[[Target, Callable[[], None]], Awaitable[None]]


async def dribble(writer: asyncio.StreamWriter, first: bytes, begun: Callable[[], None]) -> None:
    writer.write(first)
    await writer.drain()
    begun()
    while not writer.is_closing():
        await asyncio.sleep(PAUSE_S)
        writer.write(b"x")
        await writer.drain()


async def slow_head(target: Target, begun: Callable[[], None]) -> None:
    async with target.connection() as (_, writer):
        await dribble(writer, b"GET /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", begun)


async def slow_body(target: Target, begun: Callable[[], None]) -> None:
    async with target.connection() as (_, writer):
        head = target.head("POST /jobs", "Content-Length: 100000")
        await dribble(writer, head + b'{"name": "', begun)


async def slow_body_without_token(target: Target, begun: Callable[[], None]) -> None:
    """Sends a body slowly, without a token, also after the answer."""
    async with target.connection() as (_, writer):
        head = f"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\nContent-Length: 100000\r\n"
        await dribble(writer, head.encode() + b'\r\n{"name": "', begun)


async def unread_page(target: Target, begun: Callable[[], None]) -> None:
    """Requests a long list and reads nothing."""
    async with target.connection(receive_buffer=4096) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio hides it
        writer.write(target.head("GET /jobs?limit=1000"))
        begun()
        await asyncio.sleep(3600)


async def unread_stream(target: Target, begun: Callable[[], None]) -> None:
    """Opens the stream from the beginning and reads nothing."""
    async with target.connection(receive_buffer=4096) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio hides it
        writer.write(target.head("GET /stream", "Last-Event-ID: 0.0"))
        begun()
        await asyncio.sleep(3600)


async def idle(target: Target, begun: Callable[[], None]) -> None:
    async with target.connection() as (reader, _):
        begun()
        await reader.read()


async def gigabyte_declared(target: Target, begun: Callable[[], None]) -> None:
    """Declares a large body and starts to send it."""
    async with target.connection() as (reader, writer):
        writer.write(target.head("POST /jobs", f"Content-Length: {GIGABYTE}") + b" " * PIECE)
        begun()
        await reader.read()


async def gigabyte_in_pieces(target: Target, begun: Callable[[], None]) -> None:
    async with target.connection() as (_, writer):
        writer.write(target.head("POST /jobs/batch", "Transfer-Encoding: chunked"))
        begun()
        for _ in range(GIGABYTE // PIECE):
            writer.write(b"%x\r\n" % PIECE + b" " * PIECE + b"\r\n")
            await writer.drain()


def posting(body: bytes, *headers: str) -> Abuser:
    async def post(target: Target, begun: Callable[[], None]) -> None:
        async with target.connection() as (reader, writer):
            head = target.head("POST /jobs", f"Content-Length: {len(body)}", *headers)
            while True:
                writer.write(head + body)
                begun()
                answer = await reader.readuntil(b"\r\n\r\n")
                length = answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length))

    return post


@cache
def bomb() -> bytes:
    """Compressed on first use, because this module is also loaded to list tests."""
    return gzip.compress(b" " * (64 << 20), 9)


async def packed_bomb(target: Target, begun: Callable[[], None]) -> None:
    await posting(bomb(), "Content-Encoding: gzip")(target, begun)


def repeating(request: bytes) -> Abuser:
    """Sends the same bytes repeatedly, on new connections."""

    async def say(target: Target, begun: Callable[[], None]) -> None:
        async with target.connection() as (reader, writer):
            writer.write(request)
            begun()
            async with asyncio.timeout(PAUSE_S):
                await reader.read()

    return say


async def pipelined(target: Target, begun: Callable[[], None]) -> None:
    """Sends requests without waiting for answers, which are discarded."""
    async with target.connection() as (reader, writer):
        one = f"GET /x HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\n\r\n".encode()

        async def swallow() -> None:
            while await reader.read(PIECE):
                pass

        swallowing = asyncio.create_task(swallow())
        try:
            while not swallowing.done():
                writer.write(one * 2_000)
                begun()
                await writer.drain()
        finally:
            swallowing.cancel()


HEAD = b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SMUGGLED = (
    HEAD
    + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
    HEAD + b"Content-Length: 1\r\nContent-Length: 5\r\n\r\n{}abc",
    HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
    HEAD + b"Content-Length: +1\r\n\r\n{",
    HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n{",
    HEAD + b"X: a\r\n b: folded\r\n\r\n",
    HEAD + b"X\x00: a\r\n\r\n",
    b"GET /jobs HTTP/1.1\nHost: 127.0.0.1\n\n",
    b"GET http://elsewhere.example/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /jobs\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
UPGRADE = (
    b"GET /stream HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x81\x05hello"
)


def tls_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="a.example").do_handshake()
    return outgoing.read()


def in_turn(*requests: bytes) -> Abuser:
    async def say_all(target: Target, begun: Callable[[], None]) -> None:
        for request in requests:
            with contextlib.suppress(OSError, TimeoutError):
                await repeating(request)(target, begun)

    return say_all


DEEP = b'{"name": "n", "task": {"kind": "noop"}, "payload": ' + b"[" * 100_000 + b"]" * 100_000
MANY_HEADERS = HEAD + b"".join(b"x%d: y\r\n" % number for number in range(10_000)) + b"\r\n"
LONG_HEADER = HEAD + b"X-Long: " + b"x" * (1 << 20) + b"\r\n\r\n"

ABUSES: Mapping[str, tuple[int, Abuser]] = {
    "slow heads": (SLOW, slow_head),
    "slow bodies": (SLOW, slow_body),
    "slow bodies without a token": (SLOW, slow_body_without_token),
    "idle connections": (IDLE, idle),
    "unread pages": (32, unread_page),
    "unread streams": (STREAMS, unread_stream),
    "a gigabyte, declared": (BUSY, gigabyte_declared),
    "a gigabyte, in pieces": (BUSY, gigabyte_in_pieces),
    "JSON 100,000 deep": (BUSY, posting(DEEP + b"}")),
    "a packed bomb": (BUSY, packed_bomb),
    "10,000 headers": (BUSY, repeating(MANY_HEADERS)),
    "a header of a megabyte": (BUSY, repeating(LONG_HEADER)),
    "pipelining": (BUSY, pipelined),
    "smuggling": (BUSY, in_turn(*SMUGGLED)),
    "an upgrade to websockets": (BUSY, repeating(UPGRADE)),
    "TLS on the plain port": (BUSY, repeating(tls_hello())),
}
"""By what they do: how many at once, and what each does, again as soon as it was thrown out."""


async def reconnect_forever(abuser: Abuser, target: Target, begun: Callable[[], None]) -> None:
    once = [begun]

    def count_once() -> None:
        if once:
            once.pop()()

    while True:
        with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            await abuser(target, count_once)
        await asyncio.sleep(0.01)


async def main(name: str, port: int, token: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    count, abuser = ABUSES[name]
    counter, target = StartCounter(count), Target(port, token)
    abusing = [
        asyncio.create_task(reconnect_forever(abuser, target, counter.begun)) for _ in range(count)
    ]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for one in abusing:
        one.cancel()
    await asyncio.gather(*abusing, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
