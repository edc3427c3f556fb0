"""One connection, byte by byte: what a client may send ahead, leave unread or leave open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from rota.api.http_protocol import BoundedProtocol
from rota.api.limits import HEAD_S_MAX, HEADERS_MAX, PARSE_BYTES, STALL_BYTES_MIN
from rota.api.parsing.request import read_body
from rota.api.throttling import ConnectionLimit

ASK = b"GET / HTTP/1.1\r\n\r\n"
ENDLESS = b"GET / HTTP/1.1\r\nX: " + b"x" * 1000


class ClientTransport(asyncio.Transport):
    """Transport whose other end is the test; `untaken` is what its client has not read."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.untaken = 0
        self.reading = True
        self.closed = False
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class HastyLoop:
    """The running event loop, of which timers go off so many times sooner."""

    def __init__(self, haste: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._haste = haste

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> Any:
        return self._loop.call_later(delay / self._haste, call, *args)


class ProtocolServer:
    """Server of an application that answers when it is told to."""

    def __init__(self, connections: ConnectionLimit | None = None, *, haste: float = 1.0) -> None:
        self.connection_limit = ConnectionLimit() if connections is None else connections
        self.may_answer = asyncio.Event()
        self._loop = HastyLoop(haste)
        # uvicorn's own timer is not to be the one that goes off.
        self._config = uvicorn.Config(
            self._answer, log_config=None, interface="asgi3", timeout_keep_alive=100_000
        )
        self._config.load()
        self._state = ServerState()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.may_answer.wait()
        await Response(b"ok")(scope, receive, send)

    def connect(self) -> tuple[BoundedProtocol, ClientTransport]:
        one = BoundedProtocol(
            config=self._config,
            server_state=self._state,
            app_state={},
            connections=self.connection_limit,
            _loop=self._loop,
        )
        client = ClientTransport()
        one.connection_made(client)
        return one, client


async def until(true: Callable[[], Any]) -> None:
    """Lets the event loop run until `true` holds."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110  (nobody could set an event: what is waited for is bytes)
            await asyncio.sleep(0)


def problem_in(written: bytes) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(written.partition(b"\r\n\r\n")[2])
    return body


async def test_pipelined_requests_are_not_parsed_far_ahead() -> None:
    server = ProtocolServer()
    one, client = server.connect()
    asked = 5_000
    one.data_received(ASK * asked)
    assert len(one.pipeline) <= PARSE_BYTES // len(ASK) + 1
    assert not client.reading
    server.may_answer.set()
    await until(lambda: client.written.count(b"200 OK") == asked)
    assert client.reading


async def test_data_behind_pipelined_requests_is_kept_and_answered_in_order() -> None:
    server = ProtocolServer()
    one, client = server.connect()
    one.data_received(ASK * 1_000)
    for at in range(len(ASK)):  # a transport may hand over what it had read already
        one.data_received(ASK[at : at + 1])
    server.may_answer.set()
    await until(lambda: client.written.count(b"200 OK") == 1_001)


async def test_a_client_that_reads_nothing_is_closed_at_the_second_check() -> None:
    server = ProtocolServer()
    one, client = server.connect()
    client.untaken = 10 * STALL_BYTES_MIN
    one.pause_writing()
    server.connection_limit.close_stalled()
    assert not client.aborted
    server.connection_limit.close_stalled()
    assert client.aborted


async def test_a_client_that_reads_slowly_stays_connected() -> None:
    server = ProtocolServer()
    one, client = server.connect()
    client.untaken = 10 * STALL_BYTES_MIN
    one.pause_writing()
    for _ in range(5):
        server.connection_limit.close_stalled()
        client.untaken -= STALL_BYTES_MIN
    one.resume_writing()
    client.untaken = 10 * STALL_BYTES_MIN
    one.pause_writing()
    server.connection_limit.close_stalled()
    assert not client.aborted


async def test_a_closed_connection_is_aborted_if_its_client_does_not_read() -> None:
    server = ProtocolServer()
    _, client = server.connect()
    client.untaken = 10
    client.close()
    server.connection_limit.close_stalled()
    server.connection_limit.close_stalled()
    assert client.aborted


@pytest.mark.parametrize(
    ("before", "bits"),
    [
        (b"", b""),
        (b"", ENDLESS),
        (ASK, ENDLESS),
        (ASK, b"\r\n" * 500),
        (b"GET / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n", b"x" * 1000),
    ],
    ids=["nothing", "a head", "a head after a request", "empty lines", "a body after its answer"],
)
async def test_a_client_that_completes_no_head_is_dropped_however_it_trickles(
    before: bytes, bits: bytes
) -> None:
    server = ProtocolServer(haste=HEAD_S_MAX / 0.1)
    server.may_answer.set()
    one, client = server.connect()
    if before:
        one.data_received(before)
        await until(lambda: client.written.endswith(b"ok"))
    for at in range(1000):
        if client.closed:
            break
        one.data_received(bits[at : at + 1])
        await asyncio.sleep(0.01)
    assert client.closed
    assert b" 400 " not in client.written


async def test_an_incomplete_head_has_a_timeout_while_another_request_waits() -> None:
    server = ProtocolServer(haste=HEAD_S_MAX / 0.05)
    (slow, slow_client), (good, good_client) = server.connect(), server.connect()
    slow.data_received(ASK + ASK[:5])
    good.data_received(ASK + ASK[:5])
    good.data_received(ASK[5:])
    await until(lambda: slow_client.closed)
    await asyncio.sleep(0.05)
    assert not good_client.closed
    server.may_answer.set()
    await until(lambda: good_client.written.count(b"200 OK") == 2)


async def test_a_body_that_comes_in_pieces_is_read_when_all_of_it_has_arrived() -> None:
    server = ProtocolServer()
    one, _ = server.connect()
    one.data_received(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbo")
    cycle = one.cycle
    late = asyncio.create_task(read_body(cycle.scope, cycle.receive, 100))  # type: ignore[arg-type]  # as uvicorn's
    await until(lambda: not cycle.body)
    assert not late.done()
    one.data_received(b"dy")
    assert await late == b"body"
    server.may_answer.set()


async def test_a_posted_answer_is_sent_at_once_and_once() -> None:
    server = ProtocolServer()
    one, client = server.connect()
    one.data_received(ASK)
    scope: Any = one.cycle.scope
    posted = one.head(scope) + b"content-length: 2\r\n\r\nhi"
    one.post(scope, posted)
    assert client.written == posted
    assert posted.startswith(b"HTTP/1.1 200 OK\r\n")
    server.may_answer.set()
    await until(lambda: one.cycle.response_complete)
    one.data_received(ASK)
    await until(lambda: client.written.endswith(b"ok"))
    assert client.written.startswith(posted)
    assert client.written.count(b"HTTP/1.1") == 2


async def test_a_request_right_after_a_posted_answer_is_answered_next() -> None:
    """The answer was sent before the call had done the rest."""
    server = ProtocolServer()
    one, client = server.connect()
    one.data_received(ASK)
    scope: Any = one.cycle.scope
    one.post(scope, b"posted")
    one.data_received(ASK)
    one.post(scope, b"posted")
    server.may_answer.set()
    await until(lambda: client.written.endswith(b"ok"))
    assert client.written.startswith(b"postedHTTP/1.1 200 OK")
    assert client.written.count(b"ok") == 1


@pytest.mark.parametrize("why", ["others wait", "it is to end", "nothing is taken", "gone"])
async def test_an_answer_that_uvicorn_must_add_to_is_not_posted(why: str) -> None:
    server = ProtocolServer()
    one, client = server.connect()
    ask = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n" if why == "it is to end" else ASK
    one.data_received(ask)
    scope: Any = one.cycle.scope
    if why == "others wait":
        one.data_received(ASK)
    elif why == "nothing is taken":
        one.pause_writing()
    elif why == "gone":
        one.connection_lost(None)
    assert one.head(scope) == b""
    one.post(scope, b"posted")
    assert client.written == b""
    one.resume_writing()
    server.may_answer.set()
    await until(lambda: why == "gone" or client.written.endswith(b"ok"))


async def test_a_broken_connection_leaves_no_timer_behind() -> None:
    server = ProtocolServer()
    server.may_answer.set()
    one, client = server.connect()
    one.data_received(ASK)
    await until(lambda: client.written.endswith(b"ok"))
    one.connection_lost(ConnectionResetError())
    assert one.timeout_keep_alive_task is None
    assert one._head_alarm is None
    assert len(server.connection_limit) == 0


async def test_too_many_headers_are_refused_before_all_have_arrived() -> None:
    server = ProtocolServer()
    one, client = server.connect()
    one.data_received(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * (HEADERS_MAX + 2))
    assert problem_in(client.written)["status"] == 431
    assert client.closed
    one, client = server.connect()
    one.data_received(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * HEADERS_MAX + b"\r\n")
    server.may_answer.set()
    await until(lambda: client.written.endswith(b"ok"))


async def test_data_that_is_not_http_is_refused_as_a_problem() -> None:
    _, client = (pair := ProtocolServer().connect())
    pair[0].data_received(b"\x16\x03\x01\x02\x00")
    assert client.written.startswith(b"HTTP/1.1 400 ")
    assert problem_in(client.written)["type"].endswith("not_http")
    assert client.closed


async def test_a_new_connection_beyond_the_limit_closes_the_longest_silent_one() -> None:
    server = ProtocolServer(ConnectionLimit(limit=3))
    (_, first), (second, second_line), (third, third_line) = (server.connect() for _ in range(3))
    second.data_received(b"GET / HT")
    third.data_received(ASK)
    server.connect()
    assert first.aborted
    server.connect()
    assert second_line.aborted
    assert not third_line.closed, "it waits for its answer"
    assert (len(server.connection_limit), server.connection_limit.evicted) == (3, 2)


async def test_a_new_connection_is_refused_if_all_others_wait_for_answers() -> None:
    server = ProtocolServer(ConnectionLimit(limit=2))
    pairs = [server.connect() for _ in range(2)]
    for one, _ in pairs:
        one.data_received(ASK)
    _, late = server.connect()
    assert late.written.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in late.written
    assert problem_in(late.written)["type"].endswith("too_many_connections")
    server.may_answer.set()
    await until(lambda: all(client.written.endswith(b"ok") for _, client in pairs))
    _, later = server.connect()
    assert not later.closed
    assert pairs[0][1].aborted, "it was silent for longest"
    assert server.connection_limit.refused == 1
