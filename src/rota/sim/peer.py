"""What servers, workers and the SDK speak HTTP with, where the wire is the simulated network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

import aiohttp
import httpx2
from multidict import CIMultiDict
from yarl import URL

from rota.sim.clock import Machine
from rota.sim.network import (
    NEWER_HEADER,
    SINCE_LAST,
    BrokenError,
    Door,
    Network,
    Request,
    Response,
    UnsentError,
)
from rota.worker.link import Ask, AwayError, Reply


class PeerSession:
    """In the place of aiohttp's session, as far as a server that forwards uses one."""

    def __init__(self, network: Network, machine: Machine, door: Door) -> None:
        """`door`: its own, which says of which version it is."""
        self._network = network
        self._machine = machine
        self._door = door

    async def request(
        self,
        method: str,
        url: URL,
        *,
        data: bytes | AsyncIterator[bytes] | None,
        headers: Iterable[tuple[str, str]],
        allow_redirects: bool,
    ) -> PeerResponse:
        """Sends it on; the errors are those of aiohttp."""
        body = data if isinstance(data, bytes) else b"".join([one async for one in data or _none()])
        asked = Request(method, url.raw_path_qs, self._said(headers), body)
        try:
            answer = await self._network.ask(self._machine, str(url.origin()), asked, None)
        except UnsentError as error:
            raise aiohttp.ConnectionTimeoutError(str(error)) from error
        except BrokenError as error:
            raise aiohttp.ServerDisconnectedError(str(error)) from error
        return PeerResponse(answer)

    def _said(self, headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """As a server of its version says it."""
        if self._door.older:
            return tuple(one for one in headers if one[0].lower() not in SINCE_LAST)
        return (*headers, NEWER_HEADER) if self._door.newer else tuple(headers)

    async def close(self) -> None:
        """There is nothing to close."""


async def _none() -> AsyncIterator[bytes]:
    return
    yield b""


class PeerResponse:
    """In the place of aiohttp's response."""

    def __init__(self, answer: Response) -> None:
        self.status = answer.status
        self.raw_headers = answer.headers
        self.headers = _readable(answer.headers)
        self.content = self
        self._body = answer.body

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The body, in one piece."""
        yield self._body

    async def __aenter__(self) -> PeerResponse:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class WorkerWire:
    """Carries a worker's calls."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._network = network
        self._machine = machine

    async def send(self, server: str, ask: Ask) -> Reply:
        """One request; no answer is an AwayError, whatever the cause."""
        assert isinstance(ask.body, bytes)
        request = Request(ask.method, ask.path, tuple(ask.headers.items()), ask.body)
        try:
            answer = await self._network.ask(self._machine, server, request, ask.timeout_s)
        except TimeoutError:
            raise AwayError(f"{server} did not answer within {ask.timeout_s:g} s") from None
        except (UnsentError, BrokenError) as error:
            raise AwayError(f"{server} cannot be reached: {error}") from None
        return Reply(answer.status, _readable(answer.headers), answer.body)

    @asynccontextmanager
    async def open(self, server: str, ask: Ask) -> AsyncIterator[aiohttp.ClientResponse]:
        """Jobs of the simulation fetch no bundles."""
        raise AwayError(f"{server} has no {ask.path}")
        yield  # what makes it a generator

    async def close(self) -> None:
        """There is nothing to close."""


class ClientTransport(httpx2.AsyncBaseTransport):
    """Carries the SDK's calls."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._network = network
        self._machine = machine

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request; the errors are those of the HTTP library."""
        headers = tuple((k, v) for k, v in request.headers.items() if k.lower() != "host")
        asked = Request(
            request.method, request.url.raw_path.decode("ascii"), headers, await request.aread()
        )
        timeout: dict[str, Any] = request.extensions.get("timeout", {})
        address = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
        try:
            answer = await self._network.ask(self._machine, address, asked, timeout.get("read"))
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer in time", request=request) from error
        except UnsentError as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        except BrokenError as error:
            raise httpx2.RemoteProtocolError(str(error), request=request) from error
        return httpx2.Response(answer.status, headers=list(answer.headers), content=answer.body)


def _readable(headers: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    return CIMultiDict((k.decode("latin-1"), v.decode("latin-1")) for k, v in headers)
