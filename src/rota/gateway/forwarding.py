"""Forwards requests to one cell, whose answer it relays, or to several cells at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import msgspec
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.gateway.cells import Cell, CellRequest
from rota.gateway.context import (
    CellResponse,
    GatewayContext,
    GatewayRequest,
    RawHeaders,
    request_headers,
    response_headers,
)
from rota.gateway.limits import ANSWER_BYTES_MAX, ANSWER_S, STREAM_SEND_S, WHOLE_BYTES_MAX
from rota.gateway.problems import MISSING_HEADER, CellDownError, retry_later
from rota.wire.formats import encode
from rota.wire.problems import Problem, ProblemError

log = structlog.get_logger(__name__)


async def ask_cells(
    context: GatewayContext, cells: Iterable[Cell], request_for: Callable[[Cell], CellRequest]
) -> list[CellResponse]:
    """Sends each cell its request, all at once; returns the responses."""
    asked = (_ask_cell(context, cell, request_for(cell)) for cell in cells)
    return list(await asyncio.gather(*asked))


async def _ask_cell(context: GatewayContext, cell: Cell, request: CellRequest) -> CellResponse:
    if (known := context.unknown_tokens.recall(cell.name, request.headers)) is not None:
        return known
    try:
        async with context.directory.connections.open(cell, request) as answer:
            body = await _read(answer.content, cell)
            headers = response_headers(answer.headers.items(), cell.name, secure=context.secure)
            response = CellResponse(cell, answer.status, body, headers)
    except CellDownError as error:
        context.metrics.called(cell.name, answered=False)
        return CellResponse(cell, 0, why=error.why)
    context.metrics.called(cell.name, answered=True)
    if response.status == 401:
        context.unknown_tokens.note(cell.name, request.headers, response)
    if response.missing:
        return CellResponse(cell, response.status, why=_problem_detail(body, response.status))
    return response


async def _read(content: Any, cell: Cell) -> bytes:
    pieces, size = [], 0
    async for piece in content.iter_any():
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise CellDownError(cell.name, f"its answer is larger than {ANSWER_BYTES_MAX} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _problem_detail(body: bytes, status: int) -> str:
    try:
        return msgspec.json.decode(body, type=Problem).detail
    except msgspec.MsgspecError:
        return f"it answered {status}"


class MissingCell(msgspec.Struct, frozen=True):
    """Cell that is missing in a merged answer."""

    cell: str
    why: str


def missing_cells(responses: Sequence[CellResponse]) -> list[MissingCell]:
    """Lists the cells that gave no usable response."""
    return [
        MissingCell(response.cell.name, response.why or "this token is not known there")
        for response in responses
        if response.missing or response.refused
    ]


def usable_responses(responses: Sequence[CellResponse]) -> list[CellResponse]:
    """Returns the successful responses; without one, raises the best refusal.

    A cell that is down or does not know the token does not make a merged answer fail.
    """
    good = [response for response in responses if response.good]
    if good:
        return good
    for response in (
        *(one for one in responses if not one.missing and not one.refused),
        *responses,
    ):
        if not response.missing:
            raise RefusalError(response)
    raise no_cell_answered(responses)


class RefusalError(Exception):
    """A cell's refusal, which is the gateway's answer."""

    def __init__(self, response: CellResponse) -> None:
        super().__init__(f"cell {response.cell.name} answered {response.status}")
        self.response = response


def no_cell_answered(responses: Sequence[CellResponse]) -> ProblemError:
    """Makes the error for a request that no cell could answer."""
    each = "; ".join(f"{response.cell.name}: {response.why}" for response in responses)
    names = ", ".join(response.cell.name for response in responses)
    return ProblemError(
        503, "cell_down", f"no cell could answer ({each})", headers=retry_later(names)
    )


def merged_response(
    body: dict[str, Any], missing: Sequence[MissingCell], status: int = 200
) -> Response:
    """Makes a merged answer, which names missing cells."""
    headers = {}
    if missing:
        body["missing_cells"] = missing
        headers[MISSING_HEADER] = ", ".join(one.cell for one in missing)
    return Response(encode(body), status, headers=headers, media_type="application/json")


def partly_done(
    done: Sequence[CellResponse], missing: Sequence[MissingCell], what: str
) -> ProblemError:
    """Makes the error for a change that some cells made and others could not be asked for."""
    each = "; ".join(f"{one.cell}: {one.why}" for one in missing)
    names = ", ".join(one.cell for one in missing)
    detail = (
        f"{what} in {', '.join(one.cell.name for one in done)}, but not in {names} ({each}):"
        " send it again with the same Idempotency-Key when they are back"
    )
    headers = {**retry_later(names), MISSING_HEADER: names}
    return ProblemError(503, "partly_done", detail, headers=headers)


def request_to(request: GatewayRequest, cell: Cell, wait_s: float = ANSWER_S) -> CellRequest:
    """Makes a cell's request of the client's own."""
    headers = request_headers(request.scope, request.headers, cell.name)
    return CellRequest(request.method, request.target, headers, request.body, wait_s)


async def relay(request: GatewayRequest, cell: Cell, wait_s: float = ANSWER_S) -> Response:
    """Relays a request; raises CellDownError before any of the answer was sent."""
    metrics = request.context.metrics
    try:
        response = await _relay(request, cell, wait_s)
    except CellDownError:
        metrics.called(cell.name, answered=False)
        raise
    metrics.called(cell.name, answered=True)
    return response


async def _relay(request: GatewayRequest, cell: Cell, wait_s: float) -> Response:
    connections = request.context.directory.connections
    async with AsyncExitStack() as stack:
        answer = await stack.enter_async_context(
            connections.open(cell, request_to(request, cell, wait_s))
        )
        headers = response_headers(answer.headers.items(), cell.name, secure=request.context.secure)
        length = answer.content_length
        if length is None or length > WHOLE_BYTES_MAX:
            return RelayedResponse(request.context, stack.pop_all(), answer, headers)
        response = Response(await answer.read(), answer.status)
        response.raw_headers = headers
        return response


class RelayedResponse(Response):
    """Long answer of a cell, sent to the client as it comes."""

    def __init__(
        self,
        context: GatewayContext,
        stack: AsyncExitStack,
        answer: aiohttp.ClientResponse,
        headers: RawHeaders,
    ) -> None:
        super().__init__(status_code=answer.status)
        self.raw_headers = headers
        self._context = context
        self._stack = stack
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the answer ends or breaks off, or the client leaves."""
        try:
            await first_of(self._pump(send), client_left(receive), self._context.closing.wait())
        except (aiohttp.ClientError, TimeoutError) as error:
            # The message without `more_body=False` tells the client that it was cut off.
            log.warning("answer_cut_off", path=scope["path"], reason=repr(error))
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
    """Waits until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Runs all until the first has ended; raises the error of that one."""
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
    # Their own errors do not matter: that of the first has been raised already.
    await asyncio.gather(*tasks, return_exceptions=True)
