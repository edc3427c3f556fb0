"""Cells behind a gateway: the connection pool, health checks of their servers, and the cell of an
id or tenant.

A server is up until it fails. When it goes down, requests that wait for it fail at once: so a
frozen cell is reported as fast as a dead one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import msgspec
import structlog
from yarl import URL

from rota.gateway.config import GatewayConfig
from rota.gateway.limits import (
    ANSWER_S,
    CONNECT_S,
    FAILURES_MAX,
    IDLE_S,
    PROBE_ANSWER_S,
    PROBE_EVERY_S,
)
from rota.gateway.problems import CellDownError
from rota.wire.formats import cell_tag, tag_in
from rota.wire.service import Health

log = structlog.get_logger(__name__)


class Closable(Protocol):
    """Answer that is still being read."""

    def close(self) -> None:
        """Ends it at once; its reader gets an error."""
        ...


class Server:
    """Server of a cell, with its health."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.up = True
        self.ready = False
        """Whether it could accept and schedule jobs at its last probe."""
        self.why = ""
        """The reason why it is down."""
        self.is_of_other_cell = False
        """Whether it belongs to another cell, by its own answer."""
        self._failures = 0
        self._waiting: dict[asyncio.Timeout, None] = {}
        self._reading: dict[Closable, None] = {}

    def answered(self) -> None:
        """Notes an answer."""
        self._failures = 0
        self.up, self.why = True, ""

    def failed(self, why: str, *, refused: bool = False) -> None:
        """Notes a failure; a refused connection is enough to mark the server down."""
        self._failures += 1
        self.ready = False
        if refused or self._failures >= FAILURES_MAX:
            self.mark_down(why)

    def mark_down(self, why: str) -> None:
        """Marks the server down, and ends all that waits for it or reads from it."""
        self.up, self.ready, self.why = False, False, why
        now = asyncio.get_running_loop().time()
        for deadline in self._waiting:
            if not deadline.expired():
                deadline.reschedule(now)
        for answer in list(self._reading):
            answer.close()

    @asynccontextmanager
    async def waited_for(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError when the time is over or the server goes down."""
        async with asyncio.timeout(seconds) as deadline:
            self._waiting[deadline] = None
            try:
                yield
            finally:
                del self._waiting[deadline]

    def being_read(self, answer: Closable) -> None:
        """Closes the answer if the server goes down."""
        self._reading[answer] = None

    def was_read(self, answer: Closable) -> None:
        self._reading.pop(answer, None)


class Cell:
    """Cell with its servers."""

    def __init__(self, name: str, urls: Sequence[str]) -> None:
        self.name = name
        self.tag = cell_tag(name)
        self.servers = [Server(url) for url in urls]

    @property
    def up(self) -> bool:
        """Whether one of its servers is up."""
        return any(server.up for server in self.servers)

    @property
    def ready(self) -> bool:
        """Whether one of its servers can accept and schedule jobs."""
        return any(server.ready for server in self.servers)

    @property
    def why(self) -> str:
        """The reasons why its servers are down."""
        return "; ".join(dict.fromkeys(server.why for server in self.servers if server.why))

    def candidates(self) -> list[Server]:
        """Returns servers that are up, the ready ones first, else in the order of the options."""
        found = [server for server in self.servers if server.up]
        return sorted(found, key=lambda server: not server.ready)


_NOT_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
)
"""Errors of a connection that was not made: nothing was sent."""
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError)
_OWN_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that the library would add; only the client's own are passed on."""


@dataclass(frozen=True, slots=True)
class CellRequest:
    """Request to a cell; `target` is the encoded path and query."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    wait_s: float = ANSWER_S


class Connections:
    """Connection pool to the servers of all cells."""

    def __init__(self) -> None:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            # A cell sets cookies for one browser; a jar here would send them for the next one.
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            skip_auto_headers=_OWN_HEADERS,
        )

    async def close(self) -> None:
        await self._http.close()

    @asynccontextmanager
    async def open(self, cell: Cell, request: CellRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Opens the answer of the first server that takes the request; raises CellDownError.

        Another server is tried only if nothing was sent: a cell must not get a request twice.
        """
        server, answer = await self._first(cell, request)
        server.being_read(answer)
        try:
            yield answer
        except aiohttp.ClientError as error:
            raise CellDownError(cell.name, _reason(error), sent=True) from error
        finally:
            server.was_read(answer)
            # It goes back to the pool if all of it was read, else it is closed.
            answer.release()

    async def _first(
        self, cell: Cell, request: CellRequest
    ) -> tuple[Server, aiohttp.ClientResponse]:
        why = ""
        for server in cell.candidates():
            try:
                return server, await self._send(server, request)
            except _NOT_SENT as error:
                why = _reason(error)
                server.failed(why, refused=_is_refusal(error))
            except _FAILURES as error:
                why = server.why or _reason(error)
                server.failed(why)
                raise CellDownError(cell.name, why, sent=True) from error
        raise CellDownError(cell.name, why or cell.why)

    async def _send(self, server: Server, request: CellRequest) -> aiohttp.ClientResponse:
        url = URL(server.url + request.target, encoded=True)
        async with server.waited_for(request.wait_s):
            answer = await self._http.request(
                request.method,
                url,
                headers=list(request.headers),
                data=request.body or None,
                allow_redirects=False,
            )
        server.answered()
        return answer

    async def probe(self, cell: Cell, server: Server) -> None:
        """Checks whether a server is up, ready, and of the right cell."""
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
            event = "server_up" if server.up else "server_down"
            log.warning(event, cell=cell.name, reason=server.why)

    def _judge(self, cell: Cell, server: Server, status: int, body: bytes) -> None:
        if status != 200:
            # This answer does not name its cell: what is known of that stays.
            if not server.is_of_other_cell:
                server.answered()
                server.ready = False
            return
        try:
            name = msgspec.json.decode(body, type=Health).cell
        except msgspec.MsgspecError:
            server.mark_down("it is not a Rota server")
            return
        server.is_of_other_cell = name != cell.name
        if server.is_of_other_cell:
            response = f"it is of the cell {name}" if name else "it has no cell name"
            server.mark_down(f"{response}: start its servers with --cell {cell.name}")
            return
        server.answered()
        server.ready = True


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, aiohttp.ClientConnectorError)


