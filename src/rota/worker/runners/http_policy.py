"""Policy for `http` tasks: which addresses they may reach, checked at each connection.

A job names a URL, and whoever may submit jobs must not reach through a worker what only the worker
can see: its own machine, its network, a cloud's metadata service. Looking at the name, or at what
it resolves to beforehand, would not do: the next look-up may answer otherwise. So every socket is
checked when it is made for its address, after the name has been resolved.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, TypeAlias

import aiohttp

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_UNICAST6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class ForbiddenAddressError(OSError):
    """A name led to an address that jobs may not reach.

    Its number survives where the failures of several addresses of one name become one error.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(
            errno.EPERM,
            f"{address} is a private address, which jobs may not reach; the worker's option "
            f"--http-allow {address} would let them",
        )


def refusal_in(error: Exception) -> str | None:
    """What the gate said, if that is why a connection failed."""
    inner = getattr(error, "os_error", error)
    if isinstance(inner, OSError) and inner.errno == errno.EPERM:
        return inner.strerror or str(inner)
    return None


def is_public(address: Address) -> bool:
    """Whether anybody on the Internet could reach it; an address within another one counts."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if inner is not None:
        return is_public(inner)
    return address in _UNICAST6 and address.is_global


class AddressPolicy:
    """What the operator allows beyond public addresses: names, addresses and networks."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks: list[Network] = []
        for text in allowed:
            try:
                self._networks.append(ipaddress.ip_network(text.strip("[]"), strict=False))
            except ValueError:
                self._names.add(_plain_name(text))

    def trusts(self, host: str) -> bool:
        """Whether this name may lead anywhere."""
        return _plain_name(host) in self._names

    def admits(self, address: Address) -> bool:
        """Whether this address may be reached, whatever it was called."""
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        meant = mapped or address
        if is_public(meant):
            return True
        return any(meant.version == one.version and meant in one for one in self._networks)

    def make_socket(self, info: Any) -> socket.socket:
        """A socket for an address that is about to be connected to; raises ForbiddenAddressError.

        `info` is what getaddrinfo answers: family, type, protocol, name, address.
        """
        family, kind, protocol, _, place = info
        address = ipaddress.ip_address(place[0])
        if not self.admits(address):
            raise ForbiddenAddressError(address)
        return socket.socket(family, kind, protocol)


def _plain_name(host: str) -> str:
    return host.strip().rstrip(".").lower()


class HttpSessions:
    """HTTP connections of this worker's jobs; made when the first one needs them."""

    def __init__(self, gate: AddressPolicy) -> None:
        self._policy = gate
        self._open: dict[bool, aiohttp.ClientSession] = {}

    def for_host(self, host: str) -> aiohttp.ClientSession:
        """Names that the operator trusts have connections of their own, which nobody checks."""
        trusted = self._policy.trusts(host)
        session = self._open.get(trusted)
        if session is None:
            connector = aiohttp.TCPConnector(
                limit=0, socket_factory=None if trusted else self._policy.make_socket
            )
            session = self._open[trusted] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),  # one job's cookies are not another's
                auto_decompress=False,  # a small answer must not unfold into gigabytes
            )
        return session

    async def close(self) -> None:
        """Lets go of all connections."""
        for session in self._open.values():
            await session.close()
        self._open.clear()
