"""Simulated network between machines: slow, lossy, doubling, cut one way or both, as the seed says.

It carries HTTP requests to the real application of a server. A request whose sender waits no more
may still arrive: it was in some buffer. Servers, workers and the SDK use it through stand-ins for
their HTTP clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp
import httpx2
from multidict import CIMultiDict
from starlette.types import ASGIApp, Message, Scope
from yarl import URL

from rota.worker.server_client import AwayError, ServerReply, ServerRequest
from tests.simtest.clock import Machine, VirtualLoop
from tests.simtest.rng import Rng
from tests.simtest.trace import Trace

REQUESTS_PER_S_MAX = 250
"""More requests than any machine of these small clusters needs."""
CONNECT_S = 3.0
"""Time after which an attempt to connect fails."""
NEWER = b'{"of_a_newer_version":{"all":["this"]},'
"""Field that a newer server might add to its answers: older programs must ignore it."""
NEWER_HEADER = ("rota-of-a-newer-version", "all of this")
"""Header that a newer server might add to a request that it forwards."""
SINCE_LAST = ("rota-minted",)
"""Headers that servers of the last version neither send nor read."""


class UnsentError(Exception):
    """There was no connection: the server got nothing."""


class BrokenError(Exception):
    """The connection broke: whether the server got the request is unknown."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """Path with the query."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(slots=True)
class NetworkConditions:
    """Conditions of the network at present."""

    delay_s: float = 0.002
    loss: float = 0.0
    doubling: float = 0.0
    stall: float = 0.0
    """Share of messages that take seconds instead."""
    stall_s: float = 4.0


@dataclass(slots=True)
class Listener:
    """Server that listens at an address."""

    machine: Machine
    app: ASGIApp | None
    """None: no server listens now."""
    newer: bool = False
    older: bool = False


@dataclass(slots=True)
class Network:
    """Network: carries requests between machines, as its conditions say."""

    loop: VirtualLoop
    rng: Rng
    trace: Trace
    report_bug: Callable[[str], None]
    """Called with events that must never happen."""
    conditions: NetworkConditions = field(default_factory=NetworkConditions)
    listeners: dict[str, Listener] = field(default_factory=dict)
    cuts: dict[tuple[str, str], int] = field(default_factory=dict)
    """By (from, to), the number of faults that cut the way."""
    asked: dict[tuple[str, int], int] = field(default_factory=dict)
    """By (machine, second), how many of its requests arrived then."""
    late_to: dict[str, float] = field(default_factory=dict)
    """By machine, how much later answers reach it, in seconds."""

    async def ask(
        self, source: Machine, address: str, request: Request, timeout_s: float | None
    ) -> Response:
        """Sends a request; raises UnsentError, BrokenError or TimeoutError."""
        source.step()
        exchange = _Exchange(self, source, address, request)
        exchange.send()
        timer = None if timeout_s is None else self.loop.call_later(timeout_s, exchange.give_up)
        try:
            return await exchange.answer
        finally:
            if timer is not None:
                timer.cancel()
            exchange.leave()
            source.step()

    def count(self, source: str) -> None:
        """Counts a request: a machine that sends them without a pause is a bug."""
        second = int(self.loop.true_s)
        self.asked[source, second] = number = self.asked.get((source, second), 0) + 1
        if number == REQUESTS_PER_S_MAX:
            self.report_bug(f"{source} sends without a pause: {number} requests in second {second}")

    def cut(self, source: str, target: str) -> None:
        """Cuts the way from source to target."""
        self.cuts[source, target] = self.cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """Ends one cut."""
        self.cuts[source, target] -= 1
        if not self.cuts[source, target]:
            del self.cuts[source, target]

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts

    def delay_s(self) -> float:
        """Returns the delay of the next message."""
        conditions = self.conditions
        if self.rng.chance(conditions.stall):
            return self.rng.uniform(0.2, conditions.stall_s)
        return self.rng.about(conditions.delay_s)


