"""Several whole servers on real sockets that share one store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from rota.api.app import AppDeps, create_app
from rota.api.auth.audit_log import AuditLog
from rota.api.auth.authenticator import Access
from rota.api.auth.token_cache import TokenCache
from rota.api.cluster.leaderless_submit import SubmittedSpecs
from rota.cli.start.cluster import join_cluster
from rota.cli.start.http_server import EmbeddedServer, listen
from rota.cli.start.up import ServerOptions
from rota.core.commands import Timing
from rota.engine.clock import SystemClock
from rota.engine.durability import DurabilityMonitor
from rota.engine.health import HealthMonitor
from rota.engine.leadership import CellMember
from rota.engine.limits import ENGINE_LIMITS, EngineLimits
from rota.engine.loop import Engine
from rota.store.protocol import DurabilityLevel, LeaderRow
from rota.store.sqlite.memory import MemoryStore
from tests.api.in_process_server import ADMIN, NOOP, TOKEN, StubMetrics, alert_evaluator_of
from tests.api.memory_files import memory_files
from tests.engine.rig import PATIENCE_S, SlowStore, until

TTL_MS = 6_000
"""Shared cores can stall for seconds, and no server must lose leadership by that. One that crashes
is noticed long before."""
SILENT_TTL_MS = 1_500
"""TTL where a server that is only silent has to lose leadership."""
HELD_S = 3 * PATIENCE_S
"""Time for a poll to be held here, then by the next leader, then answered."""


class Server:
    """Server of the cell, and a client that asks it."""

    def __init__(self, store: MemoryStore, node: str, required: DurabilityLevel) -> None:
        self.node = node
        self.store = SlowStore(store)
        self.clock = SystemClock()
        self._required = required
        self.died = False

    async def start(self, ttl_ms: int, address: str | None, limits: EngineLimits) -> None:
        self._listening = listen("127.0.0.1", 0)
        self.host = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.url = f"http://{self.host}"
        member = CellMember(
            node=self.node, address=address or self.url, ttl_ms=ttl_ms, limits=limits
        )
        metrics = StubMetrics()
        timing = Timing(lease_ttl_ms=60_000, handover_ms=ttl_ms)
        self.engine = Engine(self.store, self.clock, timing, metrics, member)  # type: ignore[arg-type]
        await self.engine.start(SubmittedSpecs(self.clock))
        self.roster = TokenCache(self.store.tokens, self.clock)
        self.audit = AuditLog(self.store.tokens, self.clock)
        await self.roster.start()
        await self.audit.start()
        alone = AppDeps(
            brain=self.engine,
            journal=self.store.journal,  # type: ignore[arg-type]
            queries=self.store.queries,
            logs=self.store.logs,
            files=memory_files(self.store),
            hooks=self.store.hooks,
            commits=self.engine.journal_notifier,
            access=Access(tokens=self.roster),
            audit=self.audit,
            metrics=metrics,
            alerts=alert_evaluator_of(self.engine, metrics, self.store),  # type: ignore[arg-type]
            node=self.node,
            durability=DurabilityMonitor(self.store, self._required),  # type: ignore[arg-type]
            health=HealthMonitor(self.engine, metrics.projection_lag_seconds, limits),
            version="0.0.0",
            started_at=self.clock.now(),
        )
        self.deps, self.cluster = await join_cluster(alone, self.store, member, None)  # type: ignore[arg-type]
        options = ServerOptions(host="127.0.0.1", port=0, data=Path(), lease_ttl_ms=1)
        self._server = EmbeddedServer(create_app(self.deps), options)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.http = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=HELD_S)
        await until(lambda: self._server.started)

    async def crash(self) -> None:
        """Stops at once, without a clean shutdown."""
        self.died = True
        self.store.journal.is_away = True
        for listener in self._server.servers:
            listener.close()
        self._server.force_exit = self._server.should_exit = True
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        self.store.journal.let_go()
        await self._serving
        await self._end()

    def go_deaf(self) -> None:
        """Makes it unreachable for clients and servers, while it still reaches the store."""
        for listener in self._server.servers:
            listener.close()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    async def stop(self) -> None:
        """Stops in an orderly way."""
        if self.died:
            return
        self.deps.closing.set()
        self.store.journal.is_away = False
        await asyncio.wait_for(self.engine.stop(), PATIENCE_S)
        self._server.should_exit = True
        await self._serving
        await self._end()

    async def _end(self) -> None:
        await self.http.aclose()
        await self.cluster.stop()
        await self.roster.stop()
        await self.audit.stop()
        await asyncio.wait_for(self.engine.stop(), PATIENCE_S)

    async def ask(
        self, method: str, path: str, body: Any = None, *, expect: int | None = None, **more: Any
    ) -> Any:
        """Sends one request; returns the JSON of its answer."""
        answer = await self.http.request(method, path, json=body, **more)
        if expect is not None:
            assert answer.status_code == expect, answer.text
        return answer.json() if answer.content else None

    async def submit(self, name: str = "j", **fields: Any) -> Any:
        """Submits a noop job."""
        return await self.ask("POST", "/jobs", {"name": name, "task": NOOP, **fields}, expect=201)

    async def register(self, name: str = "box") -> str:
        """Registers a worker."""
        body = {"name": name, "resources": {"cpu": 8}}
        return str((await self.ask("POST", "/workers/register", body, expect=201))["worker_id"])

    def lease(self, worker_id: str, wait: float = PATIENCE_S) -> asyncio.Task[Any]:
        """Has a worker wait for orders."""
        body = {"max": 10, "wait": wait}
        return asyncio.create_task(
            self.ask("POST", f"/workers/{worker_id}/lease", body, expect=200)
        )

    async def polled(self) -> None:
        """Waits until this server knows of the worker's poll."""
        await until(lambda: bool(self.engine._callers._polls))


