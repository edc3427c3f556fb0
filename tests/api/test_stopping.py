"""A server that stops while a request is still arriving."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.cli.start.http_server import EmbeddedServer
from rota.cli.start.up import ServerOptions
from tests.api.in_process_server import HOST, TOKEN, InProcessServer
from tests.api.test_http_protocol import until

PATIENCE_S = 10


@contextlib.asynccontextmanager
async def _served(server: InProcessServer) -> AsyncIterator[tuple[EmbeddedServer, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = ServerOptions(host="127.0.0.1", port=0, data=Path(), lease_ttl_ms=1)
        uvicorn_server = EmbeddedServer(server.app, options)
        serving = asyncio.create_task(uvicorn_server.serve(sockets=[listener]))
        try:
            yield uvicorn_server, listener.getsockname()[1]
        finally:
            uvicorn_server.should_exit = True
            await serving


@pytest.mark.parametrize("path", ["/jobs", "/bundles?name=app.tar"])
@pytest.mark.parametrize("part", [b"", b'{"name": '])
async def test_a_client_with_an_incomplete_body_is_told_that_nothing_was_done(
    server: InProcessServer, path: str, part: bytes
) -> None:
    async with _served(server) as (uvicorn_server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
        writer.write(f"{head}Content-Length: 1000\r\n\r\n".encode() + part)
        await writer.drain()
        await until(lambda: uvicorn_server.server_state.tasks)
        server.deps.closing.set()
        answer = (await asyncio.wait_for(reader.read(), PATIENCE_S)).decode()
        writer.close()
    assert answer.startswith("HTTP/1.1 503 ")
    headers, _, body = answer.lower().partition("\r\n\r\n")
    assert "retry-after: " in headers
    assert "connection: close" in headers
    assert "nothing was done" in body
    assert (await server.ask("GET", "/jobs"))["items"] == []


async def test_a_complete_request_is_served_while_the_server_stops(
    server: InProcessServer,
) -> None:
    server.deps.closing.set()
    assert (await server.submit("late"))["status"] == "queued"