class _Exchange:
    """Request and its answer; each can be lost."""

    def __init__(self, network: Network, source: Machine, address: str, request: Request) -> None:
        self._net = network
        self._source = source
        self._address = address
        self._request = request
        self._left = asyncio.Event()
        self.answer: asyncio.Future[Response] = network.loop.create_future()

    def send(self) -> None:
        """Sends the request, or loses it."""
        net, rng = self._net, self._net.rng
        listener = net.listeners.get(self._address)
        target = listener.machine.name if listener is not None else self._address
        if net.is_cut(self._source.name, target):
            if rng.chance(0.5):
                self._fail(CONNECT_S, UnsentError(f"{self._address}: no connection"))
            return  # else it is lost on a connection that was open
        if rng.chance(net.conditions.loss):
            if rng.chance(0.5):
                self._fail(net.delay_s(), BrokenError("connection reset"))
            return
        copies = 2 if rng.chance(net.conditions.doubling) else 1
        where = listener.machine if listener is not None else self._source
        for _ in range(copies):
            net.loop.after(net.delay_s(), where, self._arrive)

    def give_up(self) -> None:
        """Ends the wait by a timeout."""
        if not self.answer.done():
            self.answer.set_exception(TimeoutError())

    def leave(self) -> None:
        """Ends the wait; the server sees the closed connection, if it can."""
        if not self.answer.done():
            self.answer.cancel()
        listener = self._net.listeners.get(self._address)
        if listener is not None and not self._net.is_cut(self._source.name, listener.machine.name):
            self._net.loop.after(self._net.delay_s(), listener.machine, self._left.set)

    def _arrive(self) -> None:
        net, request = self._net, self._request
        listener = net.listeners.get(self._address)
        if listener is None or listener.app is None or not listener.machine.alive:
            self._fail(net.delay_s(), UnsentError(f"{self._address}: connection refused"))
            return
        at = net.loop.true_s
        net.count(self._source.name)
        net.trace.note(
            at, "ask", self._source.name, listener.machine.name, request.method, request.path
        )
        listener.machine.spawn(self._serve(listener, listener.app))

    async def _serve(self, listener: Listener, app: ASGIApp) -> None:
        sent = _Sent()
        read = False

        async def receive() -> Message:
            nonlocal read
            if not read:
                read = True
                body = self._request.body
                return {"type": "http.request", "body": body, "more_body": False}
            await self._left.wait()
            return {"type": "http.disconnect"}

        try:
            await app(self._scope(listener), receive, sent.take)
        except Exception as error:  # noqa: BLE001  (the top of a request: a bug to report)
            self._net.report_bug(
                f"{listener.machine.name} broke on {self._request.path}: {error!r}"
            )
        if listener.machine.alive and sent.status:
            listener.machine.step()
            self._reply(listener, sent)

    def _reply(self, listener: Listener, sent: _Sent) -> None:
        net = self._net
        if sent.status == 500:
            body = sent.body[:300].decode("utf-8", "replace")
            net.report_bug(f"{listener.machine.name} answered 500 to {self._request.path}: {body}")
        net.trace.note(
            net.loop.true_s, "answer", listener.machine.name, self._source.name, sent.status
        )
        lost = net.is_cut(listener.machine.name, self._source.name) or net.rng.chance(
            net.conditions.loss
        )
        if lost or not sent.whole:
            if net.rng.chance(0.5):
                self._fail(net.delay_s(), BrokenError("connection reset"))
            return
        response = Response(sent.status, tuple(sent.headers), _as_newer(sent, newer=listener.newer))
        delay_s = net.delay_s() + net.late_to.get(self._source.name, 0.0)
        net.loop.after(delay_s, self._source, lambda: self._come_back(response))

    def _come_back(self, response: Response) -> None:
        if not self.answer.done():
            self.answer.set_result(response)

    def _fail(self, delay_s: float, error: Exception) -> None:
        def fail() -> None:
            if not self.answer.done():
                self.answer.set_exception(error)

        self._net.loop.after(delay_s, self._source, fail)

    def _scope(self, listener: Listener) -> Scope:
        bare, _, query = self._request.path.partition("?")
        host = self._address.partition("//")[2]
        named = [("host", host), *self._request.headers]
        if listener.older:
            named = [(name, value) for name, value in named if name.lower() not in SINCE_LAST]
        return {
            "type": "http",
            "method": self._request.method,
            "path": bare,
            "raw_path": bare.encode(),
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in named],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 7070),
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
        }


