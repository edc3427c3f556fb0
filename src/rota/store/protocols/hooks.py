"""Webhook endpoints and their secrets. They stay out of the journal, which many may read.

A signature can only be checked with the secret itself, so it is kept as it is, in a table that only
this module's readers ask for; nothing ever shows it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rota.core.model import Instant, Millis


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint: how its messages are signed, and what kind of events they are."""

    name: str
    scheme: str
    """`github`, `stripe` or `rota`."""
    secrets: tuple[str, ...]
    """Any of them signs: a new one can be told to the sender before the old one goes."""
    type: str
    """The type of its events, or how it begins where the sender names kinds of its own."""
    tolerance_ms: Millis
    """How old a signature may be, where it says when it was made."""
    created_at: Instant
    updated_at: Instant

    def __repr__(self) -> str:
        return f"Hook({self.name!r}, {self.scheme!r}, <{len(self.secrets)} secrets>)"


class Hooks(Protocol):
    """Webhook endpoints; every call goes to the store, so all servers of a cell agree."""

    async def put(self, hook: Hook) -> None:
        """As given, in place of one of the same name."""
        ...

    async def get(self, name: str) -> Hook | None:
        """One of them."""
        ...

    async def list(self) -> Sequence[Hook]:
        """All, by name."""
        ...

    async def drop(self, name: str) -> bool:
        """Removes one; False: there was none."""
        ...


_encode_hook_body = msgspec.msgpack.Encoder().encode
_decode_hook_body = msgspec.msgpack.Decoder(Hook).decode


def encode_hook(hook: Hook) -> bytes:
    """For the table."""
    return _encode_hook_body(hook)


def decode_hook(body: bytes) -> Hook:
    """From the table."""
    return _decode_hook_body(body)
