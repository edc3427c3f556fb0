"""Carries calls to the server over HTTP, and carries them again while that may help.

A write is repeated only under the idempotency key of its first try, so however often it is sent it
happens once.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

import httpx2

from rota import __version__
from rota.sdk.answers import error_of, is_passing, pause_s, read
from rota.sdk.calls import Call, uuid7
from rota.sdk.clock import Clock, SystemClock
from rota.sdk.discover import Endpoint
from rota.sdk.errors import ApiError, SilenceError, UnreachableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on asking a server that is busy, starting or away."""

    retry_for_s: float = 30.0
    """Gives up when this has passed since the first failure."""
    first_contact_s: float | None = None
    """The same for a server that has not answered this client yet; None: no different."""
    connect_s: float = 5.0
    read_s: float = 60.0
    """Longer than a long poll is held."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: whole, and not an error."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Carrier:
    """One server, one token, one pool of connections. Not for use by several threads at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        patience: Patience | None = None,
        *,
        clock: Clock | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.patience = patience or Patience()
        self.clock = clock or SystemClock()
        self._reached = False
        headers = {"User-Agent": f"rota/{__version__}", "Accept": "application/json, */*;q=0.5"}
        if endpoint.token:
            headers["Authorization"] = f"Bearer {endpoint.token}"
        self._http = httpx2.Client(
            base_url=endpoint.url,
            headers=headers,
            timeout=httpx2.Timeout(self.patience.read_s, connect=self.patience.connect_s),
            transport=transport,
            # A proxy cannot reach this machine's own loopback.
            trust_env=not endpoint.is_local,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the connections back."""
        self._http.close()

    def mint_key(self) -> str:
        """A new idempotency key."""
        return uuid7(self.clock.now_ms(), secrets.token_bytes(10))

    def call(self, call: Call[T], *, key: str | None = None) -> T:
        """The answer of a call."""
        answer = self.ask(call, key=key)
        return read(call, answer.status, answer.headers, answer.body)

    def ask(self, call: Call[T], *, key: str | None = None) -> Answer:
        """The same, unread: for those who pass the bytes on as they are."""
        seed = key or self.mint_key()
        headers = {"Idempotency-Key": seed} if call.keyed else {}
        retrying = Retrying(self, seed)
        while True:
            try:
                return self._send(call, headers)
            except (UnreachableError, ApiError) as error:
                retrying.after(error)

    def _send(self, call: Call[T], headers: dict[str, str]) -> Answer:
        if call.body is not None:
            headers["Content-Type"] = call.media
        try:
            response = self._http.request(
                call.method,
                call.path,
                params=list(call.params),
                content=call.body,
                headers=headers,
            )
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        self._reached = True
        if response.status_code >= 300:
            raise error_of(response.status_code, response.headers, response.content)
        return Answer(response.status_code, response.headers, response.content)

    @contextmanager
    def open(
        self, call: Call[bytes], headers: dict[str, str], *, quiet_s: float
    ) -> Iterator[httpx2.Response]:
        """An answer read as it comes; breaks off when nothing came for `quiet_s`."""
        timeout = httpx2.Timeout(quiet_s, connect=self.patience.connect_s)
        try:
            with self._http.stream(
                call.method, call.path, params=list(call.params), headers=headers, timeout=timeout
            ) as response:
                self._reached = True
                if response.status_code >= 300:
                    raise error_of(response.status_code, response.headers, response.read())
                yield response
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def patience_s(self) -> float:
        """How long it is worth to go on asking."""
        if not self._reached and self.patience.first_contact_s is not None:
            return self.patience.first_contact_s
        return self.patience.retry_for_s

    def _unreachable(self, error: httpx2.TransportError) -> UnreachableError:
        kind = SilenceError if isinstance(error, httpx2.ReadTimeout) else UnreachableError
        refused = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        return kind(self.endpoint.url, _cause(error), refused=refused)


class Retrying:
    """The waits of one call that is being repeated."""

    def __init__(self, carrier: Carrier, seed: str) -> None:
        self._carrier = carrier
        self._seed = seed
        self._tried = 0
        self._failing_since_s = 0.0

    def after(self, error: UnreachableError | ApiError) -> None:
        """Waits, if another try may help and there is time for one; raises the error if not."""
        if isinstance(error, ApiError) and not is_passing(error):
            raise error
        if self._tried == 0:
            self._failing_since_s = self._carrier.clock.elapsed_s()
        self._tried += 1
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        wait_s = pause_s(self._tried, self._seed, asked)
        spent_s = self._carrier.clock.elapsed_s() - self._failing_since_s
        if spent_s + wait_s > self._carrier.patience_s():
            raise error
        self._carrier.clock.sleep(wait_s)

    def progressed(self) -> None:
        """Something came: the next failure is a first one again."""
        self._tried = 0


def _cause(error: httpx2.TransportError) -> str:
    """What went wrong with a connection, in a few words."""
    if isinstance(error, httpx2.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    text = str(error)
    if "refused" in text:
        return "connection refused"
    if "Name or service not known" in text or "getaddrinfo" in text or "resolution" in text:
        return "unknown host"
    return text[:120] or type(error).__name__