class _Sent:
    """Collects the messages of an application until the answer is whole."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.whole = False

    async def take(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")
            self.whole = not message.get("more_body", False)


def _as_newer(sent: _Sent, *, newer: bool) -> bytes:
    is_object = sent.body.startswith(b"{") and sent.body != b"{}"
    return NEWER + sent.body[1:] if newer and is_object and sent.status < 300 else sent.body


class PeerSession:
    """Stands in for aiohttp's session in a server that forwards requests."""

    def __init__(self, network: Network, machine: Machine, listener: Listener) -> None:
        """`listener` is the server's own, which knows its version."""
        self._network = network
        self._machine = machine
        self._listener = listener

    async def request(
        self,
        method: str,
        url: URL,
        *,
        data: bytes | AsyncIterator[bytes] | None,
        headers: Iterable[tuple[str, str]],
        allow_redirects: bool,
    ) -> PeerResponse:
        """Forwards it; the errors are aiohttp's."""
        body = data if isinstance(data, bytes) else b"".join([one async for one in data or _none()])
        asked = Request(method, url.raw_path_qs, self._versioned(headers), body)
        try:
            answer = await self._network.ask(self._machine, str(url.origin()), asked, None)
        except UnsentError as error:
            raise aiohttp.ConnectionTimeoutError(str(error)) from error
        except BrokenError as error:
            raise aiohttp.ServerDisconnectedError(str(error)) from error
        return PeerResponse(answer)

    def _versioned(self, headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Returns headers as a server of its version sends them."""
        if self._listener.older:
            return tuple(one for one in headers if one[0].lower() not in SINCE_LAST)
        return (*headers, NEWER_HEADER) if self._listener.newer else tuple(headers)

    async def close(self) -> None:
        """Does nothing."""


async def _none() -> AsyncIterator[bytes]:
    return
    yield b""


class PeerResponse:
    """Stands in for aiohttp's response."""

    def __init__(self, answer: Response) -> None:
        self.status = answer.status
        self.raw_headers = answer.headers
        self.headers = _readable(answer.headers)
        self.content = self
        self._body = answer.body

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yields the body in one piece."""
        yield self._body

    async def __aenter__(self) -> PeerResponse:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class WorkerWire:
    """Carries a worker's calls."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._network = network
        self._machine = machine

    async def send(self, server: str, ask: ServerRequest) -> ServerReply:
        """Sends one request; no answer is an AwayError, whatever the cause."""
        assert isinstance(ask.body, bytes)
        request = Request(ask.method, ask.path, tuple(ask.headers.items()), ask.body)
        try:
            answer = await self._network.ask(self._machine, server, request, ask.timeout_s)
        except TimeoutError:
            raise AwayError(f"{server} did not answer within {ask.timeout_s:g} s") from None
        except (UnsentError, BrokenError) as error:
            raise AwayError(f"{server} cannot be reached: {error}") from None
        return ServerReply(answer.status, _readable(answer.headers), answer.body)

    @asynccontextmanager
    async def open(self, server: str, ask: ServerRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Refuses: jobs of the simulation fetch no bundles."""
        raise AwayError(f"{server} has no {ask.path}")
        yield  # makes it a generator

    async def close(self) -> None:
        """Does nothing."""


class ClientTransport(httpx2.AsyncBaseTransport):
    """Carries the SDK's calls."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._network = network
        self._machine = machine

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends one request; the errors are those of the HTTP library."""
        headers = tuple((k, v) for k, v in request.headers.items() if k.lower() != "host")
        asked = Request(
            request.method, request.url.raw_path.decode("ascii"), headers, await request.aread()
        )
        timeout: dict[str, Any] = request.extensions.get("timeout", {})
        address = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
        try:
            answer = await self._network.ask(self._machine, address, asked, timeout.get("read"))
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer in time", request=request) from error
        except UnsentError as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        except BrokenError as error:
            raise httpx2.RemoteProtocolError(str(error), request=request) from error
        return httpx2.Response(answer.status, headers=list(answer.headers), content=answer.body)


def _readable(headers: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    return CIMultiDict((k.decode("latin-1"), v.decode("latin-1")) for k, v in headers)
