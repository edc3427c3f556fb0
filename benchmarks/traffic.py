"""HTTP load generator that uses so little processor time that the server is measured, not itself.

The machine's cores are shared with the server, so requests are bytes made beforehand and answers
are cut by their length, not parsed.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Protocol, TypeVar

import uvloop

from benchmarks.cell import Cell

T = TypeVar("T")

NOOP = {"name": "noop", "task": {"kind": "noop"}}
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"retry-after: *(\d+)", re.IGNORECASE)
_CLOSES = re.compile(rb"connection: *close", re.IGNORECASE)
_LATER = (b"429", b"503")
PATIENCE_S = 60
"""For so long a postponed request is repeated."""
SETTLE_S_MAX = 120
LOOK_S = 0.01
"""Between two looks at whether all is done; the figure is this much too low at most."""


class Address(Protocol):
    host: str
    port: int

    @property
    def token(self) -> str: ...


class Connection:
    """One kept-alive connection, one request at a time."""

    postponed: ClassVar[int] = 0
    """How often a request was postponed: the server had too much to do, or there was no
    leader. The wait is part of what is measured."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cell: Address, token: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._cell = cell
        host = f"{cell.host}:{cell.port}"
        self._head = f"Host: {host}\r\nAuthorization: Bearer {token or cell.token}\r\n"

    @classmethod
    async def open(cls, cell: Address, token: str = "") -> Connection:
        """Opens a connection; `token` replaces the administrator's token."""
        return cls(*await _connected(cell), cell, token)

    def request(self, method: str, path: str, body: bytes = b"", key: str = "") -> bytes:
        kind = "Content-Type: application/json\r\n" if body else ""
        if key:
            kind += f"Idempotency-Key: {key}\r\n"
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{kind}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def send(self, request: bytes) -> bytes:
        """Sends a request and returns the body; raises on anything but a success.

        Repeats a request that was postponed (429, 503), as clients do. It may have been executed
        before, so there can be a few more jobs than requested.
        """
        deadline = time.perf_counter() + PATIENCE_S
        while True:
            head, body = await self._exchange(request)
            if head[9:10] == b"2":
                return body
            later = _RETRY_AFTER.search(head) if head[9:12] in _LATER else None
            if later is None or time.perf_counter() > deadline:
                raise RuntimeError(f"{head.splitlines()[0].decode()}: {body[:500].decode()}")
            Connection.postponed += 1
            await asyncio.sleep(int(later[1]))

    async def _exchange(self, request: bytes) -> tuple[bytes, bytes]:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self._reader.readexactly(int(length[1])) if length else await self._pieces()
        if _CLOSES.search(head):
            await self.close()
            self._reader, self._writer = await _connected(self._cell)
        return head, body

    async def _pieces(self) -> bytes:
        body = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            body += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return body

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        raw = b"" if body is None else json.dumps(body).encode()
        answer = await self.send(self.request(method, path, raw))
        return json.loads(answer) if answer else None

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def _connected(cell: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(cell.host, cell.port, limit=1 << 26)


@asynccontextmanager
async def open_connections(cell: Cell, count: int) -> AsyncIterator[list[Connection]]:
    opened = [await Connection.open(cell) for _ in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            await connection.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(work)


async def submit_jobs(
    opened: Sequence[Connection], job: dict[str, Any], total: int, batch: int
) -> float:
    """Submits `total` jobs, `batch` in a call (1: single calls); returns the seconds."""
    if batch == 1:
        request = opened[0].request("POST", "/jobs", json.dumps(job).encode())
    else:
        body = json.dumps({"jobs": [job] * batch}).encode()
        request = opened[0].request("POST", "/jobs/batch", body)
    left = iter(range(total // batch))

    async def drive(connection: Connection) -> None:
        for _ in left:
            await connection.send(request)

    began = time.perf_counter()
    await asyncio.gather(*(drive(connection) for connection in opened))
    return time.perf_counter() - began


async def submit_keyed(
    opened: Sequence[Connection], job: dict[str, Any], keys: Sequence[str]
) -> float:
    """Submits a job for each key, in single calls; returns the seconds."""
    body = json.dumps(job).encode()
    left = iter(keys)

    async def drive(connection: Connection) -> None:
        for key in left:
            await connection.send(connection.request("POST", "/jobs", body, key))

    began = time.perf_counter()
    await asyncio.gather(*(drive(connection) for connection in opened))
    return time.perf_counter() - began


async def finished(
    connection: Connection, total: int, patience_s: float = SETTLE_S_MAX, look_s: float = LOOK_S
) -> None:
    """Waits until `total` jobs have been submitted and have succeeded."""

    async def none_live() -> bool:
        stats = await connection.ask("GET", "/stats")
        jobs = stats["jobs"]
        live = jobs["pending"] + jobs["queued"] + jobs["running"] + jobs["cancelling"]
        return bool(stats["submitted_total"] >= total and live == 0)

    async def all_counted() -> bool:
        return await _succeeded(connection) >= total

    await until(none_live, patience_s, look_s)
    # The counters move when the last append is durable; memory is ahead of it by a moment.
    await until(all_counted)


async def tables_caught_up(connection: Connection) -> None:
    """Waits until the tables are complete: a read waits for that."""
    await connection.ask("GET", "/jobs?limit=1")


async def workers_registered(connection: Connection, workers: int = 1) -> None:
    """Waits until so many workers have registered."""

    async def there() -> bool:
        return len((await connection.ask("GET", "/workers"))["items"]) >= workers

    await until(there)


async def until(
    true: Callable[[], Awaitable[bool]], patience_s: float = SETTLE_S_MAX, look_s: float = LOOK_S
) -> None:
    deadline = time.perf_counter() + patience_s
    while not await true():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not done after {patience_s:g} s")
        await asyncio.sleep(look_s)


async def _succeeded(connection: Connection) -> float:
    text = (await connection.send(connection.request("GET", "/metrics"))).decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("rota_jobs_finished_total{") and 'status="succeeded"' in line
    )
