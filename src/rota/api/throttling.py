"""Limits on clients: rate limit (token bucket), open connections, memory of bodies and answers."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from starlette.responses import Response
from starlette.types import Message, Receive, Send

from rota.api.limits import (
    ADDRESS_REQUESTS_PER_S,
    BODY_BUDGET_BYTES,
    CONNECTIONS_MAX,
    RATE_KEYS_MAX,
    TOKEN_REQUESTS_PER_S,
    WRONG_TOKENS_ADDRESSES_MAX,
    WRONG_TOKENS_FREE,
    WRONG_TOKENS_QUIET_MS,
    WRONG_TOKENS_WAIT_MS,
    WRONG_TOKENS_WAIT_MS_MAX,
)
from rota.api.problems import RETRY_AFTER_S, retry_after
from rota.core.model import Millis
from rota.wire.problems import ProblemError


class Rate(NamedTuple):
    """Number of requests in each length of time; as many may come at once."""

    amount: int
    per_ms: int


class RateLimiter:
    """Rate limiter with a token bucket per key, kept as one number: the time until which it is used
    up (GCRA)."""

    def __init__(self, rate: Rate | None, keys_max: int = RATE_KEYS_MAX) -> None:
        self._rate = rate
        self._keys_max = keys_max
        self._used_until: OrderedDict[str, float] = OrderedDict()

    def take(self, key: str, now: Millis) -> float:
        """Takes a request; returns 0, or the milliseconds to wait before the next is allowed."""
        if self._rate is None:
            return 0
        used = max(self._used_until.get(key, 0.0), now)
        wait_ms = used - now - self._rate.per_ms
        interval = self._rate.per_ms / self._rate.amount
        if wait_ms + interval > 0:
            return wait_ms + interval
        self._used_until[key] = used + interval
        self._used_until.move_to_end(key)
        if len(self._used_until) > self._keys_max:
            self._used_until.popitem(last=False)
        return 0


class _WrongTokens(NamedTuple):
    number: int
    last: Millis
    closed_until: Millis


class WrongTokenLimiter:
    """Makes addresses wait that sent unknown tokens: a few are free, then each wait is longer."""

    def __init__(self, free: int = WRONG_TOKENS_FREE) -> None:
        self.free = free
        self._by_address: OrderedDict[str, _WrongTokens] = OrderedDict()

    def note(self, address: str, now: Millis) -> tuple[int, Millis]:
        """Counts an unknown token; returns how many there were, and how long to wait before the
        next.

        One sent during the wait is not checked, so it does not make the wait longer.
        """
        before = self._by_address.get(address, _WrongTokens(0, now, now))
        if now < before.closed_until:
            return before.number, before.closed_until - now
        number = 1 if now - before.last > WRONG_TOKENS_QUIET_MS else before.number + 1
        beyond = number - self.free
        wait = (
            0
            if beyond < 1
            else min(WRONG_TOKENS_WAIT_MS << min(beyond - 1, 20), WRONG_TOKENS_WAIT_MS_MAX)
        )
        self._by_address[address] = _WrongTokens(number, now, now + wait)
        self._by_address.move_to_end(address)
        if len(self._by_address) > WRONG_TOKENS_ADDRESSES_MAX:
            self._by_address.popitem(last=False)
        return number, wait


@dataclass(frozen=True)
class Throttle:
    """Rate limits of tokens and addresses, and the waits after wrong tokens."""

    by_token: RateLimiter = field(
        default_factory=lambda: RateLimiter(Rate(TOKEN_REQUESTS_PER_S, 1000))
    )
    by_address: RateLimiter = field(
        default_factory=lambda: RateLimiter(Rate(ADDRESS_REQUESTS_PER_S, 1000))
    )
    wrong_tokens: WrongTokenLimiter = field(default_factory=WrongTokenLimiter)

    def check_token(self, token_id: str, now: Millis) -> None:
        """Refuses a token that exceeds its rate limit."""
        if wait_ms := self.by_token.take(token_id, now):
            raise _rate_limited("this token", wait_ms)

    def check_address(self, address: str, now: Millis) -> None:
        """Refuses an address that exceeds its rate limit. This machine itself is not limited."""
        if address.startswith("127.") or address == "::1":
            return
        if wait_ms := self.by_address.take(address, now):
            raise _rate_limited("this address", wait_ms)


def address_group(address: str) -> str:
    """Returns the group of addresses that is counted as one: a /64 of IPv6, as one machine may have
    it."""
    if ":" not in address:
        return address
    try:
        whole = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if whole.is_loopback:
        return "::1"
    if whole.ipv4_mapped is not None:
        return str(whole.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(whole) >> 64 << 64, 64)))


def _rate_limited(who: str, wait_ms: float) -> ProblemError:
    detail = f"{who} sends more requests than the server's rate limit allows: slow down"
    return ProblemError(429, "rate_limited", detail, headers=retry_after(wait_ms))


class ClientConnection(Protocol):
    """Open connection of a client."""

    def close_now(self) -> None: ...

    def close_if_stalled(self) -> None: ...


class ConnectionLimit:
    """Limits open connections; beyond the limit, one that waits for its client gives way to a new
    one.

    A connection whose request is complete is served, however long that takes. One without (idle,
    half a head, half a body) is closed when a new one needs its place, the longest silent first. So
    clients that only hold connections open cannot keep others out.
    """

    def __init__(self, limit: int = CONNECTIONS_MAX) -> None:
        self.limit = limit
        self.evicted = 0
        """Connections closed for a new one, since the start."""
        self.refused = 0
        """New connections refused, because no other could be closed."""
        self._connections: dict[ClientConnection, None] = {}
        self._awaited: OrderedDict[ClientConnection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._connections)

    def admit(self, connection: ClientConnection) -> bool:
        """Accepts a new connection, if need be in place of another."""
        if len(self._connections) >= self.limit:
            if not self._awaited:
                self.refused += 1
                return False
            silent, _ = self._awaited.popitem(last=False)
            # Before `remove` is called for it: several may connect in the meantime.
            del self._connections[silent]
            self.evicted += 1
            silent.close_now()
        self._connections[connection] = None
        self._awaited[connection] = None
        return True

    def wait_for(self, connection: ClientConnection) -> None:
        """Notes that the server waits for the client's next request."""
        if connection in self._connections:
            self._awaited[connection] = None
            self._awaited.move_to_end(connection)

    def note_data(self, connection: ClientConnection) -> None:
        """Notes that the client sent part of a request."""
        if connection in self._awaited:
            self._awaited.move_to_end(connection)

    def note_request(self, connection: ClientConnection) -> None:
        """Notes that a request is complete and the server has to answer."""
        self._awaited.pop(connection, None)

    def remove(self, connection: ClientConnection) -> None:
        self._connections.pop(connection, None)
        self._awaited.pop(connection, None)

    def close_stalled(self) -> None:
        """Closes connections whose clients do not read their answers."""
        for connection in list(self._connections):
            connection.close_if_stalled()


