"""HTTP client of one cell's servers: asks another one when a server does not answer.

Which server is next is decided by `sdk.servers`. `Uplink` sends logs, progress and output files
beside the poll loop, and fetches bundles.
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
"""A server that does not even accept within this is away."""
SHORT_S = 10.0
"""A call that the server does not hold."""
UPLOAD_S = 120.0
"""An output file over a slow line."""
UPLINKS_MAX = 32
"""Logs, progress and files of many jobs wait for each other rather than flood a server."""
RETRY_AFTER_MAX_S = 30.0
"""No answer may send a worker to sleep for longer."""
LEADER = LEADER_HEADER.lower()
TOO_MANY = 429
PARTIAL = 206
CHUNK_BYTES = 256 * 1024
RESUMED_BYTES_MIN = 8 * 1024 * 1024
"""A file that took so long to send is worth asking how much of it has come."""
OCTETS = {"Content-Type": "application/octet-stream"}


class AwayError(Exception):
    """No answer, or one that says later: ask again."""

    def __init__(
        self, detail: str, retry_after_s: float = 0.0, *, status: int | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.status = status
        """What the server answered; None: nothing came."""


class RefusedError(Exception):
    """The server heard it and said no: asking again changes nothing."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{detail} (HTTP {status})")
        self.status = status
        self.detail = detail


