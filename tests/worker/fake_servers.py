"""Fake servers in front of one cell: each leads, forwards, refuses, freezes or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from aiohttp import web

from tests.worker.cell import Cell

Mode: TypeAlias = Literal["serves", "no leader", "frozen", "nonsense"]


class FakeServer:
    """Server of the cell, as a worker sees it."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._runner: web.AppRunner | None = None
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.mode: Mode = "serves"
        self.refuses = ""
        """Answers 503 to paths that begin with this."""
        self.leader: str | None = None
        """Leader that every answer names."""
        self.port = 0
        self.seen: list[str] = []
        """Paths that were requested."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def polls(self) -> int:
        """Number of `lease` calls received."""
        return sum(path.endswith("/lease") for path in self.seen)

    async def open(self) -> None:
        """Listens, at the same place as before if there was one."""
        # A call that was begun is carried on though its sender has left, as by one who forwards.
        self._runner = web.AppRunner(
            self._cell.application(self._middle), shutdown_timeout=0.05, access_log=None
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Is gone: whoever comes is refused."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def freeze(self) -> None:
        """Takes calls and answers none."""
        self.mode = "frozen"
        self._thawed.clear()

    def thaw(self) -> None:
        """Goes on with all that came meanwhile, late as it is."""
        self.mode = "serves"
        self._thawed.set()

    @web.middleware
    async def _middle(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        self.seen.append(request.path)
        body = await request.read()  # what was sent is here, whatever becomes of the sender
        assert body is not None
        await self._thawed.wait()
        response = await self._answer(request, handler)
        if self.leader is not None:
            response.headers["Rota-Leader"] = self.leader
        return response

    async def _answer(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        refused = bool(self.refuses) and request.path.startswith(self.refuses)
        if self.mode == "no leader" or refused:
            headers = {"Retry-After": "1"}
            return web.json_response({"detail": "nobody leads"}, status=503, headers=headers)
        if self.mode == "nonsense":
            return web.Response(text="welcome to this network", content_type="text/html")
        return await handler(request)


@asynccontextmanager
async def fake_servers(cell: Cell, count: int) -> AsyncIterator[Sequence[FakeServer]]:
    """So many servers."""
    servers = [FakeServer(cell) for _ in range(count)]
    for server in servers:
        await server.open()
    try:
        yield servers
    finally:
        for server in servers:
            server.thaw()
            await server.close()
