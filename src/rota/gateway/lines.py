"""HTTP to the cells: one pool of connections, each server's health noted on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec
import structlog
from yarl import URL

from rota.gateway.health import Cell, Server
from rota.gateway.limits import ANSWER_S, CONNECT_S, IDLE_S, PROBE_ANSWER_S
from rota.gateway.problems import CellDownError
from rota.wire.service import Health

log = structlog.get_logger(__name__)

_NOT_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
)
"""There was no connection, so nothing was sent."""
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError)
_OWN_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""What the library would add by itself; the client's own are passed on, or none."""


@dataclass(frozen=True, slots=True)
class CellRequest:
    """One request to a cell; `target` is path and query as they go over the line."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    wait_s: float = ANSWER_S


class Connections:
    """Connections to all cells."""

    def __init__(self) -> None:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            # What a cell sets is for one browser; a jar here would hand it to the next.
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            skip_auto_headers=_OWN_HEADERS,
        )

    async def close(self) -> None:
        """Lets go of all connections."""
        await self._http.close()

    @asynccontextmanager
    async def open(self, cell: Cell, ask: CellRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer of the first server that takes the question; raises AwayError.

        Another server is tried only where nothing was sent: a cell must not hear a request twice.
        """
        server, answer = await self._first(cell, ask)
        server.being_read(answer)
        try:
            yield answer
        except aiohttp.ClientError as error:
            raise CellDownError(cell.name, _reason(error), sent=True) from error
        finally:
            server.was_read(answer)
            # Back to the pool if all of it was read, else closed.
            answer.release()

    async def _first(self, cell: Cell, ask: CellRequest) -> tuple[Server, aiohttp.ClientResponse]:
        why = ""
        for server in cell.candidates():
            try:
                return server, await self._send(server, ask)
            except _NOT_SENT as error:
                why = _reason(error)
                server.failed(why, refused=_is_refusal(error))
            except _FAILURES as error:
                why = server.why or _reason(error)
                server.failed(why)
                raise CellDownError(cell.name, why, sent=True) from error
        raise CellDownError(cell.name, why or cell.why)

    async def _send(self, server: Server, ask: CellRequest) -> aiohttp.ClientResponse:
        url = URL(server.url + ask.target, encoded=True)
        async with server.waited_for(ask.wait_s):
            answer = await self._http.request(
                ask.method,
                url,
                headers=list(ask.headers),
                data=ask.body or None,
                allow_redirects=False,
            )
        server.answered()
        return answer

    async def probe(self, cell: Cell, server: Server) -> None:
        """Looks whether a server is there, ready, and of the cell it should be of."""
        was_up = server.up
        try:
            async with (
                server.waited_for(PROBE_ANSWER_S),
                self._http.get(f"{server.url}/readyz") as answer,
            ):
                body = await answer.content.read(10_000)
        except _FAILURES as error:
            server.failed(_reason(error), refused=_is_refusal(error))
        else:
            self._judge(cell, server, answer.status, body)
        if server.up != was_up:
            log.warning("server up" if server.up else "server down", cell=cell.name, why=server.why)

    def _judge(self, cell: Cell, server: Server, status: int, body: bytes) -> None:
        if status != 200:
            # It does not say whose it is now, so what is known of that stays.
            if not server.is_of_other_cell:
                server.answered()
                server.ready = False
            return
        try:
            name = msgspec.json.decode(body, type=Health).cell
        except msgspec.MsgspecError:
            server.mark_down("it is no Rota server")
            return
        server.is_of_other_cell = name != cell.name
        if server.is_of_other_cell:
            told = f"it is of the cell {name}" if name else "it has no cell name"
            server.mark_down(f"{told}: start its servers with --cell {cell.name}")
            return
        server.answered()
        server.ready = True


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, aiohttp.ClientConnectorError)


def _reason(error: BaseException) -> str:
    """What went wrong, in a few words and without addresses: it is told to clients."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "no connection in time"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its certificate is not trusted"
        case aiohttp.ClientConnectorDNSError():
            return "its host name is unknown"
        case aiohttp.ClientConnectorError():
            return "nobody listens there"
        case TimeoutError():
            return "no answer in time"
        case _:
            return "the connection broke"
