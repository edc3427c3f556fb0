"""Authentication of requests: bearer tokens, browser sessions, and checks of Host, Origin and site.

Each operation's permission says what an authenticated caller may do (`roles.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.api.auth.forwarded import read_forwarded
from rota.api.auth.roles import ANYBODY, Caller, set_caller
from rota.api.auth.sessions import SignInCodes, cookie_in, read_session, split_host
from rota.api.auth.token_cache import TokenCache, caller_from
from rota.api.problems import respond, retry_after
from rota.api.throttling import Throttle, address_group
from rota.engine.ports import Clock
from rota.store.tokens import Token
from rota.wire.problems import ProblemError

log = structlog.get_logger(__name__)

OPEN_PATHS = ("/", "/docs", "/openapi.json", "/healthz", "/readyz")
OPEN_PREFIXES = ("/static/", "/ui/")
"""Files and addresses of the dashboard; they contain nothing about jobs."""
SIGN_OUT = ("DELETE", "/session")
"""Open too: a browser whose session has ended can still sign out."""
WEBHOOK_PREFIX = "/hooks/"
"""Webhooks are authenticated by their signature instead."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
CSP = (
    b"default-src 'self'; object-src 'none'; base-uri 'none'; "
    b"form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", CSP),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")


@dataclass(frozen=True, kw_only=True)
class Access:
    """Access settings: known tokens, host names of this server without ports, limits."""

    tokens: TokenCache
    no_auth: bool = False
    hosts: Sequence[str] = LOOPBACK_HOSTS
    secure_cookies: bool = False
    """Set where clients reach the server by HTTPS."""
    sign_in_codes: SignInCodes = field(default_factory=SignInCodes)
    throttle: Throttle = field(default_factory=Throttle)

    async def ended(self, caller: Caller) -> None:
        """Returns when the caller's token is no longer valid."""
        while self.no_auth or self.tokens.is_live(caller.token_id):
            await self.tokens.next_refresh()


