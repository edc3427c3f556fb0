"""Fail-over: which of a cell's servers is asked next; the next one when one is away, the leader
where it is named.

No I/O and no clock: clients and workers say what happened. Every step gives the same result when
two threads that share a client take it at once for the same failure, so there is no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

AVOIDED_S = 30.0
"""A leader that was named but did not answer is not followed again for so long: a change of leaders
takes seconds, and until then the other servers forward."""
AVOIDED_S_MAX = 600.0
"""The same for one that never answers, such as an address inside another network."""
DOUBLINGS_MAX = 16
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """What a URL leads to; its path aside."""

    scheme: str
    host: str
    port: int


def origin_of(url: str) -> Origin | None:
    """None for what is not the address of a server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    return Origin(parts.scheme, parts.hostname.lower(), port or _PORTS[parts.scheme])


@dataclass(slots=True)
class _Failure:
    """A server did not answer, so many times in a row."""

    times: int
    until_s: float
    """Until then nobody is sent there by a hint."""


class Servers:
    """The given servers of one cell, in turn, and perhaps a leader beside them."""

    def __init__(self, given: Sequence[str], *, follow: bool = True) -> None:
        self._given = list(dict.fromkeys(url.rstrip("/") for url in given))
        self._follow = follow
        self._selected = self._given[0]
        self._leader: str | None = None
        """Followed though it is not among the given."""
        self._failures: dict[str, _Failure] = {}

    @property
    def current(self) -> str:
        """The one to ask."""
        return self._leader or self._selected

    @property
    def given_count(self) -> int:
        """How many were given."""
        return len(self._given)

    def mark_unreachable(self, server: str, now_s: float) -> None:
        """It could not be reached, or did not answer in time: the next, and no hint leads back."""
        fault = self._failures.get(server)
        times = 1 if fault is None else fault.times + 1
        avoided_s = AVOIDED_S * 2.0 ** min(times - 1, DOUBLINGS_MAX)
        self._failures[server] = _Failure(times, now_s + min(avoided_s, AVOIDED_S_MAX))
        self.skip(server)

    def skip(self, server: str) -> None:
        """It answered that it cannot help now: the next."""
        # Calls run side by side: whoever comes late must not skip the one that is asked by now.
        if server == self._leader:
            self._leader = None
        elif server == self._selected and self._leader is None:
            place = self._given.index(server)
            self._selected = self._given[(place + 1) % len(self._given)]

    def heard(self, server: str, hint: str | None, now_s: float) -> None:
        """It answered, and perhaps named the leader."""
        self._failures.pop(server, None)
        if hint is None or server != self.current:
            return
        leader = self._known(hint) or (hint.rstrip("/") if self._may_follow(server, hint) else None)
        if leader is None or self._is_avoided(leader, now_s):
            return
        if leader in self._given:
            self._selected, self._leader = leader, None
        else:
            self._leader = leader

    def _known(self, hint: str) -> str | None:
        """The given server that a hint means."""
        wanted = origin_of(hint)
        if wanted is None:
            return None
        return next((url for url in self._given if origin_of(url) == wanted), None)

    def _may_follow(self, server: str, hint: str) -> bool:
        """The token goes where it leads, so never from a protected connection to an open one."""
        asked, wanted = origin_of(server), origin_of(hint)
        if not self._follow or wanted is None:
            return False
        return wanted.scheme == "https" or (asked is not None and asked.scheme == "http")

    def _is_avoided(self, leader: str, now_s: float) -> bool:
        fault = self._failures.get(leader)
        return fault is not None and now_s < fault.until_s
