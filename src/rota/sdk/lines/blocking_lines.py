"""Short calls over blocking connections that are kept: one write a request, one parse an answer."""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from rota.sdk.calls import Call
from rota.sdk.clock import Clock
from rota.sdk.errors import SilenceError, UnreachableError
from rota.sdk.lines.messages import (
    KEPT_S,
    Address,
    BrokenError,
    Hearing,
    address_of,
    head_lines,
    request_for,
    words,
)
from rota.sdk.request_plan import Answer

KEPT_MAX = 20
"""Lines that wait for the next call, to one server."""
PIECE_BYTES = 64 * 1024
"""Larger ones would have the system map and unmap memory for every answer."""


class _Line:
    """One connection, with one call on it at a time."""

    __slots__ = ("_look", "_socket", "free_since")

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._look = select.poll()
        self._look.register(opened, select.POLLIN)
        self.free_since = 0.0

    @property
    def is_quiet(self) -> bool:
        """Nothing has come since the last answer, so nobody has hung up either."""
        return not self._look.poll(0)

    def ask(self, request: bytes, quiet_s: float) -> tuple[Answer, bool]:
        """The answer, and whether the line can be used again."""
        hearing = Hearing()
        self._socket.settimeout(quiet_s)
        is_sent = self._say(request)
        heard = None
        while heard is None:
            data = self._socket.recv(PIECE_BYTES)
            heard = hearing.feed(data) if data else hearing.end()
        return Answer(*heard), hearing.keeps and is_sent

    def _say(self, request: bytes) -> bool:
        """False where it would not hear all of it: it may have said why, and hung up."""
        rest = memoryview(request)
        try:
            while rest:  # each piece has its time: what is large takes long over a thin line
                rest = rest[self._socket.send(rest) :]
        except TimeoutError:
            raise
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()


class Lines:
    """Calls to any server, on lines that are opened when none is free. Threads may share them."""

    def __init__(
        self,
        headers: Mapping[str, str],
        connect_s: float,
        clock: Clock,
        trust: Callable[[], ssl.SSLContext],
    ) -> None:
        """`trust` says, once it matters, whose certificates are believed."""
        self._common = head_lines(headers)
        self._connect_s = connect_s
        self._clock = clock
        self._trust = trust
        self._tls: ssl.SSLContext | None = None
        self._free: dict[Address, list[_Line]] = {}
        self._process = os.getpid()
        self._closed = False

    def send(
        self, server: str, call: Call[Any], headers: Mapping[str, str], quiet_s: float
    ) -> Answer:
        """Raises UnreachableError, where nothing came for `quiet_s` a SilenceError."""
        try:
            address = address_of(server)
            request = request_for(address, call, self._common + head_lines(headers))
            line = self._take(address) or self._open(server, address)
            try:
                answer, keeps = line.ask(request, quiet_s)
            except BaseException:
                line.close()  # an answer that still comes would be taken for the next call's
                raise
        except TimeoutError:
            raise SilenceError(server, "no answer in time") from None
        except (BrokenError, OSError) as error:
            raise UnreachableError(server, words(error)) from error
        self._give_back(address, line, keeps=keeps)
        return answer

    def close(self) -> None:
        """Lets go of the lines that are free; those in use end with their calls."""
        self._closed = True
        for lines in list(self._free.values()):
            while lines:
                lines.pop().close()

    def _take(self, address: Address) -> _Line | None:
        if self._process != os.getpid():
            # After a fork both processes have them, and each would hear the other's answers.
            self.close()
            self._free, self._process, self._closed = {}, os.getpid(), False
        oldest_s = self._clock.elapsed_s() - KEPT_S
        free = self._free.get(address)
        while free:
            try:
                line = free.pop()
            except IndexError:  # another thread has taken it
                break
            if line.free_since > oldest_s and line.is_quiet:
                return line
            line.close()
        return None

    def _give_back(self, address: Address, line: _Line, *, keeps: bool) -> None:
        free = self._free.setdefault(address, [])
        if not keeps or len(free) >= KEPT_MAX:
            line.close()
            return
        line.free_since = self._clock.elapsed_s()
        free.append(line)
        if self._closed:
            self.close()

    def _open(self, server: str, address: Address) -> _Line:
        try:
            opened = socket.create_connection((address.host, address.port), self._connect_s)
            try:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return _Line(self._protected(opened, address) if address.tls else opened)
            except BaseException:
                opened.close()
                raise
        except TimeoutError:
            raise UnreachableError(server, "no connection in time", refused=True) from None
        except OSError as error:
            raise UnreachableError(server, words(error), refused=True) from error

    def _protected(self, opened: socket.socket, address: Address) -> ssl.SSLSocket:
        if self._tls is None:
            self._tls = self._trust()
        return self._tls.wrap_socket(opened, server_hostname=address.host)
