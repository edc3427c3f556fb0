"""Short calls over lines of our own, to servers of many manners, on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from rota.sdk.lines.awaited_lines import Lines
from rota.sdk.lines.messages import BrokenError, Heard

OK = b"HTTP/1.1 200 OK\r\nRota-Leader: http://b\r\nContent-Length: 2\r\n\r\nok"
Loops = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Server:
    """Answers the requests of each connection with what a test has laid out, in turn."""

    def __init__(self, *answers: bytes, hangs_up: bool = False) -> None:
        self._answers = list(answers)
        self._hangs_up = hangs_up
        self.asked: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.asked.append(head + await reader.readexactly(size))
                if not self._answers:
                    return
                writer.write(self._answers.pop(0))
                if self._hangs_up:
                    return
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def talking(server: Server) -> AsyncIterator[Callable[[], Awaitable[Heard]]]:
    """A server that listens, and a call to it."""
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        server.url = f"http://127.0.0.1:{port}/cell/"
        lines = Lines({"Authorization": "Bearer t"}, connect_s=10)

        async def call() -> Heard:
            async with asyncio.timeout(10):
                return await lines.send("POST", server.url, "/a?b=1", b"{}", {"X-Own": "yes"})

        yield call
        await lines.close()


def play(loop: Callable[[], asyncio.AbstractEventLoop], story: Awaitable[None]) -> None:
    async def told() -> None:
        await story

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(told())


@Loops
def test_calls_one_after_the_other_share_a_line(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        server = Server(OK, OK)
        async with talking(server) as call:
            heard = await call()
            assert (heard.status, heard.body, heard.headers["rota-leader"]) == (
                200, b"ok", "http://b",
            )  # fmt: skip
            assert (await call()).body == b"ok"
        assert server.connections == 1
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /cell/a?b=1 HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nAuthorization: Bearer t\r\nX-Own: yes\r\nContent-Length: 2" in head
        assert body == b"{}"

    play(loop, story())


@Loops
def test_an_answer_may_be_in_pieces_have_no_length_or_come_after_a_word_in_between(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        chunked = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
        )
        early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        async with talking(Server(chunked, early + OK)) as call:
            assert (await call()).body == b"ok"
            heard = await call()
            assert (heard.status, heard.body, "link" in heard.headers) == (200, b"ok", False)
        old = Server(b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nok", hangs_up=True)
        async with talking(old) as call:
            assert (await call()).body == b"ok"

    play(loop, story())


@Loops
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection"),
        (OK[:-1], "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nConte", "closed the connection"),
        (b"220 mail.example ESMTP\r\n", "does not speak HTTP"),
    ],
)
def test_an_answer_that_is_none_says_so(
    loop: Callable[[], asyncio.AbstractEventLoop], answer: bytes, why: str
) -> None:
    async def story() -> None:
        async with talking(Server(answer, hangs_up=True)) as call:
            with pytest.raises(BrokenError, match=why):
                await call()

    play(loop, story())


@Loops
def test_a_line_whose_call_was_given_up_is_not_used_again(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story() -> None:
        server = Server(b"", OK)
        async with talking(server) as call:
            given_up = asyncio.ensure_future(call())
            async with asyncio.timeout(10):
                while not server.asked:  # noqa: ASYNC110  (the other end of a socket sends no signal)
                    await asyncio.sleep(0.01)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            assert (await call()).body == b"ok"
        assert server.connections == 2

    play(loop, story())


@Loops
def test_a_line_that_is_to_be_closed_is(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def story() -> None:
        last = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        server = Server(last, OK)
        async with talking(server) as call:
            await call()
            await call()
        assert server.connections == 2

    play(loop, story())


@pytest.mark.parametrize(
    ("server", "path", "headers"),
    [
        ("ftp://127.0.0.1", "/", {}),
        ("http://127.0.0.1", "/a\r\nX: y", {}),
        ("http://127.0.0.1", "/", {"X": "a\r\nY: b"}),
    ],
)
async def test_what_would_be_another_request_is_not_sent(
    server: str, path: str, headers: dict[str, str]
) -> None:
    with pytest.raises(BrokenError):
        await Lines({}, connect_s=1).send("GET", server, path, b"", headers)
