"""Tokens that a cell did not know a moment ago, so that it need not be asked again and again.

A tenant's token is known in its own cell only, and merged answers ask all of them: without this,
every list would be a failed try at each of the others, and those are throttled.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Generic, TypeVar

from rota.gateway.limits import UNKNOWN_TOKEN_S, UNKNOWN_TOKENS_MAX

T = TypeVar("T")


class TokenNegativeCache(Generic[T]):
    """What each cell answered to those it does not know."""

    def __init__(self) -> None:
        self._said: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def recall(self, cell: str, headers: Iterable[tuple[str, str]]) -> T | None:
        """The refusal of the last minute, if there was one."""
        ends, said = self._said.get(_cache_key(cell, headers), (0.0, None))
        return said if asyncio.get_running_loop().time() < ends else None

    def note(self, cell: str, headers: Iterable[tuple[str, str]], said: T) -> None:
        """Remembers one; the oldest is forgotten first."""
        key = _cache_key(cell, headers)
        self._said[key] = (asyncio.get_running_loop().time() + UNKNOWN_TOKEN_S, said)
        self._said.move_to_end(key)
        if len(self._said) > UNKNOWN_TOKENS_MAX:
            self._said.popitem(last=False)


def _cache_key(cell: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Of what the cell went by; the token itself is not kept."""
    shown = [pair for pair in headers if pair[0] in ("authorization", "cookie")]
    return blake2b(repr((cell, shown)).encode(), digest_size=16).digest()
