"""The cells behind a gateway: their connection pool, the health checks of their servers, and which
cell an id or tenant belongs to.

A server is up until it is seen to fail. Whoever waits for an answer of one that goes down is not
kept waiting: that makes a frozen cell as quick to answer for as a dead one.
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
    """An answer that is still being read."""

    def close(self) -> None:
        """Ends it at once: its reader gets an error."""
        ...


class Server:
    """One server of a cell."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.up = True
        self.ready = False
        """Its last probe said that it can accept and schedule."""
        self.why = ""
        """Why it counts as down."""
        self.is_of_other_cell = False
        """It says that it is of another cell."""
        self._failures = 0
        self._waiting: dict[asyncio.Timeout, None] = {}
        self._reading: dict[Closable, None] = {}

    def answered(self) -> None:
        """It said something."""
        self._failures = 0
        self.up, self.why = True, ""

    def failed(self, why: str, *, refused: bool = False) -> None:
        """It did not; where nobody listens, once is enough."""
        self._failures += 1
        self.ready = False
        if refused or self._failures >= FAILURES_MAX:
            self.mark_down(why)

    def mark_down(self, why: str) -> None:
        """It counts as down, and whoever waits for it is response."""
        self.up, self.ready, self.why = False, False, why
        now = asyncio.get_running_loop().time()
        for deadline in self._waiting:
            if not deadline.expired():
                deadline.reschedule(now)
        for answer in list(self._reading):
            answer.close()

    @asynccontextmanager
    async def waited_for(self, seconds: float) -> AsyncIterator[None]:
        """TimeoutError when the time is over or the server goes down."""
        async with asyncio.timeout(seconds) as deadline:
            self._waiting[deadline] = None
            try:
                yield
            finally:
                del self._waiting[deadline]

    def being_read(self, answer: Closable) -> None:
        """From now on its end is this answer's end."""
        self._reading[answer] = None

    def was_read(self, answer: Closable) -> None:
        """It has ended by itself."""
        self._reading.pop(answer, None)


class Cell:
    """One cell and its servers."""

    def __init__(self, name: str, urls: Sequence[str]) -> None:
        self.name = name
        self.tag = cell_tag(name)
        self.servers = [Server(url) for url in urls]

    @property
    def up(self) -> bool:
        """Whether anybody there may answer."""
        return any(server.up for server in self.servers)

    @property
    def ready(self) -> bool:
        """Whether somebody there can accept and schedule."""
        return any(server.ready for server in self.servers)

    @property
    def why(self) -> str:
        """Why it counts as down."""
        return "; ".join(dict.fromkeys(server.why for server in self.servers if server.why))

    def candidates(self) -> list[Server]:
        """Those worth asking, the ready ones first; else in the order they were named."""
        found = [server for server in self.servers if server.up]
        return sorted(found, key=lambda server: not server.ready)


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
            response = f"it is of the cell {name}" if name else "it has no cell name"
            server.mark_down(f"{response}: start its servers with --cell {cell.name}")
            return
        server.answered()
        server.ready = True


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, aiohttp.ClientConnectorError)


def _reason(error: BaseException) -> str:
    """What went wrong, in a few words and without addresses: it is response to clients."""
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


class CellDirectory:
    """The cells of one gateway."""

    def __init__(self, plan: GatewayConfig, lines: Connections) -> None:
        self.connections = lines
        self.router = plan.router
        self.cells = {name: Cell(name, urls) for name, urls in plan.cells.items()}
        self._by_tag = {cell.tag: cell for cell in self.cells.values()}
        self._watching: list[asyncio.Task[None]] = []

    def of_tenant(self, tenant: str) -> Cell:
        """Where a tenant's new jobs go."""
        return self.cells[self.router.cell_of(tenant)]

    def of_id(self, text: str) -> Cell | None:
        """The cell that an id carries; None if it carries none of ours."""
        tag = tag_in(text)
        return None if tag is None else self._by_tag.get(tag)

    def any_cell(self) -> Cell:
        """One that can answer what all answer alike."""
        cells = sorted(self.cells.values(), key=lambda cell: (not cell.ready, not cell.up))
        return cells[0]

    async def start(self) -> None:
        """Looks at every server once, then goes on looking."""
        watched = list(self._servers())
        await asyncio.gather(*(self.connections.probe(cell, server) for cell, server in watched))
        self._watching = [
            asyncio.create_task(self._watch(cell, server), name=f"rota-watch-{cell.name}")
            for cell, server in watched
        ]

    async def stop(self) -> None:
        """Looks no more."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    async def _watch(self, cell: Cell, server: Server) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            try:
                await self.connections.probe(cell, server)
            except Exception:  # (the top of the loop: a watch that ended would not be noticed)
                log.exception("probe failed", cell=cell.name)

    def _servers(self) -> Iterator[tuple[Cell, Server]]:
        for cell in self.cells.values():
            for server in cell.servers:
                yield cell, server