class ServerRequest(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    path: str
    body: bytes | IO[bytes] = b""
    timeout_s: float = SHORT_S
    headers: dict[str, str] = {}
    fails_over: bool = True
    """Whether its failure says that another server should be asked. That of an upload does not: it
    may just be large, and the poll beside it finds out sooner."""


JSON_HEADERS = {"Content-Type": "application/json"}


def post(path: str, record: object, timeout_s: float = SHORT_S) -> ServerRequest:
    """A JSON record for a path."""
    return ServerRequest("POST", path, encode(record), timeout_s, JSON_HEADERS)


def upload(ask: ServerRequest) -> ServerRequest:
    """The same for what goes beside the conversation."""
    return msgspec.structs.replace(ask, fails_over=False)


class ServerReply(msgspec.Struct, frozen=True):
    """What a server answered, whatever it says."""

    status: int
    headers: Mapping[str, str]
    """Found by their names in lower case, at least."""
    body: bytes


class ServerTransport(Protocol):
    """Carries requests to servers."""

    async def send(self, server: str, ask: ServerRequest) -> ServerReply:
        """The answer; raises AwayError where none came."""
        ...

    def open(
        self, server: str, ask: ServerRequest
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A good answer that is read as it comes; raises AwayError and RefusedError."""
        ...

    async def close(self) -> None:
        """Lets go of all connections."""
        ...


class HttpTransport:
    """HTTP on real connections: lines of our own for short calls, aiohttp for what flows."""

    def __init__(self, token: str | None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._lines = Lines(headers, CONNECT_S)
        self._http = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
        )

    async def close(self) -> None:
        """Lets go of all connections."""
        await self._lines.close()
        await self._http.close()

    async def send(self, server: str, ask: ServerRequest) -> ServerReply:
        """One request. No redirect is followed: the token goes to the server that was named."""
        try:
            async with asyncio.timeout(ask.timeout_s):
                return await self._send(server, ask)
        except TimeoutError:
            raise AwayError(f"{server} did not answer within {ask.timeout_s:g} s") from None
        except (BrokenError, aiohttp.ClientError, OSError) as error:
            raise AwayError(f"{server} cannot be reached: {error}") from None

    async def _send(self, server: str, ask: ServerRequest) -> ServerReply:
        if isinstance(ask.body, bytes):
            heard = await self._lines.send(ask.method, server, ask.path, ask.body, ask.headers)
            return ServerReply(heard.status, heard.headers, heard.body)
        async with self._http.request(
            ask.method,
            server + ask.path,
            data=ask.body,
            headers=ask.headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            allow_redirects=False,
        ) as response:
            return ServerReply(response.status, response.headers, await response.read())

    @asynccontextmanager
    async def open(self, server: str, ask: ServerRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """There is no limit to how long it takes, only to how long nothing comes."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SHORT_S)
        try:
            async with self._http.request(
                ask.method,
                server + ask.path,
                headers=ask.headers,
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
            raise AwayError(f"{server} broke off: {error}") from None


class ServerClient:
    """The way to the servers of one cell."""

    def __init__(self, servers: Servers, wire: ServerTransport, clock: MonotonicClock) -> None:
        self._servers = servers
        self._transport = wire
        self._clock = clock

    @property
    def server(self) -> str:
        """The one asked next."""
        return self._servers.current

    @property
    def server_count(self) -> int:
        """How many servers there are to ask."""
        return self._servers.given_count

    async def close(self) -> None:
        """Lets go of all connections."""
        await self._transport.close()

    async def ask(self, ask: ServerRequest) -> bytes:
        """The body of a good answer; after an AwayError the next call goes to another server."""
        server = self.server
        try:
            reply = await self._transport.send(server, ask)
        except AwayError:
            if ask.fails_over:
                self._servers.mark_unreachable(server, self._clock.now())
            raise
        self._servers.heard(server, reply.headers.get(LEADER), self._clock.now())
        if reply.status < 300:
            return reply.body
        problem = _problem(server, reply)
        # Who asks too much of one server would ask too much of the next.
        if ask.fails_over and isinstance(problem, AwayError) and problem.status != TOO_MANY:
            self._servers.skip(server)
        raise problem

    def pass_over(self) -> None:
        """What answers there is of no use."""
        self._servers.skip(self.server)

    def open(self, ask: ServerRequest) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A good answer that is read as it comes."""
        return self._transport.open(self.server, ask)


def _problem(server: str, reply: ServerReply) -> Exception:
    status = reply.status
    try:
        detail = msgspec.json.decode(reply.body, type=Problem).detail
    except msgspec.MsgspecError:
        detail = reply.body[:200].decode("utf-8", "replace") or f"answered {status}"
    if status == TOO_MANY or status >= 500:
        said = f"{server}: {detail} (HTTP {status})"
        return AwayError(said, _seconds(reply.headers.get("retry-after")), status=status)
    return RefusedError(status, detail)


def _seconds(text: str | None) -> float:
    return min(float(text), RETRY_AFTER_MAX_S) if text and text.isdigit() else 0.0


class Uplink:
    """What executions send beside their report."""

    def __init__(self, link: ServerClient) -> None:
        self._client = link
        self._slots = asyncio.Semaphore(UPLINKS_MAX)

    async def send_log(self, execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        """A piece of output, at its place."""
        path = f"/executions/{execution_id}/logs?offset={offset}&fence={fence}"
        async with self._slots:
            headers = {"Content-Type": "text/plain"}
            await self._client.ask(upload(ServerRequest("POST", path, chunk, headers=headers)))

    async def send_progress(self, execution_id: str, record: ProgressSpec) -> None:
        """How far it is."""
        async with self._slots:
            await self._client.ask(upload(post(f"/executions/{execution_id}/progress", record)))

    async def send_artifact(self, execution_id: str, name: str, file: Path, sha256: str) -> None:
        """An output file, read from disk as it goes; one that broke off goes on where it was."""
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
        """Worth a question only for what takes long."""
        size = (await asyncio.to_thread(file.stat)).st_size
        if size < RESUMED_BYTES_MIN:
            return 0
        ask = upload(ServerRequest("GET", f"{path}/upload?sha256={sha256}"))
        offset = msgspec.json.decode(await self._client.ask(ask), type=UploadView).offset
        return min(offset, size)

    async def show_bundle(self, execution_id: str, bundle_id: str) -> BundleView:
        """What a job's bundle is."""
        path = f"/executions/{execution_id}/bundles/{bundle_id}"
        async with self._slots:
            return msgspec.json.decode(
                await self._client.ask(ServerRequest("GET", path)), type=BundleView
            )

    @asynccontextmanager
    async def open_bundle(
        self, execution_id: str, bundle_id: str, offset: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Its content from `offset` on."""
        path = f"/executions/{execution_id}/bundles/{bundle_id}/content"
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        async with self._client.open(ServerRequest("GET", path, headers=headers)) as response:
            if offset and response.status != PARTIAL:
                raise AwayError("the server sent the whole where a part was asked for")
            yield response.content.iter_chunked(CHUNK_BYTES)