class _UnknownTokenError(Exception):
    """Token that this server does not know yet."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token


class Authenticator:
    """Authenticates each request before anything else; each operation then checks its
    permission."""

    def __init__(self, app: ASGIApp, access: Access, clock: Clock) -> None:
        self._app = app
        self._access = access
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes an authenticated request on, or refuses it; adds the security headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = headers = list(message["headers"])
                _add_security_headers(headers)
            await send(message)

        try:
            try:
                self._admit(scope)
            except _UnknownTokenError as unknown:
                await self._refresh_tokens(unknown.token)
                self._admit(scope)
        except ProblemError as error:
            await respond(error)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    async def _refresh_tokens(self, token: str) -> None:
        """Loads tokens again: one that was made on another server a moment ago is accepted."""
        await self._access.tokens.refresh_soon()
        if self._access.tokens.find(token) is None:
            raise _unauthenticated("this token is unknown")

    def _admit(self, scope: Scope) -> None:
        headers = _headers_of(scope)
        self._check_host(headers.get("host"))
        forwarded = read_forwarded(scope, self._access.tokens.secret)
        if forwarded is not None and forwarded.remote:
            scope["client"] = (forwarded.remote, 0)
        self._access.throttle.check_address(address_group(remote_of(scope)), self._clock.steady())
        by_browser = False
        if not _is_open(scope):
            caller = self._identify(scope, headers)
            set_caller(scope, caller)
            by_browser = caller.by_browser
        _check_origin(headers)
        if by_browser or scope["method"] not in SAFE_METHODS:
            _check_site(headers)

    def _check_host(self, host: str | None) -> None:
        name = split_host(host)[0] if host else ""
        if name not in self._access.hosts:
            known = ", ".join(self._access.hosts)
            detail = f"this server does not go by the name {name[:100]!r}; it goes by {known}"
            raise ProblemError(421, "wrong_host", detail)

    def _identify(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        if self._access.no_auth:
            client = scope.get("client")
            if client is not None and not _is_loopback(client[0]):
                detail = "this server runs without access control and serves loopback only"
                raise ProblemError(403, "loopback_only", detail)
            return ANYBODY
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if text:
            token = text.strip()
            return caller_from(self._bearer(scope, scheme, token), token)
        value = cookie_in(headers.get("cookie", ""), headers["host"])
        session = value and read_session(self._access.tokens, value, self._clock.now())
        if not value or not session:
            raise _unauthenticated("this call needs a token")
        return caller_from(session, value, by_browser=True)

    def _bearer(self, scope: Scope, scheme: str, text: str) -> Token:
        if scheme.lower() != "bearer":
            raise _unauthenticated("this call needs a token")
        found = self._access.tokens.find(text)
        if found is None:
            self._count_wrong_token(remote_of(scope))
            raise _UnknownTokenError(text)
        now = self._clock.now()
        if not found.is_live(now):
            raise _unauthenticated(_why_token_ended(found))
        return found

    def _count_wrong_token(self, remote: str) -> None:
        """Makes an address wait that keeps sending unknown tokens; known tokens are always
        accepted.

        Nobody guesses 256 bits, so this only saves work and log lines; somebody else behind the
        same address, with a valid token, must not be locked out.
        """
        count, wait_ms = self._access.throttle.wrong_tokens.note(
            address_group(remote), self._clock.steady()
        )
        if not wait_ms:
            return
        if count == self._access.throttle.wrong_tokens.free + 1:
            log.warning("many wrong tokens", remote=remote, count=count)
        detail = f"{count} wrong tokens came from this address: wait before you try again"
        raise ProblemError(429, "too_many_tries", detail, headers=retry_after(wait_ms))


def remote_of(scope: Scope) -> str:
    """Returns the address a request came from."""
    client = scope.get("client")
    return "" if client is None else str(client[0])


def _is_open(scope: Scope) -> bool:
    path: str = scope["path"]
    return (
        path in OPEN_PATHS
        or path.startswith(OPEN_PREFIXES)
        or (scope["method"] == "POST" and path.startswith(WEBHOOK_PREFIX))
        or (scope["method"], path) in (SIGN_OUT, ("OPTIONS", "/session"))
    )


def _add_security_headers(headers: list[tuple[bytes, bytes]]) -> None:
    headers.extend(SECURITY_HEADERS)
    if all(name != b"cache-control" for name, _ in headers):
        headers.append(NO_STORE)


def _why_token_ended(token: Token) -> str:
    """Says why a token is no longer valid; the holder of the token may know."""
    if token.revoked_at is not None:
        return f"the token {token.name!r} was revoked"
    return f"the token {token.name!r} has expired"


def _unauthenticated(problem: str) -> ProblemError:
    detail = (
        f"{problem}: send `Authorization: Bearer TOKEN`. `rota tokens create` makes one, and the "
        "first start of `rota up` wrote one to the file `token` in its data folder; a browser "
        "signs in with the link `rota up` prints"
    )
    return ProblemError(401, "unauthenticated", detail, headers={"WWW-Authenticate": "Bearer"})


def _headers_of(scope: Scope) -> Mapping[str, str]:
    """Returns headers by lower-case name; of a repeated one, the first."""
    pairs = reversed(scope["headers"])
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}


def _check_origin(headers: Mapping[str, str]) -> None:
    """Refuses requests of other web pages: only our own may read or write."""
    origin = headers.get("origin")
    # Not parsed as a URL, which fails for some values: an origin is one scheme and one host.
    if origin is not None and origin.partition("://")[2].lower() != headers["host"].lower():
        raise _cross_site()


def _check_site(headers: Mapping[str, str]) -> None:
    """Refuses requests of other web pages that come without an Origin header.

    A link from another page (`none` or navigation) is no request of that page and may open ours.
    """
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise _cross_site()


def _cross_site() -> ProblemError:
    return ProblemError(403, "cross_site", "requests from other web pages are refused")


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith(("127.", "::ffff:127."))
