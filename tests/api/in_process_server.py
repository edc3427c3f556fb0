"""In-process server without sockets: the real engine on the store in memory, behind the real
app."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import httpx2
from starlette.types import ASGIApp

from rota.alerts.conditions import Sampler
from rota.alerts.evaluator import AlertEvaluator
from rota.alerts.notifier import Notifier
from rota.api.app import AppDeps, create_app
from rota.api.auth.audit_log import AuditLog
from rota.api.auth.authenticator import Access
from rota.api.auth.token_cache import TokenCache, token_digest
from rota.api.limits import API_LIMITS, ApiLimits
from rota.api.throttling import Throttle
from rota.core.commands import Timing
from rota.engine.clock import SystemClock
from rota.engine.durability import DurabilityMonitor
from rota.engine.health import HealthMonitor
from rota.engine.leadership import CellMember
from rota.engine.loop import Engine
from rota.engine.metrics import Metrics
from rota.store.protocol import Losses
from rota.store.sqlite.memory import MemoryStore
from rota.store.tokens import Role, Token
from tests.api.memory_files import memory_files

TOKEN = "a-token-for-tests"
HOST = "127.0.0.1:7070"
URL = f"http://{HOST}"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Host": HOST}
NOOP = {"kind": "noop"}
ADMIN = Token(
    id="019a85bf-0000-7000-8000-000000000001",
    name="tests",
    digest=token_digest(TOKEN),
    role=Role.ADMIN,
    created_at=1,
    created_by="tests",
)


class StubMetrics(Metrics):
    """Metrics of the engine; the projection of the store in memory never lags."""

    quarantined = 0
    lost = Losses()

    def quarantined_jobs(self) -> int:
        return self.quarantined

    def losses(self) -> Losses:
        return self.lost

    def processes(self) -> Mapping[str, int]:
        return {"main": 1}

    def estimates(self) -> Mapping[str, int]:
        return {"inside": 0, "outside": 0}

    def projection_lag_seconds(self) -> float:
        return 0.0


@dataclass
class InProcessServer:
    """Server in this process, with the parts that a test may use."""

    app: ASGIApp
    deps: AppDeps
    engine: Engine
    store: MemoryStore
    http: httpx2.AsyncClient
    transport: httpx2.ASGITransport

    def limit(self, **changes: float) -> None:
        """Changes limits of the API from now on."""
        self.change(limits=replace(self.deps.limits, **changes))  # type: ignore[arg-type]

    def change(self, **deps: Any) -> None:
        """Changes dependencies of the API from now on."""
        self.deps = replace(self.deps, **deps)
        self.app = create_app(self.deps)
        self.transport.app = self.app

    async def ask(
        self, method: str, path: str, body: Any = None, *, expect: int | None = None, **more: Any
    ) -> Any:
        """Sends one request; returns the JSON of its answer."""
        answer = await self.http.request(method, path, json=body, **more)
        if expect is not None:
            assert answer.status_code == expect, answer.text
        return answer.json() if answer.content else None

    async def submit(self, name: str = "j", **fields: Any) -> dict[str, Any]:
        """Submits a noop job."""
        job: dict[str, Any] = await self.ask(
            "POST", "/jobs", {"name": name, "task": NOOP, **fields}, expect=201
        )
        return job

    async def register(self, name: str = "box", cpu: float = 8, **fields: Any) -> str:
        """Registers a worker."""
        body = {"name": name, "resources": {"cpu": cpu, "memory": "8GiB"}, **fields}
        answer = await self.ask("POST", "/workers/register", body, expect=201)
        return str(answer["worker_id"])

    async def lease(self, worker_id: str, **fields: Any) -> dict[str, Any]:
        """Polls once for orders."""
        body = {"max": 10, "wait": 0.5, **fields}
        answer: dict[str, Any] = await self.ask(
            "POST", f"/workers/{worker_id}/lease", body, expect=200
        )
        return answer

    async def start(self, worker_id: str, **fields: Any) -> dict[str, Any]:
        """Submits a job and has a worker take it; returns the order."""
        await self.submit(**fields)
        (order,) = (await self.lease(worker_id))["executions"]
        return dict(order)

    async def finish(
        self, order: Mapping[str, Any], status: str = "succeeded", **fields: Any
    ) -> dict[str, Any]:
        body = {"status": status, "fence": order["fence"], **fields}
        path = f"/executions/{order['execution_id']}/complete"
        answer: dict[str, Any] = await self.ask("POST", path, body, expect=200)
        return answer


def alert_evaluator_of(engine: Engine, metrics: StubMetrics, store: MemoryStore) -> AlertEvaluator:
    """Makes the real evaluator of alerts; a test tells it when to check."""
    sampler = Sampler(engine, metrics, lambda: 1 << 40)
    return AlertEvaluator(engine, sampler, store.notes, Notifier("here"))


def _deps(
    engine: Engine, store: MemoryStore, metrics: StubMetrics, access: Access, audit: AuditLog
) -> AppDeps:
    return AppDeps(
        brain=engine,
        journal=store.journal,
        queries=store.queries,
        logs=store.logs,
        files=memory_files(store),
        hooks=store.hooks,
        commits=engine.journal_notifier,
        access=access,
        audit=audit,
        metrics=metrics,
        alerts=alert_evaluator_of(engine, metrics, store),
        node="node-a",
        durability=DurabilityMonitor(store),
        health=HealthMonitor(engine, metrics.projection_lag_seconds),
        version="0.0.0",
        started_at=engine.clock.now(),
        disk_free=lambda: 1234,
    )


@asynccontextmanager
async def open_server(
    timing: Timing | None = None,
    *,
    no_auth: bool = False,
    throttle: Throttle | None = None,
    limits: ApiLimits = API_LIMITS,
    store: MemoryStore | None = None,
    **others: Any,
) -> AsyncIterator[InProcessServer]:
    """Starts a server and stops it in any case; `others` are fields of AppDeps."""
    store, clock, metrics = store or MemoryStore(), SystemClock(), StubMetrics()
    engine = Engine(store, clock, timing or Timing(), metrics, CellMember(node="node-a"))
    tokens = TokenCache(store.tokens, clock, limits)
    audit = AuditLog(store.tokens, clock, limits=limits)
    await store.tokens.add_token(ADMIN)
    for part in (engine, tokens, audit):
        await part.start()
    access = Access(tokens=tokens, no_auth=no_auth, throttle=throttle or Throttle())
    plain = _deps(engine, store, metrics, access, audit)
    deps = replace(plain, limits=limits, **others)
    app = create_app(deps)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=URL, headers=HEADERS) as http:
        try:
            yield InProcessServer(app, deps, engine, store, http, transport)
        finally:
            deps.closing.set()
            for one in (tokens, audit, engine):
                await one.stop()
            await store.close()


class StreamReader:
    """Request whose answer is read as it comes, and which can be left in the middle."""

    def __init__(
        self, server: InProcessServer, path: str, headers: Mapping[str, str] | None = None
    ) -> None:
        path_only, _, query = path.partition("?")
        headers_sent = {"host": HOST, "authorization": f"Bearer {TOKEN}", **(headers or {})}
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": path_only,
            "raw_path": path_only.encode(),
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers_sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 7070),
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
        }
        self._app = server.app
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1)
        self._leave = asyncio.Event()
        self.text = ""
        self.status = 0
        self.ended = False

    async def __aenter__(self) -> StreamReader:
        self._task = asyncio.create_task(self._app(self._scope, self._receive, self._sent.put))  # type: ignore[arg-type]
        start = await self._next()
        self.status = start["status"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Disconnects the client; returns when the server has noticed."""
        self._leave.set()
        while not self._task.done():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sent.get(), 0.01)
        await self._task

    async def _receive(self) -> dict[str, Any]:
        if not self._leave.is_set() and not hasattr(self, "_asked"):
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._leave.wait()
        return {"type": "http.disconnect"}

    async def _next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._sent.get(), 10)

    async def read_until(self, wanted: str) -> str:
        """Returns all text so far, once it contains `wanted`."""
        while wanted not in self.text:
            await self._piece()
            assert wanted in self.text or not self.ended, f"ended without {wanted!r}: {self.text!r}"
        return self.text

    async def read_all(self) -> str:
        """Returns all text, once the server has ended it."""
        while not self.ended:
            await self._piece()
        return self.text

    async def _piece(self) -> None:
        message = await self._next()
        self.text += message.get("body", b"").decode()
        self.ended = not message.get("more_body", False)


def events(text: str) -> list[dict[str, Any]]:
    """Parses the data of server-sent events."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
