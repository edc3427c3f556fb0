"""The headers between servers of a cell: who passed a request on, for which client, who leads.

The first one is signed with the cell's shared secret, so that the leader can count and note the
client's own address instead of that of the server in between, and nobody else can choose it.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.types import Scope

from rota.api.limits import INSTANT_MAX
from rota.api.parsing.request import header
from rota.core.model import Instant

FORWARDED = b"rota-forwarded"
"""In a request: a server of the cell sends it. In an answer: `refused`, for it does not lead."""
REFUSED = "refused"
MINTED = b"rota-minted"
"""In a request of a server of the cell: of which time the ids are that it would give."""
LEADER = b"rota-leader"
"""In an answer: where to ask next time, without the way round."""


class Forwarded(NamedTuple):
    """Where a request came from before it came to us."""

    node: str
    remote: str


def sign(secret: bytes, node: str, remote: str) -> str:
    """The header's value."""
    text = f"{quote(node, safe='')} {quote(remote, safe=':')}"
    return f"{text} {_signature(secret, text)}"


def is_forwarded(scope: Scope) -> bool:
    """Whether it claims to be passed on, truly or not: it is not passed on again."""
    return header(scope, FORWARDED) is not None


def note_minted(scope: Scope, at: Instant) -> None:
    """From now on the ids of this request are of that time, here as at the leader."""
    scope["rota.minted"] = at


def minted_at(scope: Scope, secret: bytes) -> Instant | None:
    """Of which time its ids are, by the word of a server of this cell or our own."""
    noted: Instant | None = scope.get("rota.minted")
    if noted is not None:
        return noted
    value = header(scope, MINTED)
    if value is None or not value.isdigit() or read_forwarded(scope, secret) is None:
        return None
    return min(int(value), INSTANT_MAX)


def read_forwarded(scope: Scope, secret: bytes) -> Forwarded | None:
    """What a server of this cell says; None if none does."""
    value = header(scope, FORWARDED)
    if value is None or not secret:
        return None
    text, _, signature = value.decode("latin-1").rpartition(" ")
    node, _, remote = text.partition(" ")
    signed = _signature(secret, text)
    if not hmac.compare_digest(signed.encode(), signature.encode("latin-1")):
        return None
    return Forwarded(unquote(node), unquote(remote))


def _signature(secret: bytes, text: str) -> str:
    key = hmac.digest(secret, b"rota forwarded", "sha256")
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), "sha256").hexdigest()
