"""The asynchronous client's short calls: what is silence, what is slow, and what is too large."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from rota.sdk import AsyncClient
from rota.sdk.awaited_calls import AwaitedCalls
from rota.sdk.calls import Call
from rota.sdk.errors import SilenceError, UnreachableError
from rota.sdk.pool import SHORT_BYTES_MAX
from tests.sdk.small_server import TOKEN, SmallServer

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
