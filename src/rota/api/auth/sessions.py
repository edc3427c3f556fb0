"""Browser sessions: a signed cookie that stands for one token, valid on every server of a cell."""

from __future__ import annotations

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

from rota.api.auth.token_cache import TokenCache, token_digest
from rota.api.limits import SESSION_MS, SIGN_IN_CODES_MAX
from rota.core.model import Instant
from rota.store.tokens import Token


class SignInCodes:
    """Codes of sign-in links; each signs one browser in, once, with the token it was issued for."""

    def __init__(self) -> None:
        self._token_ids: dict[bytes, str] = {}

    def issue(self, token_id: str) -> str:
        """Returns a new code; the oldest unused one is dropped if there are many."""
        code = secrets.token_urlsafe(24)
        self._token_ids[token_digest(code)] = token_id
        if len(self._token_ids) > SIGN_IN_CODES_MAX:
            del self._token_ids[next(iter(self._token_ids))]
        return code

    def redeem(self, code: str) -> str | None:
        """Returns the id of the code's token, once per code."""
        return self._token_ids.pop(token_digest(code), None)


def open_session(tokens: TokenCache, token: Token, now: Instant) -> str:
    """Makes a cookie's value: token, end and signature. It ends with the token at the latest."""
    ends = now + SESSION_MS if token.expires_at is None else min(now + SESSION_MS, token.expires_at)
    text = f"{token.id}.{ends}"
    return f"{text}.{_sign(tokens, token, text)}"


def read_session(tokens: TokenCache, value: str, now: Instant) -> Token | None:
    """Returns the token of a session, if its signature is valid and neither has ended."""
    text, _, signature = value.rpartition(".")
    token_id, _, ends = text.rpartition(".")
    token = tokens.by_id(token_id)
    if token is None or not token.is_live(now):
        return None
    signed = _sign(tokens, token, text)
    if not hmac.compare_digest(signed.encode(), signature.encode("utf-8", "surrogateescape")):
        return None
    return token if int(ends) > now else None


def _sign(tokens: TokenCache, token: Token, text: str) -> str:
    # The key contains the token's digest, so that another token with the same id cannot revive it.
    key = hmac.digest(tokens.secret, b"rota session\x00" + token.digest, "sha256")
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), "sha256").hexdigest()


def cookie_in(header: str, host: str) -> str | None:
    """Returns our cookie in a request's Cookie header."""
    try:
        morsel = SimpleCookie(header).get(cookie_name(host))
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def cookie_name(host: str) -> str:
    """Names the cookie by port, because browsers share cookies between the ports of a host."""
    return f"rota_session_{split_host(host)[1] or 80}"


def session_cookie(value: str, host: str, *, secure: bool) -> str:
    """Makes the Set-Cookie header that signs a browser in."""
    return (
        f"{cookie_name(host)}={value}; Path=/; Max-Age={SESSION_MS // 1000}; "
        f"HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    )


def ended_cookie(host: str) -> str:
    """Makes the Set-Cookie header that signs a browser out."""
    return f"{cookie_name(host)}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


def split_host(host: str) -> tuple[str, str]:
    """Splits a Host header into name and port; an IPv6 address without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name, port.lstrip(":")
    name, _, port = host.partition(":")
    return name, port