def _reason(error: BaseException) -> str:
    """Says what went wrong, without addresses: clients read it."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "no connection in time"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its certificate is not trusted"
        case aiohttp.ClientConnectorDNSError():
            return "its host name is unknown"
        case aiohttp.ClientConnectorError():
            return "no server listens there"
        case TimeoutError():
            return "no answer in time"
        case _:
            return "the connection broke"


class CellDirectory:
    """Directory of a gateway's cells: finds the cell of an id or tenant, and probes all servers."""

    def __init__(self, config: GatewayConfig, connections: Connections) -> None:
        self.connections = connections
        self.router = config.router
        self.cells = {name: Cell(name, urls) for name, urls in config.cells.items()}
        self._by_tag = {cell.tag: cell for cell in self.cells.values()}
        self._probing: list[asyncio.Task[None]] = []

    def of_tenant(self, tenant: str) -> Cell:
        """Returns the cell to which a tenant's new jobs go."""
        return self.cells[self.router.cell_of(tenant)]

    def of_id(self, text: str) -> Cell | None:
        """Returns the cell whose tag an id carries; None: it carries no known tag."""
        tag = tag_in(text)
        return None if tag is None else self._by_tag.get(tag)

    def any_cell(self) -> Cell:
        """Returns a cell, if possible a ready one, for calls that all answer alike."""
        cells = sorted(self.cells.values(), key=lambda cell: (not cell.ready, not cell.up))
        return cells[0]

    async def start(self) -> None:
        """Probes every server once, then periodically."""
        probed = list(self._servers())
        await asyncio.gather(*(self.connections.probe(cell, server) for cell, server in probed))
        self._probing = [
            asyncio.create_task(
                self._probe_periodically(cell, server), name=f"rota-probe-{cell.name}"
            )
            for cell, server in probed
        ]

    async def stop(self) -> None:
        for task in self._probing:
            task.cancel()
        await asyncio.gather(*self._probing, return_exceptions=True)

    async def _probe_periodically(self, cell: Cell, server: Server) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            try:
                await self.connections.probe(cell, server)
            except Exception:  # (the loop's top: a probe that ended would not be noticed)
                log.exception("probe_failed", cell=cell.name)

    def _servers(self) -> Iterator[tuple[Cell, Server]]:
        for cell in self.cells.values():
            for server in cell.servers:
                yield cell, server
