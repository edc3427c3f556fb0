"""The first thing a request meets at a gateway: is it meant for us, and not sent by another page?

Who asks is for the cells to find out: they get the token as it came.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.gateway.problems import respond
from rota.wire.problems import ProblemError

_SECURITY_HEADERS = (
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Added where the cell's answer does not bring them."""


class HostCheck:
    """Checks Host and Origin, as a server does; a cell behind us sees only our own name."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._hosts = tuple(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the request through, or says why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                present = [name.lower() for name, _ in headers]
                headers += [pair for pair in _SECURITY_HEADERS if pair[0] not in present]
                message["headers"] = headers
            await send(message)

        try:
            self._admit(Headers(scope=scope))
        except ProblemError as error:
            await respond(error)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _admit(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if _name(host) not in self._hosts:
            known = ", ".join(self._hosts)
            detail = f"this gateway does not go by the name {host[:100]!r}; it goes by {known}"
            raise ProblemError(421, "wrong_host", detail)
        origin = headers.get("origin")
        # Not taken apart as an address, for not every word can be: it is one scheme and one host.
        same = origin is None or origin.partition("://")[2].lower() == host.lower()
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") or not same:
            raise ProblemError(403, "cross_site", "requests from other web pages are refused")


def _name(host: str) -> str:
    """Without the port; an IPv6 address without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
