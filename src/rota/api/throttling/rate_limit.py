"""Rate limits: a token bucket (GCRA) per token and address; growing waits after wrong tokens."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.api.limits import (
    ADDRESS_REQUESTS_PER_S,
    RATE_KEYS_MAX,
    TOKEN_REQUESTS_PER_S,
    WRONG_TOKENS_ADDRESSES_MAX,
    WRONG_TOKENS_FREE,
    WRONG_TOKENS_QUIET_MS,
    WRONG_TOKENS_WAIT_MS,
    WRONG_TOKENS_WAIT_MS_MAX,
)
from rota.api.problems import retry_after
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
