"""Connections to the servers of a cell: takes the steps of flows, each over what it needs.

A short call goes over a line of our own; what flows, and what must go through a proxy, over a
general client, which is loaded for the first of those.
"""

from __future__ import annotations

import asyncio
import select
import ssl
import sys
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from rota import __version__
from rota.sdk.discovery import Endpoint
from rota.sdk.errors import ApiError, LimitError, UnreachableError
from rota.sdk.request_plan import (
    Answer,
    ClientState,
    OpenStream,
    ReadMore,
    SendRequest,
    Sleep,
    error_of,
    is_passing,
)

if TYPE_CHECKING:
    import httpx2

    from rota.sdk.calls import Call
    from rota.sdk.lines.awaited_calls import AwaitedCalls
    from rota.sdk.lines.blocking_lines import Lines
    from rota.sdk.lines.general import AsyncFlowing, AsyncGeneral, Flowing, General


SHORT_BYTES_MAX = 256 * 1024
"""An awaited call of more goes over the general client, which waits while a thin line takes it."""


def _headers(endpoint: Endpoint) -> dict[str, str]:
    headers = {"User-Agent": f"rota/{__version__}", "Accept": "application/json, */*;q=0.5"}
    if endpoint.token:
        headers["Authorization"] = f"Bearer {endpoint.token}"
    return headers


def _is_direct(endpoint: Endpoint) -> bool:
    """Whether nothing but a connection is between here and the servers."""
    # Neither is there on Windows; some who patch the standard library take `poll` out of it.
    has_parts = sys.platform != "win32" and hasattr(select, "poll")
    plain = all(url.isascii() and "@" not in url for url in endpoint.urls)
    return plain and has_parts and (endpoint.is_local or not _has_proxy())


def _has_proxy() -> bool:
    from urllib.request import getproxies

    named = getproxies()
    return any(named.get(scheme) for scheme in ("http", "https", "all"))


def _trusted(endpoint: Endpoint) -> ssl.SSLContext:
    from rota.sdk.lines.general import trusted

    return trusted(endpoint)


def _good(answer: Answer) -> Answer:
    """An answer that is not an error; raises the error it is."""
    if answer.status >= 300:
        raise error_of(answer.status, answer.headers, answer.body)
    return answer


class Pool:
    """Blocking connections."""

    def __init__(
        self, endpoint: Endpoint, state: ClientState, transport: httpx2.BaseTransport | None
    ) -> None:
        self.state = state
        self._endpoint = endpoint
        self._transport = transport
        self._lines = _lines(endpoint, state) if transport is None else None
        self._general: General | None = None
        self._loading = Lock()

    def talk(self) -> Talk:
        """For one flow."""
        return Talk(self)

    @property
    def short(self) -> Lines | General:
        """What short calls go over."""
        return self._lines or self.general

    @property
    def general(self) -> General:
        """What takes all."""
        with self._loading:
            if self._general is None:
                from rota.sdk.lines.general import General, Way

                connect_s = self.state.patience.connect_s
                way = Way(self._endpoint, _headers(self._endpoint), connect_s)
                self._general = General(way, self._transport)
            return self._general

    def close(self) -> None:
        """Gives the connections back."""
        if self._lines is not None:
            self._lines.close()
        if self._general is not None:
            self._general.close()


def _lines(endpoint: Endpoint, state: ClientState) -> Lines | None:
    if not _is_direct(endpoint):
        return None
    from rota.sdk.lines.blocking_lines import Lines

    connect_s, clock = state.patience.connect_s, state.clock
    return Lines(_headers(endpoint), connect_s, clock, partial(_trusted, endpoint))


