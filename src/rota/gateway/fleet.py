"""All cells together: found by id, by tenant, by name; watched all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import structlog

from rota.gateway.health import Cell, Server
from rota.gateway.limits import PROBE_EVERY_S
from rota.gateway.lines import Connections
from rota.gateway.plan import GatewayConfig
from rota.wire.cells import tag_in

log = structlog.get_logger(__name__)


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
