"""Connections to the servers of a cell: the only module that knows the HTTP library.

Loaded with the first client, not with the SDK: a program that only declares its jobs never pays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict

import httpx2

from rota import __version__
from rota.sdk.answers import Answer, error_of, is_passing
from rota.sdk.calls import Call, Params
from rota.sdk.discovery import Endpoint
from rota.sdk.errors import ApiError, LimitError, SilenceError, UnreachableError
from rota.sdk.flows import More, Open, Pause, Send, Terms


class _Request(TypedDict):
    method: str
    url: str
    params: Params
    content: bytes | None
    headers: dict[str, str]


class _Settings(TypedDict):
    headers: dict[str, str]
    trust_env: bool


def _settings(endpoint: Endpoint) -> _Settings:
    headers = {"User-Agent": f"rota/{__version__}", "Accept": "application/json, */*;q=0.5"}
    if endpoint.token:
        headers["Authorization"] = f"Bearer {endpoint.token}"
    return {
        "headers": headers,
        # A proxy cannot reach this machine's own loopback.
        "trust_env": not endpoint.is_local,
    }


def _request(server: str, call: Call[Any], headers: dict[str, str]) -> _Request:
    typed = {"Content-Type": call.media} if call.body is not None else {}
    return {
        "method": call.method,
        "url": server + call.path,
        "params": call.params,
        "content": call.body,
        "headers": {**headers, **typed},
    }


def _whole(response: httpx2.Response) -> Answer:
    """An answer that is not an error; raises the error it is."""
    if response.status_code >= 300:
        raise error_of(response.status_code, response.headers, response.content)
    return Answer(response.status_code, response.headers, response.content)


def _timeout(read_s: float, terms: Terms) -> httpx2.Timeout:
    return httpx2.Timeout(read_s, connect=terms.patience.connect_s)


class Pool:
    """Blocking connections."""

    def __init__(
        self, endpoint: Endpoint, terms: Terms, transport: httpx2.BaseTransport | None
    ) -> None:
        self._terms = terms
        self._http = httpx2.Client(transport=transport, **_settings(endpoint))

    def talk(self) -> Talk:
        """For one flow."""
        return Talk(self._http, self._terms)

    def close(self) -> None:
        """Gives the connections back."""
        self._http.close()


class Talk:
    """Takes the steps of one flow."""

    def __init__(self, http: httpx2.Client, terms: Terms) -> None:
        self._http = http
        self._terms = terms
        self._server = ""
        """The one that was asked last."""
        self._open: httpx2.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def take(self, step: Send | Open | More | Pause) -> Any:
        """What comes of a step; raises UnreachableError, ApiError."""
        try:
            match step:
                case Send(call, headers, tried):
                    self._server = self._terms.servers.current
                    request = _request(self._server, call, headers)
                    timeout = _timeout(self._terms.read_s(call, tried), self._terms)
                    response = self._http.request(timeout=timeout, **request)
                    self._terms.reached = True
                    return _whole(response)
                case Open():
                    return self._start(step)
                case More():
                    return next(self._chunks, None)
                case Pause(seconds):
                    return self._terms.clock.sleep(seconds)
        except ApiError as error:
            _refused(self._terms, self._server, error)
            raise
        except httpx2.TransportError as error:
            if not isinstance(step, More):  # a stream that falls silent may have nothing to say
                self._terms.servers.passed(self._server)
            raise unreachable(self._server, error) from error

    def _start(self, step: Open) -> None:
        self.close()
        timeout = _timeout(step.quiet_s, self._terms)
        self._server = self._terms.servers.current
        asked = _request(self._server, step.call, step.headers)
        request = self._http.build_request(timeout=timeout, **asked)
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
        self._terms = terms
        self._http = httpx2.AsyncClient(transport=transport, **_settings(endpoint))

    def talk(self) -> AsyncTalk:
        """For one flow."""
        return AsyncTalk(self._http, self._terms)

    async def close(self) -> None:
        """Gives the connections back."""
        await self._http.aclose()


class AsyncTalk:
    """Takes the steps of one flow."""

    def __init__(self, http: httpx2.AsyncClient, terms: Terms) -> None:
        self._http = http
        self._terms = terms
        self._server = ""
        """The one that was asked last."""
        self._open: httpx2.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def take(self, step: Send | Open | More | Pause) -> Any:
        """What comes of a step; raises UnreachableError, ApiError."""
        try:
            match step:
                case Send(call, headers, tried):
                    self._server = self._terms.servers.current
                    request = _request(self._server, call, headers)
                    timeout = _timeout(self._terms.read_s(call, tried), self._terms)
                    response = await self._http.request(timeout=timeout, **request)
                    self._terms.reached = True
                    return _whole(response)
                case Open():
                    return await self._start(step)
                case More():
                    assert self._chunks is not None
                    return await anext(self._chunks, None)
                case Pause(seconds):
                    return await asyncio.sleep(seconds)
        except ApiError as error:
            _refused(self._terms, self._server, error)
            raise
        except httpx2.TransportError as error:
            if not isinstance(step, More):  # a stream that falls silent may have nothing to say
                self._terms.servers.passed(self._server)
            raise unreachable(self._server, error) from error

    async def _start(self, step: Open) -> None:
        await self.aclose()
        timeout = _timeout(step.quiet_s, self._terms)
        self._server = self._terms.servers.current
        asked = _request(self._server, step.call, step.headers)
        request = self._http.build_request(timeout=timeout, **asked)
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


def _refused(terms: Terms, server: str, error: ApiError) -> None:
    """Who asks too much of one server would ask too much of the next; else it is worth a try."""
    if is_passing(error) and not isinstance(error, LimitError):
        terms.servers.passed(server)


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
    return text[:120] or type(error).__name__
