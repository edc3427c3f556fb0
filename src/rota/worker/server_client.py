"""HTTP client of one cell's servers: asks another one when a server does not answer.

`sdk.servers` decides which server is next. `Uplink` sends logs, progress and output files beside
the poll loop, and fetches bundles.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import quote

import aiohttp
import msgspec

from rota.sdk.lines.awaited_lines import Lines
from rota.sdk.lines.messages import BrokenError
from rota.sdk.servers import Servers
from rota.wire.bundles import BundleView, UploadView
from rota.wire.formats import encode
from rota.wire.problems import Problem
from rota.wire.workers import LEADER_HEADER, ProgressSpec
from rota.worker.clock import MonotonicClock

CONNECT_S = 3.0
"""A server that does not accept a connection within this is away."""
SHORT_S = 10.0
"""For a call that the server does not hold open."""
UPLOAD_S = 120.0
"""For an output file over a slow connection."""
UPLINKS_MAX = 32
"""Uploads at once: those of many jobs wait for each other rather than flood a server."""
RETRY_AFTER_MAX_S = 30.0
"""Upper bound of the pause that an answer can ask for."""
LEADER = LEADER_HEADER.lower()
TOO_MANY = 429
PARTIAL = 206
CHUNK_BYTES = 256 * 1024
RESUMED_BYTES_MIN = 8 * 1024 * 1024
"""From this size on it is worth asking how much of an interrupted upload the server has."""
OCTETS = {"Content-Type": "application/octet-stream"}


class AwayError(Exception):
    """Raised when there was no answer, or one that says to retry later."""

    def __init__(
        self, detail: str, retry_after_s: float = 0.0, *, status: int | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.status = status
        """HTTP status of the answer; None: there was none."""


class RefusedError(Exception):
    """Raised when the server refused a request: a retry changes nothing."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{detail} (HTTP {status})")
        self.status = status
        self.detail = detail


class ServerRequest(msgspec.Struct, frozen=True):
    """HTTP request to a server."""

    method: str
    path: str
    body: bytes | IO[bytes] = b""
    timeout_s: float = SHORT_S
    headers: dict[str, str] = {}
    fails_over: bool = True
    """Whether its failure means that another server should be asked. The failure of an upload does
    not: it may just be large, and the poll beside it finds out sooner."""


JSON_HEADERS = {"Content-Type": "application/json"}


def post(path: str, record: object, timeout_s: float = SHORT_S) -> ServerRequest:
    """Makes a request with a JSON body."""
    return ServerRequest("POST", path, encode(record), timeout_s, JSON_HEADERS)


def upload(request: ServerRequest) -> ServerRequest:
    """Makes a copy whose failure does not change the server."""
    return msgspec.structs.replace(request, fails_over=False)


class ServerReply(msgspec.Struct, frozen=True):
    """HTTP answer of a server, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Names are at least found in lower case."""
    body: bytes


