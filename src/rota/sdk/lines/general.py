"""The general HTTP client, for what flows and for ways that lead through a proxy.

The only module that knows the library. Loaded when it is needed: most programs only make short
calls, and go straight to the server.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, TypedDict

import httpx2

from rota.sdk.calls import Call, Params
from rota.sdk.discovery import Endpoint
from rota.sdk.errors import SilenceError, UnreachableError
from rota.sdk.lines.messages import PLAIN_THERE, SPEAKS_PLAIN
from rota.sdk.request_plan import Answer


class _Request(TypedDict):
    method: str
    url: str
    params: Params
    content: bytes | None
    headers: dict[str, str]
    timeout: httpx2.Timeout


class Way:
    """From here to the servers of one cell: who asks, and how long a connection may take."""

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str], connect_s: float) -> None:
        self.headers = dict(headers)
        # A proxy cannot reach this machine's own loopback.
        self.trust_env = not endpoint.is_local
        self._connect_s = connect_s

    def request(
        self, server: str, call: Call[Any], headers: Mapping[str, str], quiet_s: float
    ) -> _Request:
        """As the library takes it."""
        typed = {"Content-Type": call.media} if call.body is not None else {}
        return {
            "method": call.method,
            "url": server + call.path,
            "params": call.params,
            "content": call.body,
            "headers": {**headers, **typed},
            "timeout": httpx2.Timeout(quiet_s, connect=self._connect_s),
        }


def trusted(endpoint: Endpoint) -> ssl.SSLContext:
    """Whose certificates are believed."""
    return httpx2.create_ssl_context(trust_env=not endpoint.is_local)


class General:
    """Blocking."""

    def __init__(self, way: Way, transport: httpx2.BaseTransport | None) -> None:
        self._way = way
        self._http = httpx2.Client(
            headers=way.headers, trust_env=way.trust_env, transport=transport
        )

    def send(
        self, server: str, call: Call[Any], headers: Mapping[str, str], quiet_s: float
    ) -> Answer:
        """The whole answer; raises UnreachableError."""
        try:
            response = self._http.request(**self._way.request(server, call, headers, quiet_s))
        except httpx2.TransportError as error:
            raise unreachable(server, error) from error
        return Answer(response.status_code, response.headers, response.content)

    def open(
        self, server: str, call: Call[Any], headers: Mapping[str, str], quiet_s: float
    ) -> Flowing:
        """One that is read as it comes."""
        request = self._http.build_request(**self._way.request(server, call, headers, quiet_s))
        try:
            return Flowing(server, self._http.send(request, stream=True))
        except httpx2.TransportError as error:
            raise unreachable(server, error) from error

    def close(self) -> None:
        """Gives the connections back."""
        self._http.close()


class Flowing:
    """An answer that is open."""

    def __init__(self, server: str, response: httpx2.Response) -> None:
        self._server = server
        self._response = response
        self._chunks = response.iter_bytes()
        self.status = response.status_code

    def whole(self) -> Answer:
        """All of it."""
        try:
            body = self._response.read()
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error
        return Answer(self.status, self._response.headers, body)

    def more(self) -> bytes | None:
        """The next bytes; None: that was all."""
        try:
            return next(self._chunks, None)
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error

    def close(self) -> None:
        """Reads no further."""
        self._response.close()


class AsyncGeneral:
    """The same for asyncio."""

    def __init__(self, way: Way, transport: httpx2.AsyncBaseTransport | None) -> None:
        self._way = way
        self._http = httpx2.AsyncClient(
            headers=way.headers, trust_env=way.trust_env, transport=transport
        )

    async def send(
        self, server: str, call: Call[Any], headers: Mapping[str, str], quiet_s: float
    ) -> Answer:
        """The whole answer; raises UnreachableError."""
        request = self._way.request(server, call, headers, quiet_s)
        try:
            response = await self._http.request(**request)
        except httpx2.TransportError as error:
            raise unreachable(server, error) from error
        return Answer(response.status_code, response.headers, response.content)

    async def open(
        self, server: str, call: Call[Any], headers: Mapping[str, str], quiet_s: float
    ) -> AsyncFlowing:
        """One that is read as it comes."""
        request = self._http.build_request(**self._way.request(server, call, headers, quiet_s))
        try:
            return AsyncFlowing(server, await self._http.send(request, stream=True))
        except httpx2.TransportError as error:
            raise unreachable(server, error) from error

    async def close(self) -> None:
        """Gives the connections back."""
        await self._http.aclose()


class AsyncFlowing:
    """An answer that is open."""

    def __init__(self, server: str, response: httpx2.Response) -> None:
        self._server = server
        self._response = response
        self._chunks = response.aiter_bytes()
        self.status = response.status_code

    async def whole(self) -> Answer:
        """All of it."""
        try:
            body = await self._response.aread()
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error
        return Answer(self.status, self._response.headers, body)

    async def more(self) -> bytes | None:
        """The next bytes; None: that was all."""
        try:
            return await anext(self._chunks, None)
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error

    async def close(self) -> None:
        """Reads no further."""
        await self._response.aclose()


def unreachable(server: str, error: httpx2.TransportError) -> UnreachableError:
    """What a broken connection is to our callers."""
    kind = SilenceError if isinstance(error, httpx2.ReadTimeout) else UnreachableError
    refused = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    return kind(server, _cause(error), refused=refused)


def _cause(error: httpx2.TransportError) -> str:
    """What went wrong with a connection, in a few words."""
    if isinstance(error, httpx2.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    text = str(error)
    if "refused" in text or "All connection attempts failed" in text:
        return "connection refused"
    if "Name or service not known" in text or "getaddrinfo" in text or "resolution" in text:
        return "unknown host"
    if PLAIN_THERE in text:
        return SPEAKS_PLAIN
    return text[:120] or type(error).__name__
