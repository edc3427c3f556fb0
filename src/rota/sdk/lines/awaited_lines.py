"""Short calls that are awaited: one write a request, one parse an answer, on lines that are kept.

A worker's own, and those of the asynchronous client.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Callable, Mapping
from typing import cast

from rota.sdk.lines.messages import (
    Address,
    BrokenError,
    Heard,
    Hearing,
    address_of,
    head_lines,
    request_to,
)

KEPT_S = 15.0
"""A line that nobody has used for so long is not trusted any more: who knows what lies between."""
KEPT_MAX = 32
"""Lines that wait for the next call, to one server."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""More is no short answer."""


class Line(asyncio.Protocol):
    """One connection, with one call on it at a time."""

    def __init__(self) -> None:
        self.is_open = True
        self.free_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._look = select.poll()
        self._answer: asyncio.Future[Heard] | None = None
        self._hearing: Hearing | None = None
        self._patience: asyncio.Timeout | None = None
        self._quiet_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no common class
        self._look.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    @property
    def is_quiet(self) -> bool:
        """Nobody has hung up, not even while the loop had no time to notice."""
        return self.is_open and not self._look.poll(0)

    async def ask(self, request: bytes) -> Heard:
        """The answer to one request; raises BrokenError."""
        assert self._transport is not None
        if not self.is_open:
            raise BrokenError("the connection was closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._hearing = Hearing(ANSWER_BYTES_MAX)
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            # Also where the answer has come, and its caller was told to end in the same moment:
            # nobody gives the line back then.
            self.close()
            raise

    async def ask_for(self, request: bytes, quiet_s: float) -> Heard:
        """The same; raises TimeoutError where nothing came for so long."""
        self._quiet_s = quiet_s
        try:
            async with asyncio.timeout(quiet_s) as self._patience:
                return await self.ask(request)
        finally:
            self._patience = None

    def close(self) -> None:
        """Hangs up."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # What comes.

    def data_received(self, data: bytes) -> None:
        """A piece of an answer."""
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time() + self._quiet_s)
        if self._hearing is None:
            self._break_off("sent what nobody asked for")
            return
        try:
            heard = self._hearing.feed(data)
        except BrokenError as error:
            self._break_off(str(error))
            return
        if heard is not None:
            self._whole(heard, self._hearing)

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer of unknown length ends with the connection; any other breaks off."""
        if exc is None and self._hearing is not None:
            try:
                self._whole(self._hearing.end(), self._hearing)
            except BrokenError as error:
                self._break_off(str(error))
        self._break_off("closed the connection" if exc is None else str(exc))

    def _whole(self, heard: Heard, hearing: Hearing) -> None:
        self._hearing = None
        self.is_open = self.is_open and hearing.keeps
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(heard)

    def _break_off(self, why: str) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BrokenError(why))


class Lines:
    """Calls to any server, on lines that are opened when none is free."""

    def __init__(
        self,
        headers: Mapping[str, str],
        connect_s: float,
        *,
        kept_s: float = KEPT_S,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        """`trust` says, once it matters, whose certificates are believed."""
        self._connect_s = connect_s
        self._kept_s = kept_s
        self._trust = trust
        self._common = head_lines(headers)
        self._free: dict[Address, list[Line]] = {}
        self._tls: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def send(
        self, method: str, server: str, path: str, body: bytes, headers: dict[str, str]
    ) -> Heard:
        """Raises BrokenError and OSError; and TimeoutError where no connection comes about."""
        address = address_of(server)
        lines = self._common + head_lines(headers)
        request = request_to(address, method, path, lines, body)
        line = await self.line_to(address)
        heard = await line.ask(request)
        self.give_back(address, line)
        return heard

    async def line_to(self, address: Address) -> Line:
        """One that is free, or a new one; raises OSError, and TimeoutError where none comes."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError("connections belong to one event loop: make a client for each")
        self._loop = loop
        return self._take(address, loop.time()) or await self._open(address)

    async def close(self) -> None:
        """Lets go of the lines that are free; those in use end with their calls."""
        self._closed = True
        if self._loop is asyncio.get_running_loop():  # else it is over, and they with it
            for lines in self._free.values():
                for line in lines:
                    line.close()
        self._free.clear()
        await asyncio.sleep(0)  # the loop hangs up in its next round

    def _take(self, address: Address, now: float) -> Line | None:
        free = self._free.get(address, [])
        while free:
            line = free.pop()
            if line.free_since > now - self._kept_s and line.is_quiet:
                return line
            line.close()
        return None

    def give_back(self, address: Address, line: Line) -> None:
        """For the next call."""
        free = self._free.setdefault(address, [])
        if line.is_open and not self._closed and len(free) < KEPT_MAX:
            line.free_since = asyncio.get_running_loop().time()
            free.append(line)
        else:
            line.close()

    async def _open(self, address: Address) -> Line:
        if address.tls and self._tls is None:
            self._tls = self._trust()
        async with asyncio.timeout(self._connect_s):
            _, line = await asyncio.get_running_loop().create_connection(
                Line, address.host, address.port, ssl=self._tls if address.tls else None
            )
        return line
