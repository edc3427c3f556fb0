"""HTTP/1.1 protocol of uvicorn with limits on clients that are not authenticated yet.

Limits the size and time of a request's head, pipelined requests, and answers that are not read.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rota.api.envelope import Envelope
from rota.api.letters import note_line
from rota.api.limits import HEAD_BYTES_MAX, HEAD_S_MAX, HEADERS_MAX, PARSE_BYTES, STALL_BYTES_MIN
from rota.api.parsing.request import mark_complete
from rota.api.problems import RETRY_AFTER_S
from rota.api.throttling import ConnectionLimit
from rota.wire.formats import encode
from rota.wire.problems import MEDIA_TYPE, TITLES, TYPE_PREFIX, Problem

# A client that sends invalid requests must not fill the log; our own failures are errors.
_logger = logging.getLogger("rota.http")
_logger.setLevel(logging.ERROR)


class _TooManyHeadersError(Exception):
    """One header more than the limit."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 of uvicorn, which by itself waits forever and accepts any amount of data.

    The parser keeps all bytes that complete neither a head nor a piece of body, be they headers,
    trailers or anything else: counting those limits all of them. A pipelined request takes a
    hundred times its bytes once it is parsed, so it is kept as bytes until the one before is
    answered, and no more is read.
    """

    def __init__(
        self, *args: Any, connections: ConnectionLimit | None = None, **named: Any
    ) -> None:
        super().__init__(*args, **named)
        self.logger = _logger
        self._connections = ConnectionLimit() if connections is None else connections
        self._unproductive_bytes = 0
        self._made_progress = False
        self._unparsed = b""
        self._untaken: int | None = None
        """Bytes that the client had not read at the last check, if they were too many."""
        self._is_in_head = False
        self._head_alarm: asyncio.TimerHandle | None = None
        self._self = weakref.ref(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        self._envelope = Envelope(transport, self.loop)
        super().connection_made(self._envelope)  # type: ignore[arg-type]  # does all that one does
        if not self._connections.admit(self):
            detail = f"{self._connections.limit} connections are open already: try again later"
            self._refuse(503, "too_many_connections", detail)
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._head_arrived()
        self._unparsed = b""
        super().connection_lost(exc)
        # uvicorn leaves this timer running if the connection broke.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Parses data, or keeps it while a request before it is not answered."""
        if self._unparsed:
            self._unparsed += data
            self.flow.pause_reading()
            return
        self._feed(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts headers; the exception makes the parser stop and call `send_400_response`."""
        if len(self.headers) >= HEADERS_MAX:
            raise _TooManyHeadersError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._made_progress = True
        self._is_in_head = False
        self._head_arrived()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._made_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        mark_complete(self.scope)  # type: ignore[arg-type]  # a dict that is more than uvicorn says
        note_line(self.scope, self._self)  # type: ignore[arg-type]  # the same
        if not self._is_idle():
            self._connections.note_request(self)

    def on_response_complete(self) -> None:
        """Continues with pipelined requests."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._is_idle():
            self._connections.wait_for(self)
        rest, self._unparsed = self._unparsed, b""
        self._feed(rest)

    def resume_writing(self) -> None:
        self._untaken = None
        super().resume_writing()

    def head(self, scope: Scope) -> bytes:
        """Returns the head of a good answer to that request; empty if the answer must go through
        ASGI."""
        if not self._may_post(scope):
            return b""
        usual = (b"%s: %s\r\n" % field for field in self.cycle.default_headers)
        return b"".join((b"HTTP/1.1 200 OK\r\n", *usual))

    def post(self, scope: Scope, answer: bytes) -> None:
        """Sends a complete answer to that request, in place of the one under way."""
        if self._may_post(scope):
            self._envelope.post(answer)

    def _may_post(self, scope: Scope) -> bool:
        """Whether the answer can be written directly: no other request waits, and uvicorn adds
        nothing."""
        cycle = self.cycle
        if cycle is None or cycle.scope is not scope or cycle.response_started:
            return False
        is_there = not (cycle.disconnected or self.transport.is_closing())
        return is_there and cycle.keep_alive and not self.flow.write_paused

    def send_400_response(self, msg: str) -> None:
        """Answers a request that is not valid HTTP, or has too many headers, with a problem."""
        # The parser stopped at the limit, so one more header was sent.
        if self._is_in_head and self.headers and len(self.headers) >= HEADERS_MAX:
            self._refuse(431, "head_too_large", f"a request has at most {HEADERS_MAX} headers")
        else:
            self._refuse(400, "not_http", "this is not an HTTP/1.1 request")

    def close_now(self) -> None:
        """Closes at once: the client has no answer to lose."""
        self.transport.abort()

    def close_if_stalled(self) -> None:
        """Closes if the client has read hardly anything of an answer since the last check.

        A closed transport would wait for its client to read the rest, forever if need be.
        """
        if not (self.flow.write_paused or self.transport.is_closing()):
            self._untaken = None
            return
        waiting = self.transport.get_write_buffer_size()
        if self._untaken is not None and waiting > self._untaken - STALL_BYTES_MIN:
            self.transport.abort()
        self._untaken = waiting

    def _feed(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self.transport.is_closing():
            if self.pipeline:
                self._unparsed = data[at:]
                self.flow.pause_reading()
                return
            piece = data if len(data) <= PARSE_BYTES else data[at : at + PARSE_BYTES]
            at += len(piece)
            self._parse(piece)
        is_mute = bool(data) and self._is_idle()
        if is_mute:
            self._connections.wait_for(self)
        else:
            self._connections.note_data(self)
        # Most heads come complete and need no timer. An incomplete head gets one, also on a
        # connection that was used before; bytes that are no request, or the rest of an answered
        # one, do not extend it.
        is_awaited = (is_mute or self._is_in_head) and not self.transport.is_closing()
        if is_awaited and self._head_alarm is None:
            self._await_head()

    def _parse(self, piece: bytes) -> None:
        self._made_progress = False
        super().data_received(piece)
        self._unproductive_bytes = (
            0 if self._made_progress else self._unproductive_bytes + len(piece)
        )
        if self._unproductive_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            detail = f"the head of a request is at most {HEAD_BYTES_MAX} bytes"
            self._refuse(431, "head_too_large", detail)

    def _is_idle(self) -> bool:
        """Whether no request waits for an answer."""
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self._head_alarm = self.loop.call_later(HEAD_S_MAX, self.transport.close)

    def _head_arrived(self) -> None:
        if self._head_alarm is not None:
            self._head_alarm.cancel()
            self._head_alarm = None

    def _refuse(self, status: int, code: str, detail: str) -> None:
        # A second answer would garble one that is under way.
        if self._is_idle():
            body = encode(Problem(TYPE_PREFIX + code, TITLES[status], status, detail))
            head = [
                f"HTTP/1.1 {status} {TITLES[status]}",
                f"content-type: {MEDIA_TYPE}",
                f"content-length: {len(body)}",
                "connection: close",
            ]
            if status == 503:
                head.append(f"retry-after: {RETRY_AFTER_S}")
            self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()
