"""HTTP to the server: one of several, the next when one does not answer; decides nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from urllib.parse import quote

import aiohttp
import msgspec

from rota.wire.executions import ProgressSpec
from rota.wire.problems import Problem
from rota.wire.units import encode

CONNECT_S = 3.0
"""A server that does not even accept within this is away."""
SHORT_S = 10.0
"""A call that the server does not hold."""
UPLOAD_S = 120.0
"""An output file over a slow line."""
UPLINKS_MAX = 32
"""Logs, progress and files of many jobs wait for each other rather than flood a server."""
RETRY_AFTER_MAX_S = 30.0
"""No answer may send a worker to sleep for longer."""


class AwayError(Exception):
    """No server can answer now: ask again."""

    def __init__(self, detail: str, retry_after_s: float = 0.0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s


class RefusedError(Exception):
    """The server heard it and said no: asking again changes nothing."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{detail} (HTTP {status})")
        self.status = status
        self.detail = detail


class Ask(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    path: str
    body: bytes | IO[bytes] = b""
    timeout_s: float = SHORT_S
    headers: dict[str, str] = {}


JSON_HEADERS = {"Content-Type": "application/json"}


def post(path: str, record: object, timeout_s: float = SHORT_S) -> Ask:
    """A JSON record for a path."""
    return Ask("POST", path, encode(record), timeout_s, JSON_HEADERS)


class Link:
    """Connections to the servers of one cell."""

    def __init__(self, servers: Sequence[str], token: str | None) -> None:
        self._servers = [server.rstrip("/") for server in servers]
        self._turn = 0
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
        )

    @property
    def server(self) -> str:
        """The one asked next."""
        return self._servers[self._turn % len(self._servers)]

    @property
    def choices(self) -> int:
        """How many servers there are to ask."""
        return len(self._servers)

    async def close(self) -> None:
        """Lets go of all connections."""
        await self._http.close()

    async def ask(self, ask: Ask) -> bytes:
        """The body of a good answer."""
        turn = self._turn
        try:
            return await self._ask(ask)
        except AwayError:
            # Calls run side by side; only the first that fails moves on, or two would skip one.
            if turn == self._turn:
                self._turn += 1
            raise

    async def _ask(self, ask: Ask) -> bytes:
        server = self.server
        timeout = aiohttp.ClientTimeout(total=ask.timeout_s, sock_connect=CONNECT_S)
        try:
            async with self._http.request(
                ask.method,
                server + ask.path,
                data=ask.body or None,
                headers=ask.headers,
                timeout=timeout,
                allow_redirects=False,  # the token goes to the server that was named, no further
            ) as response:
                body = await response.read()
        except TimeoutError:
            raise AwayError(f"{server} did not answer within {ask.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise AwayError(f"{server} cannot be reached: {error}") from None
        if response.status < 300:
            return body
        raise _problem(server, response.status, response.headers.get("Retry-After"), body)


def _problem(server: str, status: int, retry_after: str | None, body: bytes) -> Exception:
    try:
        detail = msgspec.json.decode(body, type=Problem).detail
    except msgspec.MsgspecError:
        detail = body[:200].decode("utf-8", "replace") or f"answered {status}"
    if status == 429 or status >= 500:
        return AwayError(f"{server}: {detail} (HTTP {status})", _seconds(retry_after))
    return RefusedError(status, detail)


def _seconds(text: str | None) -> float:
    return min(float(text), RETRY_AFTER_MAX_S) if text and text.isdigit() else 0.0


class Uplink:
    """What executions send beside their report."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lanes = asyncio.Semaphore(UPLINKS_MAX)

    async def send_log(self, execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        """A piece of output, at its place."""
        path = f"/executions/{execution_id}/logs?offset={offset}&fence={fence}"
        async with self._lanes:
            await self._link.ask(Ask("POST", path, chunk, headers={"Content-Type": "text/plain"}))

    async def send_progress(self, execution_id: str, record: ProgressSpec) -> None:
        """How far it is."""
        async with self._lanes:
            await self._link.ask(post(f"/executions/{execution_id}/progress", record))

    async def send_artifact(self, execution_id: str, file: Path) -> None:
        """An output file, read from disk as it goes."""
        name = quote(file.name, safe="")
        path = f"/executions/{execution_id}/artifacts/{name}"
        headers = {"Content-Type": "application/octet-stream"}
        stream = await asyncio.to_thread(file.open, "rb")
        try:
            async with self._lanes:
                await self._link.ask(Ask("PUT", path, stream, UPLOAD_S, headers))
        finally:
            await asyncio.to_thread(stream.close)
