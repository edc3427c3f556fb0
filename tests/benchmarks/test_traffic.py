"""Load generator of the benchmarks: it repeats postponed requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from benchmarks.traffic import Connection

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}"
BUSY_AND_GONE = BUSY.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
TOO_MANY = BUSY.replace(b"503 Service Unavailable", b"429 Too Many Requests")
FAILED = BUSY.replace(b"Retry-After: 0\r\n", b"")
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"


class Server:
    """Answers requests with the given answers in order."""

    host, token = "127.0.0.1", "secret"

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = list(answers)
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = b""
        while self._answers and b"close" not in answer:
            await reader.readuntil(b"\r\n\r\n")
            answer = self._answers.pop(0)
            writer.write(answer)
        writer.close()


async def _ask(*answers: bytes) -> bytes:
    server = Server(answers)
    async with await asyncio.start_server(server.serve, server.host, 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        connection = await Connection.open(server)
        try:
            return await connection.send(connection.request("GET", "/stats"))
        finally:
            await connection.close()


@pytest.mark.parametrize("later", [BUSY, BUSY_AND_GONE, TOO_MANY])
async def test_a_postponed_request_is_repeated_and_counted(later: bytes) -> None:
    before = Connection.postponed
    assert await _ask(later, later, DONE) == b"done"
    assert Connection.postponed - before == 2


async def test_a_failure_without_retry_after_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="503"):
        await _ask(FAILED, DONE)
