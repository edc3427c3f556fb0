"""Merges the streams of changes of all cells into one, which can be resumed.

An event's id holds a position in every cell: `north=42.0,south=7.3`. A cell that goes down leaves
the stream and is asked again from its position, so no event is lost that it still keeps.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.gateway.cells import Cell, CellRequest
from rota.gateway.context import CellResponse, GatewayRequest, request_headers, response_headers
from rota.gateway.forwarding import client_left, first_of, usable_responses
from rota.gateway.limits import (
    STREAM_EVENT_BYTES_MAX,
    STREAM_KEEPALIVE_S,
    STREAM_RETRY_S,
    STREAM_SEND_S,
    STREAM_WAITING_MAX,
)
from rota.gateway.problems import CellDownError, invalid

log = structlog.get_logger(__name__)

_POSITIONS = re.compile(r"[a-z0-9-]+=[0-9.]+(,[a-z0-9-]+=[0-9.]+)*\Z")
_EVENTS = "text/event-stream; charset=utf-8"


def read_event_id(text: str) -> dict[str, str]:
    """Reads the position in each cell; the stream of a cell without one begins now."""
    if not _POSITIONS.match(text):
        raise invalid("Last-Event-ID", "the `id` of an event of this stream, `north=42.0,…`")
    return dict(pair.split("=", 1) for pair in text.split(","))


class StreamMerge:
    """Merges events of several cells: gives each an id with the positions in all cells."""

    def __init__(self, positions: dict[str, str]) -> None:
        self.positions = positions

    def merge(self, cell: str, event: bytes) -> bytes:
        """Returns the event with an id of all positions; empty for comments of a cell."""
        kept, moved = [], False
        for line in event.split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"id":
                self.positions[cell], moved = value.strip().decode("latin-1"), True
            elif name in (b"data", b"event"):
                kept.append(line)
        if not moved:
            return b""
        position = ",".join(f"{name}={at}" for name, at in self.positions.items())
        return b"\n".join((b"id: " + position.encode("latin-1"), *kept)) + b"\n\n"


async def cut_events(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields whole events, however the network divided them."""
    left = b""
    async for piece in content.iter_any():
        *events, left = (left + piece).split(b"\n\n")
        if len(left) > STREAM_EVENT_BYTES_MAX:
            raise aiohttp.ClientPayloadError("an event is too long")
        for event in events:
            yield event


async def stream_changes(request: GatewayRequest) -> Response:
    """Streams changes from the positions in Last-Event-ID on, or from now."""
    text = request.headers.get("last-event-id")
    merge = StreamMerge(read_event_id(text) if text else {})
    cells = list(request.context.directory.cells.values())
    stack = AsyncExitStack()
    try:
        stack.enter_context(request.context.streams.reserve())
        opened = await asyncio.gather(*(_open(request, merge, cell, stack) for cell in cells))
        usable_responses([response for response, _ in opened])
        answers = [
            (response.cell, answer)
            for response, answer in opened
            if answer is not None or response.missing
        ]
    except BaseException:
        await stack.aclose()
        raise
    return MergedStream(request, merge, answers, stack)


def _ask(request: GatewayRequest, merge: StreamMerge, cell: Cell) -> CellRequest:
    headers = [
        pair
        for pair in request_headers(request.scope, request.headers, cell.name)
        if pair[0] != "last-event-id"
    ]
    if position := merge.positions.get(cell.name):
        headers.append(("last-event-id", position))
    return CellRequest("GET", "/stream", headers)


async def _open(
    request: GatewayRequest, merge: StreamMerge, cell: Cell, stack: AsyncExitStack
) -> tuple[CellResponse, aiohttp.ClientResponse | None]:
    try:
        answer = await stack.enter_async_context(
            request.context.directory.connections.open(cell, _ask(request, merge, cell))
        )
        if answer.status == 200:
            return CellResponse(cell, 200), answer
        headers = response_headers(answer.headers.items(), cell.name, secure=request.context.secure)
        return CellResponse(cell, answer.status, await answer.read(), headers), None
    except CellDownError as error:
        return CellResponse(cell, 0, why=error.why), None


class MergedStream(Response):
    """Response with the merged stream."""

    def __init__(
        self,
        request: GatewayRequest,
        merge: StreamMerge,
        answers: Sequence[tuple[Cell, aiohttp.ClientResponse | None]],
        stack: AsyncExitStack,
    ) -> None:
        super().__init__(media_type=_EVENTS, headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._request = request
        self._merge = merge
        self._answers = answers
        self._stack = stack
        self._events: asyncio.Queue[tuple[str, bytes | None]] = asyncio.Queue(STREAM_WAITING_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends events until the client leaves or the gateway stops."""
        async with self._stack:
            readers = [self._read(cell, answer) for cell, answer in self._answers]
            closing = self._request.context.closing
            try:
                await first_of(self._write(send), *readers, client_left(receive), closing.wait())
                if closing.is_set():
                    await self._send(send, b"", more=False)
            except TimeoutError:
                log.warning("stream_cut_off", reason="its reader took nothing")

    async def _read(self, cell: Cell, answer: aiohttp.ClientResponse | None) -> None:
        """Reads one cell's events, again after a failure, while the cell accepts the token."""
        while True:
            try:
                if answer is not None:
                    await self._take(cell, answer)
                async with self._request.context.directory.connections.open(
                    cell, _ask(self._request, self._merge, cell)
                ) as again:
                    if again.status in (401, 403):
                        return
                    if again.status == 200:
                        await self._take(cell, again)
            except (CellDownError, aiohttp.ClientError) as error:
                log.info("cell_left_stream", cell=cell.name, reason=repr(error))
            answer = None
            await self._events.put((cell.name, None))
            await asyncio.sleep(STREAM_RETRY_S)

    async def _take(self, cell: Cell, answer: aiohttp.ClientResponse) -> None:
        async for event in cut_events(answer.content):
            await self._events.put((cell.name, event))

    async def _write(self, send: Send) -> None:
        start: dict[str, Any] = {"status": 200, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        await self._send(send, b"retry: 1000\n\n")
        while True:
            try:
                async with asyncio.timeout(STREAM_KEEPALIVE_S):
                    cell, event = await self._events.get()
            except TimeoutError:
                await self._send(send, b": still here\n\n")
                continue
            if event is None:
                await self._send(send, f": cell {cell} is away\n\n".encode())
            elif text := self._merge.merge(cell, event):
                await self._send(send, text)

    async def _send(self, send: Send, text: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(STREAM_SEND_S):
            await send({"type": "http.response.body", "body": text, "more_body": more})
