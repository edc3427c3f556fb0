"""Policy for `http` tasks: which addresses they may reach, checked at each connection.

A job names a URL, and whoever may submit jobs must not reach through a worker what only the worker
can reach: its own machine, its network, a cloud's metadata service. Checking the name, or what it
resolves to beforehand, is not enough: the next look-up may answer otherwise. So every socket is
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
    """Raised when a name resolves to an address that jobs may not reach.

    It is found by its errno: that survives where the failures of several addresses of one name
    become one error.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(
            errno.EPERM,
            f"{address} is a private address, which jobs may not reach; the worker's option "
            f"--http-allow {address} would let them",
        )


def refusal_in(error: Exception) -> str | None:
    """Returns the policy's refusal, if that is why a connection failed."""
    inner = getattr(error, "os_error", error)
    if isinstance(inner, OSError) and inner.errno == errno.EPERM:
        return inner.strerror or str(inner)
    return None


def is_public(address: Address) -> bool:
    """Whether anybody on the Internet could reach it; an address embedded in another one counts."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if inner is not None:
        return is_public(inner)
    return address in _UNICAST6 and address.is_global


class AddressPolicy:
    """Allows public addresses, and the names, addresses and networks that the operator adds."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks: list[Network] = []
        for text in allowed:
            try:
                self._networks.append(ipaddress.ip_network(text.strip("[]"), strict=False))
            except ValueError:
                self._names.add(_plain_name(text))

    def trusts(self, host: str) -> bool:
        """Whether this name may resolve to any address."""
        return _plain_name(host) in self._names

    def admits(self, address: Address) -> bool:
        """Whether this address may be reached under any name."""
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        meant = mapped or address
        if is_public(meant):
            return True
        return any(meant.version == one.version and meant in one for one in self._networks)

    def make_socket(self, info: Any) -> socket.socket:
        """Makes a socket for an address to connect to; raises ForbiddenAddressError.

        `info` is what getaddrinfo returns: family, type, protocol, name, address.
        """
        family, kind, protocol, _, place = info
        address = ipaddress.ip_address(place[0])
        if not self.admits(address):
            raise ForbiddenAddressError(address)
        return socket.socket(family, kind, protocol)


def _plain_name(host: str) -> str:
    return host.strip().rstrip(".").lower()


class HttpSessions:
    """HTTP connections of this worker's jobs, opened when first needed."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._open: dict[bool, aiohttp.ClientSession] = {}

    def for_host(self, host: str) -> aiohttp.ClientSession:
        """Returns the session; names that the operator trusts share one whose addresses are not
        checked."""
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
        for session in self._open.values():
            await session.close()
        self._open.clear()
