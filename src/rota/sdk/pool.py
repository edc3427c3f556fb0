"""Connections to one server: the only module that knows the HTTP library.

Loaded with the first client, not with the SDK: a program that only declares its jobs never pays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict

import httpx2

from rota import __version__
from rota.sdk.answers import Answer, error_of
from rota.sdk.calls import Call, Params
from rota.sdk.discover import Endpoint
from rota.sdk.errors import SilenceError, UnreachableError
from rota.sdk.flows import More, Open, Patience, Pause, Send, Terms


class _Request(TypedDict):
    method: str
    url: str
    params: Params
    content: bytes | None
    headers: dict[str, str]


class _Settings(TypedDict):
    base_url: str
    headers: dict[str, str]
    timeout: httpx2.Timeout
    trust_env: bool


def _settings(endpoint: Endpoint, patience: Patience) -> _Settings:
    headers = {"User-Agent": f"rota/{__version__}", "Accept": "application/json, */*;q=0.5"}
    if endpoint.token:
        headers["Authorization"] = f"Bearer {endpoint.token}"
    return {
        "base_url": endpoint.url,
        "headers": headers,
        "timeout": httpx2.Timeout(patience.read_s, connect=patience.connect_s),
        # A proxy cannot reach this machine's own loopback.
        "trust_env": not endpoint.is_local,
    }


def _request(call: Call[Any], headers: dict[str, str]) -> _Request:
    typed = {"Content-Type": call.media} if call.body is not None else {}
    return {
        "method": call.method,
        "url": call.path,
        "params": call.params,
        "content": call.body,
        "headers": {**headers, **typed},
    }


def _whole(response: httpx2.Response) -> Answer:
    """An answer that is not an error; raises the error it is."""
    if response.status_code >= 300:
        raise error_of(response.status_code, response.headers, response.content)
    return Answer(response.status_code, response.headers, response.content)


def _reading_timeout(step: Open, terms: Terms) -> httpx2.Timeout:
    return httpx2.Timeout(step.quiet_s, connect=terms.patience.connect_s)


class Pool:
    """Blocking connections."""

    def __init__(
        self, endpoint: Endpoint, terms: Terms, transport: httpx2.BaseTransport | None
    ) -> None:
        self._endpoint = endpoint
        self._terms = terms
        self._http = httpx2.Client(transport=transport, **_settings(endpoint, terms.patience))

    def talk(self) -> Talk:
        """For one flow."""
        return Talk(self._http, self._endpoint, self._terms)

    def close(self) -> None:
        """Gives the connections back."""
        self._http.close()


class Talk:
    """Takes the steps of one flow."""

    def __init__(self, http: httpx2.Client, endpoint: Endpoint, terms: Terms) -> None:
        self._http = http
        self._endpoint = endpoint
        self._terms = terms
        self._open: httpx2.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def take(self, step: Send | Open | More | Pause) -> Any:
        """What comes of a step; raises UnreachableError, ApiError."""
        try:
            match step:
                case Send(call, headers):
                    response = self._http.request(**_request(call, headers))
                    self._terms.reached = True
                    return _whole(response)
                case Open():
                    return self._start(step)
                case More():
                    return next(self._chunks, None)
                case Pause(seconds):
                    return self._terms.clock.sleep(seconds)
        except httpx2.TransportError as error:
            raise unreachable(self._endpoint, error) from error

    def _start(self, step: Open) -> None:
        self.close()
        timeout = _reading_timeout(step, self._terms)
        request = self._http.build_request(timeout=timeout, **_request(step.call, step.headers))
        self._open = response = self._http.send(request, stream=True)
        self._terms.reached = True
        if response.status_code >= 300:
            response.read()
            _whole(response)
        self._chunks = response.iter_bytes()

    def close(self) -> None:
        """Reads what is open no further."""
        response, self._open = self._open, None
        if response is not None:
            response.close()


class AsyncPool:
    """Connections for asyncio."""

    def __init__(
        self, endpoint: Endpoint, terms: Terms, transport: httpx2.AsyncBaseTransport | None
    ) -> None:
        self._endpoint = endpoint
        self._terms = terms
        self._http = httpx2.AsyncClient(transport=transport, **_settings(endpoint, terms.patience))

    def talk(self) -> AsyncTalk:
        """For one flow."""
        return AsyncTalk(self._http, self._endpoint, self._terms)

    async def close(self) -> None:
        """Gives the connections back."""
        await self._http.aclose()


class AsyncTalk:
    """Takes the steps of one flow."""

    def __init__(self, http: httpx2.AsyncClient, endpoint: Endpoint, terms: Terms) -> None:
        self._http = http
        self._endpoint = endpoint
        self._terms = terms
        self._open: httpx2.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def take(self, step: Send | Open | More | Pause) -> Any:
        """What comes of a step; raises UnreachableError, ApiError."""
        try:
            match step:
                case Send(call, headers):
                    response = await self._http.request(**_request(call, headers))
                    self._terms.reached = True
                    return _whole(response)
                case Open():
                    return await self._start(step)
                case More():
                    assert self._chunks is not None
                    return await anext(self._chunks, None)
                case Pause(seconds):
                    return await asyncio.sleep(seconds)
        except httpx2.TransportError as error:
            raise unreachable(self._endpoint, error) from error

    async def _start(self, step: Open) -> None:
        await self.aclose()
        timeout = _reading_timeout(step, self._terms)
        request = self._http.build_request(timeout=timeout, **_request(step.call, step.headers))
        self._open = response = await self._http.send(request, stream=True)
        self._terms.reached = True
        if response.status_code >= 300:
            await response.aread()
            _whole(response)
        self._chunks = response.aiter_bytes()

    async def aclose(self) -> None:
        """Reads what is open no further."""
        response, self._open = self._open, None
        if response is not None:
            await response.aclose()


def unreachable(endpoint: Endpoint, error: httpx2.TransportError) -> UnreachableError:
    """What a broken connection is to our callers."""
    kind = SilenceError if isinstance(error, httpx2.ReadTimeout) else UnreachableError
    refused = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    return kind(endpoint.url, _cause(error), refused=refused)


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
    return text[:120] or type(error).__name__
