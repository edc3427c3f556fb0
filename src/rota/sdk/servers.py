"""Failover: selects the server of a cell to ask next: the next one if one is away, the leader if it
is named.

No I/O and no clock: clients and workers report what happened. Every step gives the same result when
two threads that share a client take it at once for the same failure, so there is no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

AVOIDED_S = 30.0
"""How long hints to a leader that did not answer are ignored: a change of leader takes seconds, and
until then the other servers forward.
"""
AVOIDED_S_MAX = 600.0
"""The longest time that hints are ignored, for a leader that never answers, such as an address in
another network.
"""
DOUBLINGS_MAX = 16
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a URL."""

    scheme: str
    host: str
    port: int


def origin_of(url: str) -> Origin | None:
    """Parses the origin of a server's address; None if it is not one."""
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
    """Number of times in a row that a server did not answer."""

    times: int
    until_s: float
    """Until then hints to this server are ignored."""


class Servers:
    """List of the given servers of a cell, asked in turn, and perhaps a leader beside them."""

    def __init__(self, given: Sequence[str], *, follow: bool = True) -> None:
        self._given = list(dict.fromkeys(url.rstrip("/") for url in given))
        self._follow = follow
        self._selected = self._given[0]
        self._leader: str | None = None
        """The leader that is asked although it is not among the given servers."""
        self._failures: dict[str, _Failure] = {}

    @property
    def current(self) -> str:
        """The server to ask."""
        return self._leader or self._selected

    @property
    def given_count(self) -> int:
        return len(self._given)

    def mark_unreachable(self, server: str, now_s: float) -> None:
        """Selects the next server, and ignores hints to this one, which could not be reached in
        time.
        """
        fault = self._failures.get(server)
        times = 1 if fault is None else fault.times + 1
        avoided_s = AVOIDED_S * 2.0 ** min(times - 1, DOUBLINGS_MAX)
        self._failures[server] = _Failure(times, now_s + min(avoided_s, AVOIDED_S_MAX))
        self.skip(server)

    def skip(self, server: str) -> None:
        """Selects the next server, because this one answered that it cannot help now."""
        # Calls run in parallel: a late failure must not skip the server that is selected by now.
        if server == self._leader:
            self._leader = None
        elif server == self._selected and self._leader is None:
            index = self._given.index(server)
            self._selected = self._given[(index + 1) % len(self._given)]

    def heard(self, server: str, hint: str | None, now_s: float) -> None:
        """Notes an answer, and follows its hint if it names the leader."""
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
        """The given server that a hint names."""
        wanted = origin_of(hint)
        if wanted is None:
            return None
        return next((url for url in self._given if origin_of(url) == wanted), None)

    def _may_follow(self, server: str, hint: str) -> bool:
        """Whether to follow a hint: the token goes there too, so never from https to http."""
        asked, wanted = origin_of(server), origin_of(hint)
        if not self._follow or wanted is None:
            return False
        return wanted.scheme == "https" or (asked is not None and asked.scheme == "http")

    def _is_avoided(self, leader: str, now_s: float) -> bool:
        fault = self._failures.get(leader)
        return fault is not None and now_s < fault.until_s