class ServerTransport(Protocol):
    """Carries requests to servers."""

    async def send(self, server: str, request: ServerRequest) -> ServerReply:
        """Raises AwayError if no answer came."""
        ...

    def open(
        self, server: str, request: ServerRequest
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Opens a successful answer for streaming; raises AwayError and RefusedError."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    """HTTP over real connections: our own client for short calls, aiohttp for streams."""

    def __init__(self, token: str | None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._lines = Lines(headers, CONNECT_S)
        self._http = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
        )

    async def close(self) -> None:
        await self._lines.close()
        await self._http.close()

    async def send(self, server: str, request: ServerRequest) -> ServerReply:
        """Sends one request. No redirect is followed: the token goes to the named server only."""
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._send(server, request)
        except TimeoutError:
            raise AwayError(f"{server} did not answer within {request.timeout_s:g} s") from None
        except (BrokenError, aiohttp.ClientError, OSError) as error:
            raise AwayError(f"{server} cannot be reached: {error}") from None

    async def _send(self, server: str, request: ServerRequest) -> ServerReply:
        if isinstance(request.body, bytes):
            reply = await self._lines.send(
                request.method, server, request.path, request.body, request.headers
            )
            return ServerReply(reply.status, reply.headers, reply.body)
        async with self._http.request(
            request.method,
            server + request.path,
            data=request.body,
            headers=request.headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            allow_redirects=False,
        ) as response:
            return ServerReply(response.status, response.headers, await response.read())

    @asynccontextmanager
    async def open(
        self, server: str, request: ServerRequest
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Streams an answer. Its total time is not limited, only the time without any data."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SHORT_S)
        try:
            async with self._http.request(
                request.method,
                server + request.path,
                headers=request.headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                if response.status >= 300:
                    body = await response.read()
                    raise _problem(server, ServerReply(response.status, response.headers, body))
                yield response
        except TimeoutError:
            raise AwayError(f"{server} sent nothing for {SHORT_S:g} s") from None
        except aiohttp.ClientError as error:
            raise AwayError(f"the connection to {server} broke: {error}") from None


class ServerClient:
    """Client of the servers of one cell, with failover."""

    def __init__(self, servers: Servers, transport: ServerTransport, clock: MonotonicClock) -> None:
        self._servers = servers
        self._transport = transport
        self._clock = clock

    @property
    def server(self) -> str:
        """Server that is asked next."""
        return self._servers.current

    @property
    def server_count(self) -> int:
        return self._servers.given_count

    async def close(self) -> None:
        await self._transport.close()

    async def ask(self, request: ServerRequest) -> bytes:
        """Returns the body of a successful answer; after an AwayError the next call goes to another
        server."""
        server = self.server
        try:
            reply = await self._transport.send(server, request)
        except AwayError:
            if request.fails_over:
                self._servers.mark_unreachable(server, self._clock.now())
            raise
        self._servers.heard(server, reply.headers.get(LEADER), self._clock.now())
        if reply.status < 300:
            return reply.body
        problem = _problem(server, reply)
        # A caller over the rate limit of one server would be over that of the next one too.
        if request.fails_over and isinstance(problem, AwayError) and problem.status != TOO_MANY:
            self._servers.skip(server)
        raise problem

    def pass_over(self) -> None:
        """Moves on to another server: the answers of this one are of no use."""
        self._servers.skip(self.server)

    def open(self, request: ServerRequest) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Opens a successful answer for streaming."""
        return self._transport.open(self.server, request)


def _problem(server: str, reply: ServerReply) -> Exception:
    status = reply.status
    try:
        detail = msgspec.json.decode(reply.body, type=Problem).detail
    except msgspec.MsgspecError:
        detail = reply.body[:200].decode("utf-8", "replace") or f"answered {status}"
    if status == TOO_MANY or status >= 500:
        text = f"{server}: {detail} (HTTP {status})"
        return AwayError(text, _seconds(reply.headers.get("retry-after")), status=status)
    return RefusedError(status, detail)


def _seconds(text: str | None) -> float:
    return min(float(text), RETRY_AFTER_MAX_S) if text and text.isdigit() else 0.0


class Uplink:
    """Transfers of executions beside their report: logs, progress, output files, bundles."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(UPLINKS_MAX)

    async def send_log(self, execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        path = f"/executions/{execution_id}/logs?offset={offset}&fence={fence}"
        async with self._slots:
            headers = {"Content-Type": "text/plain"}
            await self._client.ask(upload(ServerRequest("POST", path, chunk, headers=headers)))

    async def send_progress(self, execution_id: str, record: ProgressSpec) -> None:
        async with self._slots:
            await self._client.ask(upload(post(f"/executions/{execution_id}/progress", record)))

    async def send_artifact(self, execution_id: str, name: str, file: Path, sha256: str) -> None:
        """Uploads an output file from disk, and resumes an upload that was interrupted."""
        path = f"/executions/{execution_id}/artifacts/{quote(name, safe='')}"
        stream = await asyncio.to_thread(file.open, "rb")
        try:
            async with self._slots:
                offset = await self._sent_before(path, file, sha256)
                await asyncio.to_thread(stream.seek, offset)
                path = f"{path}?sha256={sha256}" + (f"&offset={offset}" if offset else "")
                await self._client.ask(upload(ServerRequest("PUT", path, stream, UPLOAD_S, OCTETS)))
        finally:
            await asyncio.to_thread(stream.close)

    async def _sent_before(self, path: str, file: Path, sha256: str) -> int:
        """Returns how much the server has of a large file; small ones are always sent whole."""
        size = (await asyncio.to_thread(file.stat)).st_size
        if size < RESUMED_BYTES_MIN:
            return 0
        request = upload(ServerRequest("GET", f"{path}/upload?sha256={sha256}"))
        offset = msgspec.json.decode(await self._client.ask(request), type=UploadView).offset
        return min(offset, size)

    async def show_bundle(self, execution_id: str, bundle_id: str) -> BundleView:
        """Fetches the description of a job's bundle."""
        path = f"/executions/{execution_id}/bundles/{bundle_id}"
        async with self._slots:
            return msgspec.json.decode(
                await self._client.ask(ServerRequest("GET", path)), type=BundleView
            )

    @asynccontextmanager
    async def open_bundle(
        self, execution_id: str, bundle_id: str, offset: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Streams a bundle's content from `offset` on."""
        path = f"/executions/{execution_id}/bundles/{bundle_id}/content"
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        async with self._client.open(ServerRequest("GET", path, headers=headers)) as response:
            if offset and response.status != PARTIAL:
                raise AwayError("the server sent the whole bundle where a part was requested")
            yield response.content.iter_chunked(CHUNK_BYTES)
