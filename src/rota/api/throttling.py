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
    """So many in each length of time; as many may come at once."""

    amount: int
    per_ms: int


class RateLimiter:
    """One bucket a key. Each is a single number: the moment until which it is used up (GCRA)."""

    def __init__(self, rate: Rate | None, keys_max: int = RATE_KEYS_MAX) -> None:
        self._rate = rate
        self._keys_max = keys_max
        self._used_until: OrderedDict[str, float] = OrderedDict()

    def take(self, key: str, now: Millis) -> float:
        """Takes one; answers 0, or how many milliseconds to wait before there is one."""
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
    """Addresses that sent unknown tokens: a few are free, then each makes the next wait longer."""

    def __init__(self, free: int = WRONG_TOKENS_FREE) -> None:
        self.free = free
        self._by_address: OrderedDict[str, _WrongTokens] = OrderedDict()

    def note(self, address: str, now: Millis) -> tuple[int, Millis]:
        """Counts one; answers how many there were, and how long to wait before the next.

        One that comes within the wait is not looked at, so it does not make the wait longer.
        """
        known = self._by_address.get(address, _WrongTokens(0, now, now))
        if now < known.closed_until:
            return known.number, known.closed_until - now
        number = 1 if now - known.last > WRONG_TOKENS_QUIET_MS else known.number + 1
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
    """All that holds a caller back."""

    by_token: RateLimiter = field(
        default_factory=lambda: RateLimiter(Rate(TOKEN_REQUESTS_PER_S, 1000))
    )
    by_address: RateLimiter = field(
        default_factory=lambda: RateLimiter(Rate(ADDRESS_REQUESTS_PER_S, 1000))
    )
    wrong_tokens: WrongTokenLimiter = field(default_factory=WrongTokenLimiter)

    def check_token(self, token_id: str, now: Millis) -> None:
        """Refuses a token that asks too often."""
        if wait_ms := self.by_token.take(token_id, now):
            raise _rate_limited("this token", wait_ms)

    def check_address(self, address: str, now: Millis) -> None:
        """Refuses an address that asks too often. This machine itself is not counted."""
        if address.startswith("127.") or address == "::1":
            return
        if wait_ms := self.by_address.take(address, now):
            raise _rate_limited("this address", wait_ms)


def address_group(address: str) -> str:
    """What counts as one: a whole /64 of IPv6, for one machine may have all of it."""
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
    detail = f"{who} asks more often than the server's rate limit allows: slow down"
    return ProblemError(429, "rate_limited", detail, headers=retry_after(wait_ms))


class ClientConnection(Protocol):
    """One connection."""

    def close_now(self) -> None:
        """Closes it at once."""
        ...

    def close_if_stalled(self) -> None:
        """Closes it if its client takes nothing of what it asked for."""
        ...


class ConnectionLimit:
    """All connections of a server, and among them those whose next word it waits for.

    Whoever has asked something whole is served, however long that takes. Whoever has not, be it an
    idle connection, half a head or half a body, gives way to a newcomer once the house is full: the
    one first that has been silent for longest. So those who only hold connections cannot keep
    anybody out who has something to say.
    """

    def __init__(self, limit: int = CONNECTIONS_MAX) -> None:
        self.limit = limit
        self.evicted = 0
        """Closed for a newcomer, since the start."""
        self.refused = 0
        """Newcomers for whom nobody could go."""
        self._connections: dict[ClientConnection, None] = {}
        self._awaited: OrderedDict[ClientConnection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._connections)

    def admit(self, guest: ClientConnection) -> bool:
        """Lets a newcomer in, if need be in the place of another."""
        if len(self._connections) >= self.limit:
            if not self._awaited:
                self.refused += 1
                return False
            silent, _ = self._awaited.popitem(last=False)
            # Before its end is reported: several may come in the meantime.
            del self._connections[silent]
            self.evicted += 1
            silent.close_now()
        self._connections[guest] = None
        self._awaited[guest] = None
        return True

    def wait_for(self, guest: ClientConnection) -> None:
        """From now on it is the client's turn."""
        if guest in self._connections:
            self._awaited[guest] = None
            self._awaited.move_to_end(guest)

    def note_data(self, guest: ClientConnection) -> None:
        """It has said something, if not all."""
        if guest in self._awaited:
            self._awaited.move_to_end(guest)

    def note_request(self, guest: ClientConnection) -> None:
        """It has said all it had to: now it is the server's turn."""
        self._awaited.pop(guest, None)

    def remove(self, guest: ClientConnection) -> None:
        """It has gone."""
        self._connections.pop(guest, None)
        self._awaited.pop(guest, None)

    def close_stalled(self) -> None:
        """Looks after clients that do not read."""
        for guest in list(self._connections):
            guest.close_if_stalled()


class RequestBytes:
    """What one request has brought and what its answer still has to take along."""

    def __init__(self, hold: BodyBudget) -> None:
        self._budget = hold
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._budget.give_back(self.size)

    def add(self, size: int) -> None:
        """Counts more, or refuses it: then nothing of it is counted."""
        self._budget.take(size)
        self.size += size

    def counted(self, receive: Receive) -> Receive:
        """The same request; its body is counted as it comes, whatever its length is said to be."""

        async def counting() -> Message:
            message = await receive()
            if body := message.get("body"):
                self.add(len(body))
            return message

        return counting

    async def deliver(self, response: Response, send: Send, piece_bytes: int) -> None:
        """Sends a long answer piece by piece, so that it counts for as long as nobody takes it."""
        body = bytes(response.body)
        head = {"type": "http.response.start", "status": response.status_code}
        await send({**head, "headers": response.raw_headers})
        for at in range(0, len(body), piece_bytes):
            piece = body[at : at + piece_bytes]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class BodyBudget:
    """All that is carried at once."""

    def __init__(self, limit: int = BODY_BUDGET_BYTES) -> None:
        self._limit = limit
        self._held = 0

    def take(self, size: int) -> None:
        """Refuses what is too much at the moment; one alone is never too much."""
        if self._held and self._held + size > self._limit:
            detail = "too many large requests or answers at once: ask again later"
            # The rest of a body is not read, so the connection cannot be used again.
            headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
            raise ProblemError(429, "busy", detail, headers=headers)
        self._held += size

    def give_back(self, size: int) -> None:
        """What was taken before."""
        self._held -= size

    def for_request(self) -> RequestBytes:
        """One request's part, given back when all is over."""
        return RequestBytes(self)
