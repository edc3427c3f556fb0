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

from rota.gateway.desk import Desk, Visit
from rota.gateway.headers import RawHeaders, passed_in, passed_out
from rota.gateway.health import Cell
from rota.gateway.limits import ANSWER_S, STREAM_SEND_S, WHOLE_BYTES_MAX
from rota.gateway.lines import Ask
from rota.gateway.problems import AwayError

log = structlog.get_logger(__name__)


def ask_of(visit: Visit, cell: Cell, wait_s: float = ANSWER_S) -> Ask:
    """The client's own request, for a cell."""
    headers = passed_in(visit.scope, visit.headers, cell.name)
    return Ask(visit.method, visit.target, headers, visit.body, wait_s)


async def relay(visit: Visit, cell: Cell, wait_s: float = ANSWER_S) -> Response:
    """The cell's answer; raises AwayError before anything of it was passed on."""
    figures = visit.desk.figures
    try:
        response = await _ask(visit, cell, wait_s)
    except AwayError:
        figures.called(cell.name, answered=False)
        raise
    figures.called(cell.name, answered=True)
    return response


async def _ask(visit: Visit, cell: Cell, wait_s: float) -> Response:
    """Whole where it is short, else as much of it as has come."""
    lines = visit.desk.fleet.lines
    async with AsyncExitStack() as stack:
        answer = await stack.enter_async_context(lines.asked(cell, ask_of(visit, cell, wait_s)))
        headers = passed_out(answer.headers.items(), cell.name, secure=visit.desk.secure)
        length = answer.content_length
        if length is None or length > WHOLE_BYTES_MAX:
            return Relayed(visit.desk, stack.pop_all(), answer, headers)
        response = Response(await answer.read(), answer.status)
        response.raw_headers = headers
        return response


class Relayed(Response):
    """A long answer of a cell, under way to the client."""

    def __init__(
        self,
        desk: Desk,
        stack: AsyncExitStack,
        answer: aiohttp.ClientResponse,
        headers: RawHeaders,
    ) -> None:
        super().__init__(status_code=answer.status)
        self.raw_headers = headers
        self._desk = desk
        self._stack = stack
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until it ends, breaks off or nobody is there."""
        try:
            await first_of(self._pump(send), gone(receive), self._desk.closing.wait())
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


async def gone(receive: Receive) -> None:
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
