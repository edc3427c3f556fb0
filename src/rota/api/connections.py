"""Bounds on what a client may send before anybody knows who it is: the size and time of a head."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rota.api.envelope import Envelope
from rota.api.limits import HEAD_BYTES_MAX, HEAD_S_MAX
from rota.wire.problems import MEDIA_TYPE, TITLES, TYPE_PREFIX, Problem
from rota.wire.units import encode

_HEAD = "HTTP/1.1 431 {title}\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, which by itself waits for ever and reads heads of any size.

    Bytes that bring neither a whole head nor any body are all kept by the parser, be they of
    headers, of trailers after a body or of anything else: counting those bounds every one of them.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._fruitless_bytes = 0
        self._bore_fruit = False
        self._head_alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Somebody is there; now they must say something."""
        super().connection_made(Envelope(transport, self.loop))  # type: ignore[arg-type]  # does all that one does
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """They have gone."""
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feeds the parser, and breaks off where that leads nowhere."""
        self._bore_fruit = False
        super().data_received(data)
        self._fruitless_bytes = 0 if self._bore_fruit else self._fruitless_bytes + len(data)
        if self._fruitless_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._break_off()

    def on_message_begin(self) -> None:
        """A head begins; on a connection that was used before it has its own time."""
        super().on_message_begin()
        if self._head_alarm is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._bore_fruit = True
        self._head_arrived()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of body."""
        self._bore_fruit = True
        super().on_body(body)

    def _await_head(self) -> None:
        self._head_alarm = self.loop.call_later(HEAD_S_MAX, self.transport.close)

    def _head_arrived(self) -> None:
        if self._head_alarm is not None:
            self._head_alarm.cancel()
            self._head_alarm = None

    def _break_off(self) -> None:
        # With an answer under way another one would only garble it.
        if self.cycle is None or self.cycle.response_complete:
            title = TITLES[431]
            detail = f"the head of a request is at most {HEAD_BYTES_MAX} bytes"
            body = encode(Problem(TYPE_PREFIX + "head_too_large", title, 431, detail))
            head = _HEAD.format(title=title, media=MEDIA_TYPE, length=len(body))
            self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()
