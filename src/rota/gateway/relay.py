"""Passes one request to one cell and the answer back, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.gateway.desk import GatewayContext, GatewayRequest
from rota.gateway.headers import RawHeaders, request_headers, response_headers
from rota.gateway.health import Cell
from rota.gateway.limits import ANSWER_S, STREAM_SEND_S, WHOLE_BYTES_MAX
from rota.gateway.lines import CellRequest
from rota.gateway.problems import CellDownError

log = structlog.get_logger(__name__)


def request_to(visit: GatewayRequest, cell: Cell, wait_s: float = ANSWER_S) -> CellRequest:
    """The client's own request, for a cell."""
    headers = request_headers(visit.scope, visit.headers, cell.name)
    return CellRequest(visit.method, visit.target, headers, visit.body, wait_s)


async def relay(visit: GatewayRequest, cell: Cell, wait_s: float = ANSWER_S) -> Response:
    """The cell's answer; raises AwayError before anything of it was passed on."""
    figures = visit.context.metrics
    try:
        response = await _relay(visit, cell, wait_s)
    except CellDownError:
        figures.called(cell.name, answered=False)
        raise
    figures.called(cell.name, answered=True)
    return response


async def _relay(visit: GatewayRequest, cell: Cell, wait_s: float) -> Response:
    """Whole where it is short, else as much of it as has come."""
    lines = visit.context.directory.connections
    async with AsyncExitStack() as stack:
        answer = await stack.enter_async_context(lines.open(cell, request_to(visit, cell, wait_s)))
        headers = response_headers(answer.headers.items(), cell.name, secure=visit.context.secure)
        length = answer.content_length
        if length is None or length > WHOLE_BYTES_MAX:
            return RelayedResponse(visit.context, stack.pop_all(), answer, headers)
        response = Response(await answer.read(), answer.status)
        response.raw_headers = headers
        return response


class RelayedResponse(Response):
    """A long answer of a cell, under way to the client."""

    def __init__(
        self,
        desk: GatewayContext,
        stack: AsyncExitStack,
        answer: aiohttp.ClientResponse,
        headers: RawHeaders,
    ) -> None:
        super().__init__(status_code=answer.status)
        self.raw_headers = headers
        self._context = desk
        self._stack = stack
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until it ends, breaks off or nobody is there."""
        try:
            await first_of(self._pump(send), client_left(receive), self._context.closing.wait())
        except (aiohttp.ClientError, TimeoutError) as error:
            # Left without an end, so that the reader knows it was cut off.
            log.warning("answer cut off", path=scope["path"], cause=repr(error))
        finally:
            await self._stack.aclose()

    async def _pump(self, send: Send) -> None:
        start: dict[str, Any] = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        async for piece in self._answer.content.iter_any():
            async with asyncio.timeout(STREAM_SEND_S):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def client_left(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Runs all until the first has ended; raises what that raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await _end(tasks)


async def _end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    # Their own failures matter no more: what counts has been raised already.
    await asyncio.gather(*tasks, return_exceptions=True)