def follows(one: Server, other: Server) -> bool:
    """Whether `other` leads, and `one` knows it."""
    return other.engine.ready and one.engine.standing().address == other.url


class Cell:
    """Servers that share one store."""

    def __init__(self, ttl_ms: int = TTL_MS, limits: EngineLimits = ENGINE_LIMITS) -> None:
        self._limits = limits
        self.store = MemoryStore()
        self.servers: list[Server] = []
        self._ttl_ms = ttl_ms

    async def start(
        self,
        node: str,
        required: DurabilityLevel = DurabilityLevel.SINGLE,
        *,
        leads: bool = True,
        address: str | None = None,
    ) -> Server:
        """Starts a server; one that may not lead never becomes the leader. `address` is where the
        others believe it to be."""
        server = Server(self.store, node, required)
        server.store.journal.may_claim = leads
        server.store.journal.is_present = self._has_connection
        self.servers.append(server)
        await server.start(self._ttl_ms, address, self._limits)
        return server

    def _has_connection(self, row: LeaderRow) -> bool:
        return any(one.node == row.holder and not one.died for one in self.servers)

    async def pair(self) -> tuple[Server, Server]:
        """Starts a leader and a follower that knows it; on a slow machine the second may lead."""
        first = await self.start("a")
        await until(lambda: first.engine.ready)
        second = await self.start("b")
        await until(lambda: follows(second, first) or follows(first, second))
        return (first, second) if follows(second, first) else (second, first)


@asynccontextmanager
async def a_cell(ttl_ms: int = TTL_MS, **limits: Any) -> AsyncIterator[Cell]:
    """Stops all servers in the end; `limits` are fields of EngineLimits."""
    # Nobody waits until a leader that was alone has looked around.
    cell = Cell(ttl_ms, EngineLimits(**{"seen_after_ms": 0, **limits}))
    await cell.store.tokens.add_token(ADMIN)
    try:
        yield cell
    finally:
        await asyncio.gather(*(server.stop() for server in cell.servers))