class Talk:
    """Takes the steps of one flow."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._state = pool.state
        self._server = ""
        """The one that was asked last."""
        self._open: Flowing | None = None

    def take(self, step: SendRequest | OpenStream | ReadMore | Sleep) -> Any:
        """What comes of a step; raises UnreachableError, ApiError."""
        state = self._state
        try:
            match step:
                case SendRequest(call, headers, tried):
                    self._server = state.servers.current
                    quiet_s = state.read_s(call, tried)
                    answer = self._pool.short.send(self._server, call, headers, quiet_s)
                    state.reached = True
                    return _good(answer)
                case OpenStream():
                    return self._start(step)
                case ReadMore():
                    return None if self._open is None else self._open.more()
                case Sleep(seconds):
                    return state.clock.sleep(seconds)
        except ApiError as error:
            _refused(state, self._server, error)
            raise
        except UnreachableError:
            _away(state, self._server, step)
            raise

    def _start(self, step: OpenStream) -> None:
        self.close()
        self._server = self._state.servers.current
        general = self._pool.general
        self._open = opened = general.open(self._server, step.call, step.headers, step.quiet_s)
        self._state.reached = True
        if opened.status >= 300:
            _good(opened.whole())

    def close(self) -> None:
        """Reads what is open no further."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()


class AsyncPool:
    """Connections for asyncio."""

    def __init__(
        self, endpoint: Endpoint, state: ClientState, transport: httpx2.AsyncBaseTransport | None
    ) -> None:
        self.state = state
        self._endpoint = endpoint
        self._transport = transport
        self._calls = _awaited(endpoint, state) if transport is None else None
        self._general: AsyncGeneral | None = None

    def talk(self) -> AsyncTalk:
        """For one flow."""
        return AsyncTalk(self)

    def taking(self, call: Call[Any]) -> AwaitedCalls | AsyncGeneral:
        """What a call goes over."""
        if self._calls is None or len(call.body or b"") > SHORT_BYTES_MAX:
            return self.general
        return self._calls

    @property
    def general(self) -> AsyncGeneral:
        """What takes all."""
        if self._general is None:
            from rota.sdk.lines.general import AsyncGeneral, Way

            connect_s = self.state.patience.connect_s
            way = Way(self._endpoint, _headers(self._endpoint), connect_s)
            self._general = AsyncGeneral(way, self._transport)
        return self._general

    async def close(self) -> None:
        """Gives the connections back."""
        if self._calls is not None:
            await self._calls.close()
        if self._general is not None:
            await self._general.close()


def _awaited(endpoint: Endpoint, state: ClientState) -> AwaitedCalls | None:
    if not _is_direct(endpoint):
        return None
    from rota.sdk.lines.awaited_calls import AwaitedCalls

    connect_s = state.patience.connect_s
    return AwaitedCalls(_headers(endpoint), connect_s, partial(_trusted, endpoint))


class AsyncTalk:
    """Takes the steps of one flow."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool
        self._state = pool.state
        self._server = ""
        self._open: AsyncFlowing | None = None

    async def take(self, step: SendRequest | OpenStream | ReadMore | Sleep) -> Any:
        """What comes of a step; raises UnreachableError, ApiError."""
        state = self._state
        try:
            match step:
                case SendRequest(call, headers, tried):
                    self._server = state.servers.current
                    quiet_s = state.read_s(call, tried)
                    way = self._pool.taking(call)
                    answer = await way.send(self._server, call, headers, quiet_s)
                    state.reached = True
                    return _good(answer)
                case OpenStream():
                    return await self._start(step)
                case ReadMore():
                    return None if self._open is None else await self._open.more()
                case Sleep(seconds):
                    return await asyncio.sleep(seconds)
        except ApiError as error:
            _refused(state, self._server, error)
            raise
        except UnreachableError:
            _away(state, self._server, step)
            raise

    async def _start(self, step: OpenStream) -> None:
        await self.aclose()
        self._server = self._state.servers.current
        general = self._pool.general
        opened = await general.open(self._server, step.call, step.headers, step.quiet_s)
        self._open = opened
        self._state.reached = True
        if opened.status >= 300:
            _good(await opened.whole())

    async def aclose(self) -> None:
        """Reads what is open no further."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()


def _refused(state: ClientState, server: str, error: ApiError) -> None:
    """Who asks too much of one server would ask too much of the next; else it is worth a try."""
    if is_passing(error) and not isinstance(error, LimitError):
        state.servers.skip(server)


def _away(state: ClientState, server: str, step: object) -> None:
    if not isinstance(step, ReadMore):  # a stream that falls silent may have nothing to say
        state.servers.skip(server)
