"""The asynchronous client's short calls: what is silence, what is slow, and what is too large."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from rota.sdk import AsyncClient
from rota.sdk.calls import Call
from rota.sdk.errors import SilenceError, UnreachableError
from rota.sdk.lines.awaited_calls import LINES_MAX, AwaitedCalls
from rota.sdk.lines.awaited_lines import Lines
from rota.sdk.lines.messages import address_of
from rota.sdk.lines.pool import SHORT_BYTES_MAX
from tests.sdk.fake_server import TOKEN, SmallServer

ASK = Call("GET", "/jobs", bytes)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Manners: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def talking(*manners: Manners) -> AsyncIterator[tuple[AwaitedCalls, str]]:
    """Calls, and the address of a server that answers each request in one of these ways."""
    left = list(manners)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await left.pop(0)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    calls = AwaitedCalls({}, 10.0, ssl.create_default_context)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield calls, f"http://127.0.0.1:{port}"
        await calls.close()


async def at_once(writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


async def never_whole(writer: asyncio.StreamWriter) -> None:
    writer.write(OK[:-1])


async def slowly(writer: asyncio.StreamWriter) -> None:
    for byte in OK:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_silence_is_told_apart_and_its_line_is_not_used_again() -> None:
    async with talking(never_whole, at_once) as (calls, url):
        with pytest.raises(SilenceError, match="no answer in time"):
            await calls.send(url, ASK, {}, 0.1)
        assert (await calls.send(url, ASK, {}, 20.0)).body == b"ok"


async def test_an_answer_may_take_longer_than_the_silence_that_is_borne_while_it_moves() -> None:
    loop = asyncio.get_running_loop()
    async with talking(slowly) as (calls, url):
        began = loop.time()
        assert (await calls.send(url, ASK, {}, 0.3)).body == b"ok"
        assert loop.time() - began > 0.3


@pytest.mark.parametrize(
    ("url", "why", "refused"),
    [
        ("ftp://127.0.0.1", "no http or https URL", False),
        ("http://no-such-host.invalid", "unknown host", True),
        ("http://127.0.0.1:9/", "connection refused", True),
        ("http://localhost:9/", "connection refused", True),
    ],
)
async def test_where_nobody_is_the_same_words_are_said(url: str, why: str, refused: bool) -> None:
    calls = AwaitedCalls({}, 10.0, ssl.create_default_context)
    with pytest.raises(UnreachableError, match=why) as caught:
        await calls.send(url, ASK, {}, 1.0)
    assert caught.value.refused is refused
    await calls.close()


async def test_only_what_is_large_needs_the_general_client(server: SmallServer) -> None:
    async with AsyncClient(server.url, TOKEN) as client:
        await client.submit({"name": "small"})
        assert client._pool._general is None
        await client.submit({"name": "large", "payload": "x" * SHORT_BYTES_MAX})
        assert client._pool._general is not None
    assert len(server.jobs) == 2


async def test_tasks_that_call_at_once_hear_each_its_own_answer(server: SmallServer) -> None:
    names = [f"job-{number}" for number in range(60)]
    async with AsyncClient(server.url, TOKEN) as client:
        given_up = asyncio.ensure_future(client.submit({"name": "given up"}))
        await asyncio.sleep(0)
        given_up.cancel()
        jobs = await asyncio.gather(*(client.submit({"name": name}) for name in names))
    assert [job.name for job in jobs] == names


async def test_a_caller_that_is_told_to_end_as_its_answer_comes_leaves_no_line_behind() -> None:
    async with talking(never_whole) as (_, url):
        line = await Lines({}, 10.0).line_to(address_of(url))
        asking = asyncio.ensure_future(line.ask(b"GET / HTTP/1.1\r\n\r\n"))
        await asyncio.sleep(0)
        line.data_received(OK)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not line.is_open


async def test_many_calls_at_once_take_turns_on_a_bounded_number_of_lines() -> None:
    open_now, most = 0, 0

    async def busy(writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.01)
        open_now -= 1
        writer.write(OK)

    count = LINES_MAX + 50
    async with talking(*[busy] * count) as (calls, url):
        answers = await asyncio.gather(*(calls.send(url, ASK, {}, 20.0) for _ in range(count)))
    assert {answer.body for answer in answers} == {b"ok"}
    assert most <= LINES_MAX


def test_one_client_in_two_loops_is_refused_at_once(server: SmallServer) -> None:
    client = AsyncClient(server.url, TOKEN)

    async def ask() -> None:
        await client.submit({"name": "small"})

    loops = [asyncio.new_event_loop() for _ in range(2)]
    loops[0].run_until_complete(ask())
    with pytest.raises(RuntimeError, match="make a client for each"):
        loops[1].run_until_complete(ask())
    loops[0].run_until_complete(client.close())
    for loop in loops:
        loop.close()


async def test_a_line_that_was_closed_while_the_loop_was_busy_is_not_used_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                opened, _ = listening.accept()
                with opened:
                    opened.recv(65536)
                    opened.sendall(OK)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        calls = AwaitedCalls({}, 10.0, ssl.create_default_context)
        await calls.send(url, ASK, {}, 20.0)
        time.sleep(0.1)  # noqa: ASYNC251  (the program has no time for its loop)
        assert (await calls.send(url, ASK, {}, 20.0)).body == b"ok"
        await calls.close()
        serving.join()
