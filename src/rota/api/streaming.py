"""Streaming answers: limited in number, ended by shutdown, closed when the client does not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, nullcontext, suppress

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.api.cancel_on_disconnect import client_disconnected, first_of
from rota.api.deps import ConcurrencyLimit
from rota.api.limits import STREAM_END_S, STREAM_SEND_S
from rota.engine.ports import UnavailableError
from rota.store.protocol import StoreError
from rota.wire.problems import NO_HEADERS

log = structlog.get_logger(__name__)


class Stream(Response):
    """Streaming response: sends pieces until they end, the client disconnects or the server stops.

    The next piece is made only when the last one was sent.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        media_type: str,
        *,
        closing: asyncio.Event,
        limit: ConcurrencyLimit | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        super().__init__(media_type=media_type, headers=dict(headers))
        self._pieces = pieces
        self._closing = closing
        self._limit = limit
        self._end_when: Callable[[], Awaitable[None]] | None = None
        # The length is not known, and a proxy must not buffer the answer.
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"

    def end_when(self, ended: Callable[[], Awaitable[None]]) -> None:
        """Ends the stream when `ended` returns: its reader has lost access."""
        self._end_when = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        more = () if self._end_when is None else (self._end_when(),)
        with self._limit.acquired() if self._limit is not None else nullcontext():
            ended = await first_of(
                self._run(send), client_disconnected(receive), self._closing.wait(), *more
            )
            if ended is None and self._closing.is_set() and "content-length" not in self.headers:
                with suppress(TimeoutError):
                    async with asyncio.timeout(STREAM_END_S):
                        await send(_END)

    async def _run(self, send: Send) -> bool:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    async with asyncio.timeout(STREAM_SEND_S):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (TimeoutError, StoreError, UnavailableError) as error:
            # Without a final chunk the reader knows that the stream was cut off, and reconnects.
            log.warning("stream cut off", cause=repr(error))
            return True
        await send(_END)
        return True


_END = {"type": "http.response.body", "body": b"", "more_body": False}