class RequestBytes:
    """Counts the bytes of one request's body and long answer against the budget of all."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._budget.give_back(self.size)

    def add(self, size: int) -> None:
        """Counts more bytes, or refuses them: then none of them is counted."""
        self._budget.take(size)
        self.size += size

    def counted(self, receive: Receive) -> Receive:
        """Returns a `receive` that counts the body as it arrives, whatever length the client
        declared."""

        async def counting() -> Message:
            message = await receive()
            if body := message.get("body"):
                self.add(len(body))
            return message

        return counting

    async def deliver(self, response: Response, send: Send, piece_bytes: int) -> None:
        """Sends a long answer piece by piece, so that it is counted until the client has read
        it."""
        body = bytes(response.body)
        head = {"type": "http.response.start", "status": response.status_code}
        await send({**head, "headers": response.raw_headers})
        for traceback in range(0, len(body), piece_bytes):
            piece = body[traceback : traceback + piece_bytes]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class BodyBudget:
    """Budget of memory that request bodies and long answers of all clients share."""

    def __init__(self, limit: int = BODY_BUDGET_BYTES) -> None:
        self._limit = limit
        self._held = 0

    def take(self, size: int) -> None:
        """Refuses what exceeds the budget at the moment; a single request never does."""
        if self._held and self._held + size > self._limit:
            detail = "too many large requests or answers at once: try again later"
            # The rest of a body is not read, so the connection cannot be used again.
            headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
            raise ProblemError(429, "busy", detail, headers=headers)
        self._held += size

    def give_back(self, size: int) -> None:
        self._held -= size

    def for_request(self) -> RequestBytes:
        """Returns a counter for one request, which gives all back at the end."""
        return RequestBytes(self)
