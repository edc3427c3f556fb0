"""Fake cell: a small server that speaks the workers' side of the contract, and fails on request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from rota.wire.formats import dec_hook, encode
from rota.wire.workers import (
    CompletedReport,
    HeartbeatAnswer,
    HeartbeatSpec,
    LeaseAnswer,
    LeaseSpec,
    OrderView,
    ProgressSpec,
    RegisterAnswer,
    RegisterSpec,
)


@dataclass
class Poll:
    """An open lease call."""

    spec: LeaseSpec
    answered: asyncio.Future[LeaseAnswer]


@dataclass
class Cell:
    """State of the fake cell; it outlives restarts of its server."""

    ttl: float = 15.0
    poll_wait_max: float = 0.0
    spare_max: int = 0
    token: str | None = None
    registrations: list[RegisterSpec] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    queue: list[OrderView] = field(default_factory=list)
    given: dict[str, OrderView] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    reports: dict[str, CompletedReport] = field(default_factory=dict)
    reports_received: int = 0
    """Including repeats."""
    calls: list[LeaseSpec] = field(default_factory=list)
    heartbeats: list[HeartbeatSpec] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    taken_back: list[str] = field(default_factory=list)
    logs: dict[str, bytearray] = field(default_factory=dict)
    progress: list[tuple[str, float | None]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    verbs: list[str] = field(default_factory=list)
    slow_s: float = 0
    """How long every lease call takes at least."""
    lose_answers: int = 0
    """Lease calls whose answer is lost after they were processed."""
    refuse: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Statuses and headers to answer with instead, one a request."""

    def __post_init__(self) -> None:
        self.poll_wait_max = self.poll_wait_max or self.ttl / 3
        self._poll: Poll | None = None
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listens, at the same port as before if there was one."""
        self._runner = web.AppRunner(
            self.application(self._middle), shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def application(self, middleware: Any) -> web.Application:
        """Routes for all that a worker may call."""
        app = web.Application(client_max_size=1 << 26, middlewares=[middleware])
        app.router.add_post("/workers/register", self._register)
        app.router.add_post("/workers/{id}/lease", self._lease)
        app.router.add_post("/workers/{id}/heartbeat", self._heartbeat)
        app.router.add_post("/workers/{id}/drain", self._drain)
        app.router.add_delete("/workers/{id}", self._leave)
        app.router.add_post("/executions/{id}/logs", self._log)
        app.router.add_post("/executions/{id}/progress", self._progress)
        app.router.add_put("/executions/{id}/artifacts/{name}", self._artifact)
        return app

    async def stop(self) -> None:
        """Ends the server in the middle of whatever it does."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def grant(self, *orders: OrderView) -> None:
        self.queue.extend(orders)
        self._serve()

    def ask_to_stop(self, execution_id: str) -> None:
        """Cancels an execution."""
        self.cancel.append(execution_id)
        self._serve()

    def take_back(self, execution_id: str) -> None:
        self.taken_back.append(execution_id)
        self._serve()

    def _serve(self) -> None:
        poll = self._poll
        if poll is None or poll.answered.done():
            return
        orders, self.queue = self.queue[: poll.spec.max], self.queue[poll.spec.max :]
        self.given.update({order.execution_id: order for order in orders})
        if orders or self.cancel or self.taken_back:
            poll.answered.set_result(LeaseAnswer(orders, 0, self.cancel, self.taken_back))
            self.cancel, self.taken_back = [], []

    @web.middleware
    async def _middle(self, request: web.Request, handler: object) -> web.StreamResponse:
        assert callable(handler)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"detail": "no such token"}, status=401)
        if self.refuse and "/executions/" not in request.path:
            status, headers = self.refuse.pop(0)
            return web.json_response({"detail": "not now"}, status=status, headers=headers)
        response = await handler(request)
        assert isinstance(response, web.StreamResponse)
        return response

    async def _register(self, request: web.Request) -> web.Response:
        key = request.headers["Idempotency-Key"]
        if key not in self.keys:
            spec = msgspec.json.decode(await request.read(), type=RegisterSpec, dec_hook=dec_hook)
            self.registrations.append(spec)
            self.keys[key] = f"worker-{len(self.registrations)}"
        worker_id = self.keys[key]
        return _json(
            RegisterAnswer(
                worker_id,
                f"session-of-{worker_id}",
                self.ttl / 3,
                self.ttl,
                self.poll_wait_max,
                self.spare_max,
            )
        )

    async def _lease(self, request: web.Request) -> web.StreamResponse:
        spec = msgspec.json.decode(await request.read(), type=LeaseSpec, dec_hook=dec_hook)
        newest = f"worker-{len(self.registrations)}"
        if request.match_info["id"] != newest:
            return web.json_response({"detail": "no such worker"}, status=404)
        self.calls.append(spec)
        self.reports_received += len(spec.completed)
        self.reports.update({report.execution_id: report for report in spec.completed})
        if spec.executions is not None:
            self._redeliver(
                {one if isinstance(one, str) else one.execution_id for one in spec.executions}
            )
        if self.lose_answers:
            self.lose_answers -= 1
            assert request.transport is not None
            request.transport.abort()
        await asyncio.sleep(self.slow_s)
        return _json(await self._wait(spec))

    def _redeliver(self, named: set[str]) -> None:
        """Grants again what the worker does not name: it was never received."""
        self.named |= named
        missing = [key for key in self.given if key not in self.named | self.reports.keys()]
        self.queue[:0] = [self.given.pop(key) for key in missing]

    async def _wait(self, spec: LeaseSpec) -> LeaseAnswer:
        if self._poll is not None and not self._poll.answered.done():
            self._poll.answered.set_result(LeaseAnswer([], 0, [], []))
        loop = asyncio.get_running_loop()
        poll = self._poll = Poll(spec, loop.create_future())
        arrived = loop.time()
        self._serve()
        wait = 0.0 if spec.completed else min(spec.wait.seconds, self.poll_wait_max)
        await asyncio.wait((poll.answered,), timeout=wait)
        if not poll.answered.done():
            poll.answered.set_result(LeaseAnswer([], 0, [], []))
        answer = poll.answered.result()
        answer.held_for = loop.time() - arrived
        return answer

    async def _heartbeat(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.heartbeats.append(msgspec.json.decode(body, type=HeartbeatSpec, dec_hook=dec_hook))
        return _json(HeartbeatAnswer([], []))

    async def _drain(self, request: web.Request) -> web.Response:
        self.verbs.append("drain")
        return web.json_response({})

    async def _leave(self, request: web.Request) -> web.Response:
        self.verbs.append("leave")
        return web.json_response({})

    async def _log(self, request: web.Request) -> web.Response:
        log = self.logs.setdefault(request.match_info["id"], bytearray())
        log[int(request.query["offset"]) :] = await request.read()
        assert request.query["fence"] == "7"
        return web.json_response({"size": len(log)})

    async def _progress(self, request: web.Request) -> web.Response:
        record = msgspec.json.decode(await request.read(), type=ProgressSpec)
        self.progress.append((request.match_info["id"], record.progress))
        return _json(HeartbeatAnswer([], []))

    async def _artifact(self, request: web.Request) -> web.Response:
        self.files[request.match_info["name"]] = await request.read()
        return web.json_response({})


def _json(record: object) -> web.Response:
    return web.Response(body=encode(record), content_type="application/json")
