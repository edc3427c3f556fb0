"""Cells and gateways on loopback, all in the test's own loop: real sockets, in-memory stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import httpx2
import uvicorn
from uvicorn.server import ServerState

from rota.api.app import create_app as create_cell_app
from rota.api.http_protocol import BoundedProtocol
from rota.gateway.app import create_app
from rota.gateway.cells import CellDirectory, Connections
from rota.gateway.config import GatewayConfig, make_config
from rota.gateway.context import GatewayContext
from tests.api.in_process_server import NOOP, TOKEN, InProcessServer, open_server

T = TypeVar("T")

PATIENCE_S = 20.0
LOOK_S = 0.02


async def until(look: Callable[[], Awaitable[T]], what: str) -> T:
    """Looks until the answer is true; returns it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not (seen := await look()):
        assert loop.time() < deadline, f"it did not happen: {what}"
        await asyncio.sleep(LOOK_S)
    return seen


class Listening:
    """Application on a port, which it keeps while it is stopped.

    It is uvicorn's protocol without its server, which is slow to start and to end.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self.port = 0
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        config = uvicorn.Config(self.app, log_config=None, http=BoundedProtocol)
        config.load()
        self._state = state = ServerState()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: BoundedProtocol(config=config, server_state=state, app_state={}),
            "127.0.0.1",
            self.port,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stops it as if it were killed: requests under way are cut off."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        self._server = None


@dataclass
class TestCell:
    """Cell of one whole server behind a socket."""

    __test__ = False
    name: str
    server: InProcessServer
    listening: Listening

    async def restart_as(self, name: str) -> None:
        """Restarts the server with the same jobs and another name of the cell."""
        await self.listening.stop()
        self.listening.app = create_cell_app(replace(self.server.deps, cell=name))
        await self.listening.start()


class TestFleet:
    """Cells by name, and gateways in front of them."""

    __test__ = False

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.cells: dict[str, TestCell] = {}
        self._listening: list[Listening] = []

    async def add_cell(self, name: str, called: str | None = None) -> TestCell:
        """Starts a cell; `called` is the name that its server has for it."""
        server = await self._stack.enter_async_context(open_server())
        deps = replace(server.deps, cell=name if called is None else called)
        app = create_cell_app(deps)
        server.http._transport = httpx2.ASGITransport(app=app)
        listening = await self._listen(app)
        self.cells[name] = TestCell(name, server, listening)
        return self.cells[name]

    async def _listen(self, app: Any) -> Listening:
        listening = Listening(app)
        await listening.start()
        self._listening.append(listening)
        return listening

    async def stop(self) -> None:
        """Stops all at once, for each takes its time."""
        await asyncio.gather(*(one.stop() for one in self._listening))

    def plan(self, pins: Mapping[str, str] | None = None) -> GatewayConfig:
        cells = [(name, cell.listening.url) for name, cell in self.cells.items()]
        return make_config(cells, pins=(pins or {}).items())

    async def gateway(self, pins: Mapping[str, str] | None = None) -> Gateway:
        """Starts another gateway in front of all present cells."""
        fleet = CellDirectory(self.plan(pins), Connections())
        self._stack.push_async_callback(fleet.connections.close)
        await fleet.start()
        self._stack.push_async_callback(fleet.stop)
        context = GatewayContext(fleet)
        listening = await self._listen(create_app(context, ["127.0.0.1"]))
        self._stack.callback(context.closing.set)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        http = httpx2.AsyncClient(
            base_url=listening.url, headers=headers, timeout=PATIENCE_S, trust_env=False
        )
        await self._stack.enter_async_context(http)
        return Gateway(context, http)


@dataclass
class Gateway:
    """Gateway, with a client of it."""

    context: GatewayContext
    http: httpx2.AsyncClient

    async def ask(
        self, method: str, path: str, body: Any = None, *, expect: int, **more: Any
    ) -> Any:
        """Makes a call; returns the JSON answer."""
        answer = await self.http.request(method, path, json=body, **more)
        assert answer.status_code == expect, answer.text
        return answer.json() if answer.content else None

    async def submit(self, tenant: str, **fields: Any) -> dict[str, Any]:
        job = {"name": "j", "task": NOOP, "tenant": tenant, **fields}
        made: dict[str, Any] = await self.ask("POST", "/jobs", job, expect=201)
        return made

    def tenant_of(self, cell: str) -> str:
        """Finds a tenant of this cell."""
        router = self.context.directory.router
        return next(name for n in range(1000) if router.cell_of(name := f"tenant-{n}") == cell)

    async def pages(self, path: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """Yields every page of a list; waits while a cell is down."""
        cursor: str | None = None
        while True:
            params = {**query, **({"cursor": cursor} if cursor else {})}
            answer = await self.http.get(path, params=params)
            if answer.status_code == 503:
                await asyncio.sleep(LOOK_S)
                continue
            assert answer.status_code == 200, answer.text
            page = answer.json()
            yield page
            cursor = page["next_cursor"]
            if cursor is None:
                return


@asynccontextmanager
async def open_fleet(*names: str) -> AsyncIterator[TestFleet]:
    """Starts cells of these names."""
    async with AsyncExitStack() as stack:
        fleet = TestFleet(stack)
        stack.push_async_callback(fleet.stop)
        for name in names:
            await fleet.add_cell(name)
        yield fleet
