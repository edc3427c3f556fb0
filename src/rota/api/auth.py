"""Who may come in: tokens, browser sessions, and the checks against other web pages."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.api.limits import SESSION_MS, SIGN_IN_CODES_MAX
from rota.api.problems import ProblemError, respond
from rota.core.model import Instant
from rota.engine.ports import Clock

OPEN_PATHS = ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/session")
OPEN_PREFIX = "/static/"
SIGNED_PREFIX = "/hooks/"
"""Whoever posts here shows who it is by a signature instead."""
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


def digest(token: str) -> bytes:
    """What is kept of a token. It has 256 random bits, so one round of hashing is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class SignInCodes:
    """Codes for the printed link; each signs one browser in, once."""

    def __init__(self) -> None:
        self._digests: list[bytes] = []

    def issue(self) -> str:
        """A new code; the oldest unused one is dropped when there are many."""
        code = secrets.token_urlsafe(24)
        self._digests = [*self._digests, digest(code)][-SIGN_IN_CODES_MAX:]
        return code

    def redeem(self, code: str) -> bool:
        """True once for each code that was issued."""
        given = digest(code)
        for known in self._digests:
            if hmac.compare_digest(known, given):
                self._digests.remove(known)
                return True
        return False


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who is let in. `hosts` are the names this server goes by, without ports."""

    token_digests: Sequence[bytes] = ()
    no_auth: bool = False
    hosts: Sequence[str] = LOOPBACK_HOSTS
    secure_cookies: bool = False
    """Set where the server is reached by HTTPS."""
    codes: SignInCodes = field(default_factory=SignInCodes)

    def knows(self, token: str) -> bool:
        """Whether it is one of the tokens; takes the same time whichever it is."""
        given, known = digest(token), False
        for one in self.token_digests:
            known |= hmac.compare_digest(one, given)
        return known

    def open_session(self, now: Instant) -> str:
        """A cookie's value: when it ends, signed. It outlives restarts, but not the tokens."""
        ends = str(now + SESSION_MS)
        return f"{ends}.{self._sign(ends)}"

    def knows_session(self, value: str, now: Instant) -> bool:
        """Whether we signed it and it has not ended."""
        ends, _, signature = value.partition(".")
        if not hmac.compare_digest(self._sign(ends).encode(), signature.encode()):
            return False
        return int(ends) > now

    def _sign(self, text: str) -> str:
        secret = hashlib.sha256(b"rota session\x00" + b"".join(self.token_digests)).digest()
        return hmac.new(secret, text.encode("utf-8", "surrogateescape"), "sha256").hexdigest()


def cookie_name(host: str) -> str:
    """By port, because browsers share cookies between the ports of one host."""
    return f"rota_session_{_split_host(host)[1] or 80}"


def session_cookie(access: Access, host: str, now: Instant) -> str:
    """The Set-Cookie header that signs a browser in."""
    secure = "; Secure" if access.secure_cookies else ""
    value = access.open_session(now)
    return (
        f"{cookie_name(host)}={value}; Path=/; Max-Age={SESSION_MS // 1000}; "
        f"HttpOnly; SameSite=Strict{secure}"
    )


def ended_cookie(host: str) -> str:
    """The Set-Cookie header that signs it out."""
    return f"{cookie_name(host)}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


class Gate:
    """The first thing a request meets. It knows nothing of what lies behind."""

    def __init__(self, app: ASGIApp, access: Access, clock: Clock) -> None:
        self._app = app
        self._access = access
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the request through, or says why not; adds the headers browsers obey."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = headers = list(message["headers"])
                _guard(headers)
            await send(message)

        try:
            self._admit(scope)
        except ProblemError as error:
            await respond(error)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers.get("host"))
        path: str = scope["path"]
        is_open = path in OPEN_PATHS or path.startswith(OPEN_PREFIX)
        is_open = is_open or (path.startswith(SIGNED_PREFIX) and scope["method"] == "POST")
        by_browser = self._check_credentials(scope, headers) if not is_open else False
        if by_browser or scope["method"] not in SAFE_METHODS:
            _check_origin(headers)

    def _check_host(self, host: str | None) -> None:
        name = _split_host(host)[0] if host else ""
        if name not in self._access.hosts:
            known = ", ".join(self._access.hosts)
            detail = f"this server does not go by the name {name[:100]!r}; it goes by {known}"
            raise ProblemError(421, "wrong_host", detail)

    def _check_credentials(self, scope: Scope, headers: Headers) -> bool:
        """Whether the request rests on what a browser adds by itself."""
        if self._access.no_auth:
            client = scope.get("client")
            if client is not None and not _is_loopback(client[0]):
                detail = "this server runs without access control and serves loopback only"
                raise ProblemError(403, "loopback_only", detail)
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._access.knows(token.strip()):
            return False
        if not token and self._has_session(headers):
            return True
        raise _who_are_you(wrong=bool(token))

    def _has_session(self, headers: Headers) -> bool:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        morsel = cookies.get(cookie_name(headers["host"]))
        return morsel is not None and self._access.knows_session(morsel.value, self._clock.now())


def _guard(headers: list[tuple[bytes, bytes]]) -> None:
    headers.extend(SECURITY_HEADERS)
    if all(name != b"cache-control" for name, _ in headers):
        headers.append((b"cache-control", b"no-store"))


def _who_are_you(*, wrong: bool) -> ProblemError:
    said = "this token is not known here" if wrong else "this call needs a token"
    detail = (
        f"{said}: send `Authorization: Bearer TOKEN`. The first start wrote one to the file "
        "`token` in the server's data folder; a browser signs in with the link `rota up` prints"
    )
    return ProblemError(401, "unauthenticated", detail, headers={"WWW-Authenticate": "Bearer"})


def _check_origin(headers: Headers) -> None:
    """A browser says which page a request comes from; only our own may act or read."""
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    same = origin is None or urlsplit(origin).netloc.lower() == headers["host"].lower()
    if site not in ("same-origin", "none") or not same:
        raise ProblemError(403, "cross_site", "requests from other web pages are refused")


def _split_host(host: str) -> tuple[str, str]:
    """Name and port; an IPv6 address without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name, port.lstrip(":")
    name, _, port = host.partition(":")
    return name, port


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith(("127.", "::ffff:127."))
