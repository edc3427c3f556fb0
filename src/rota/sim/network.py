"""The network between machines: slow, lossy, doubling, cut one way or both, as the seed says.

What it carries are HTTP requests, handed to the real application of a server. A request that nobody
waits for any more may still arrive: it was in some buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Scope

from rota.sim.clock import Machine, VirtualLoop
from rota.sim.dice import Dice
from rota.sim.trace import Trace

REQUESTS_PER_S_MAX = 250
"""No machine of these small clusters has so much to ask."""
CONNECT_S = 3.0
"""After this a connection that nobody accepts is given up."""
NEWER = b'{"of_a_newer_version":{"all":["this"]},'
"""What a newer server might add to its answers: older programs must not mind."""
NEWER_HEADER = ("rota-of-a-newer-version", "all of this")
"""What it might add to a request that it passes on."""
SINCE_LAST = ("rota-minted",)
"""Headers that servers of the last version neither send nor look at."""


class UnsentError(Exception):
    """No connection: the other side has heard nothing."""


class BrokenError(Exception):
    """The connection broke: whether the other side has heard it is not known."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a server."""

    method: str
    path: str
    """With its query."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """What it answers."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(slots=True)
class Weather:
    """How bad the network is just now."""

    delay_s: float = 0.002
    loss: float = 0.0
    doubling: float = 0.0
    stall: float = 0.0
    """How often a message takes seconds instead."""
    stall_s: float = 4.0


@dataclass(slots=True)
class Door:
    """A server's address, and who listens there."""

    machine: Machine
    app: ASGIApp | None
    """None: nobody, just now."""
    newer: bool = False
    older: bool = False


@dataclass(slots=True)
class Network:
    """Carries everything."""

    loop: VirtualLoop
    dice: Dice
    trace: Trace
    complain: Callable[[str], None]
    """Told of what must never happen."""
    weather: Weather = field(default_factory=Weather)
    doors: dict[str, Door] = field(default_factory=dict)
    cuts: dict[tuple[str, str], int] = field(default_factory=dict)
    """(from, to) -> by how many faults."""
    asked: dict[tuple[str, int], int] = field(default_factory=dict)
    """(machine, second) -> how many requests of it arrived then."""
    late_to: dict[str, float] = field(default_factory=dict)
    """Machines whom answers reach later, by so many seconds."""

    async def ask(
        self, source: Machine, address: str, request: Request, timeout_s: float | None
    ) -> Response:
        """The answer; raises UnsentError, BrokenError or TimeoutError."""
        source.touch()
        exchange = _Exchange(self, source, address, request)
        exchange.send()
        timer = None if timeout_s is None else self.loop.call_later(timeout_s, exchange.give_up)
        try:
            return await exchange.answer
        finally:
            if timer is not None:
                timer.cancel()
            exchange.leave()
            source.touch()

    def count(self, source: str) -> None:
        """One more request; who asks without a pause is broken, or brings others down."""
        second = int(self.loop.true_s)
        self.asked[source, second] = number = self.asked.get((source, second), 0) + 1
        if number == REQUESTS_PER_S_MAX:
            self.complain(f"{source} asks without a pause: {number} requests in second {second}")

    def cut(self, source: str, target: str) -> None:
        """Nothing comes through that way any more."""
        self.cuts[source, target] = self.cuts.get((source, target), 0) + 1

    def mend(self, source: str, target: str) -> None:
        """It does again."""
        self.cuts[source, target] -= 1
        if not self.cuts[source, target]:
            del self.cuts[source, target]

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing comes through."""
        return (source, target) in self.cuts

    def delay_s(self) -> float:
        """How long the next message takes."""
        weather = self.weather
        if self.dice.chance(weather.stall):
            return self.dice.uniform(0.2, weather.stall_s)
        return self.dice.about(weather.delay_s)


class _Exchange:
    """One request and its answer, each with a fate of its own."""

    def __init__(self, network: Network, source: Machine, address: str, request: Request) -> None:
        self._net = network
        self._source = source
        self._address = address
        self._request = request
        self._left = asyncio.Event()
        self.answer: asyncio.Future[Response] = network.loop.create_future()

    def send(self) -> None:
        """It leaves."""
        net, dice = self._net, self._net.dice
        door = net.doors.get(self._address)
        target = door.machine.name if door is not None else self._address
        if net.is_cut(self._source.name, target):
            if dice.chance(0.5):
                self._fail(CONNECT_S, UnsentError(f"{self._address}: no connection"))
            return  # else into the void, on a connection that was open
        if dice.chance(net.weather.loss):
            if dice.chance(0.5):
                self._fail(net.delay_s(), BrokenError("connection reset"))
            return
        copies = 2 if dice.chance(net.weather.doubling) else 1
        where = door.machine if door is not None else self._source
        for _ in range(copies):
            net.loop.after(net.delay_s(), where, self._arrive)

    def give_up(self) -> None:
        """The caller has waited long enough."""
        if not self.answer.done():
            self.answer.set_exception(TimeoutError())

    def leave(self) -> None:
        """The caller waits no longer; the other side hears of that, if it can."""
        if not self.answer.done():
            self.answer.cancel()
        door = self._net.doors.get(self._address)
        if door is not None and not self._net.is_cut(self._source.name, door.machine.name):
            self._net.loop.after(self._net.delay_s(), door.machine, self._left.set)

    def _arrive(self) -> None:
        net, request = self._net, self._request
        door = net.doors.get(self._address)
        if door is None or door.app is None or not door.machine.alive:
            self._fail(net.delay_s(), UnsentError(f"{self._address}: connection refused"))
            return
        at = net.loop.true_s
        net.count(self._source.name)
        net.trace.note(
            at, "ask", self._source.name, door.machine.name, request.method, request.path
        )
        door.machine.spawn(self._serve(door, door.app))

    async def _serve(self, door: Door, app: ASGIApp) -> None:
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
            await app(self._scope(door), receive, sent.take)
        except Exception as error:  # noqa: BLE001  (the top of a request: a bug to be told of)
            self._net.complain(f"{door.machine.name} broke on {self._request.path}: {error!r}")
        if door.machine.alive and sent.status:
            door.machine.touch()
            self._reply(door, sent)

    def _reply(self, door: Door, sent: _Sent) -> None:
        net = self._net
        if sent.status == 500:
            said = sent.body[:300].decode("utf-8", "replace")
            net.complain(f"{door.machine.name} answered 500 to {self._request.path}: {said}")
        net.trace.note(net.loop.true_s, "answer", door.machine.name, self._source.name, sent.status)
        lost = net.is_cut(door.machine.name, self._source.name) or net.dice.chance(net.weather.loss)
        if lost or not sent.whole:
            if net.dice.chance(0.5):
                self._fail(net.delay_s(), BrokenError("connection reset"))
            return
        response = Response(sent.status, tuple(sent.headers), _aged(sent, newer=door.newer))
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

    def _scope(self, door: Door) -> Scope:
        bare, _, query = self._request.path.partition("?")
        host = self._address.partition("//")[2]
        named = [("host", host), *self._request.headers]
        if door.older:
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
    """What an application sends, until it is whole."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.whole = False

    async def take(self, message: Any) -> None:
        """One message of an application."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")
            self.whole = not message.get("more_body", False)


def _aged(sent: _Sent, *, newer: bool) -> bytes:
    is_object = sent.body.startswith(b"{") and sent.body != b"{}"
    return NEWER + sent.body[1:] if newer and is_object and sent.status < 300 else sent.body
