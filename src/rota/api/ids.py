"""Mints ids for what comes from outside: rising UUIDv7 that contain the cell, keys and tokens."""

from __future__ import annotations

import hmac
import secrets
import string
import struct
from collections.abc import Callable
from hashlib import shake_256
from itertools import accumulate
from typing import TypeAlias

from rota.api.limits import KEY_TIME_MS
from rota.core.commands import Key
from rota.core.model import Instant
from rota.store.tokens import id_suffix
from rota.wire.formats import cell_tag

_TAIL_BITS = 62
"""Bits that a UUIDv7 leaves free beside time, version, variant and the twelve bits of the cell."""
_VARIANT = 0b10 << _TAIL_BITS
_STEP_BYTES = 5
"""Bytes of the random step between ids of one millisecond: they rise, yet cannot be guessed."""
_STEPS_AT_ONCE = 256
_TAIL_SAFE = (1 << _TAIL_BITS) - (_STEPS_AT_ONCE << 8 * _STEP_BYTES)
"""Below this, a full list of steps does not overflow the ids of one millisecond."""
TOKEN_PREFIX = "rota_"
_TOKEN_BITS = 256
_TOKEN_DIGITS = 43
"""Digits that 256 bits need."""
_DIGITS = string.digits + string.ascii_letters


RandomSource: TypeAlias = Callable[[int], bytes]
"""Returns as many random bytes as asked for, which nobody can guess."""
_OWN_KEY = "rota-"


class IdMint:
    """Mints ids that sort in the order they were made, so the newest job has the largest id."""

    def __init__(self, cell: str = "", random_bytes: RandomSource | None = None) -> None:
        self._tag = cell_tag(cell)
        self._random_bytes = random_bytes or secrets.token_bytes
        self._ms = 0
        self._tail = 0
        self._head = ""
        """Start of all ids of the current millisecond."""
        self._steps: list[int] = []

    def mint(self, now: Instant) -> str:
        """Returns a larger id than before, even if the clock stands still."""
        if now > self._ms:
            self._begin(now)
        else:
            self._tail += (self._steps or self._draw_steps()).pop()
            if self._tail >> _TAIL_BITS:
                self._begin(self._ms + 1)
        return self._head + (_VARIANT | self._tail).to_bytes(8, "big").hex("-", 6)

    def mint_many(self, now: Instant, count: int) -> list[str]:
        """Returns the ids that so many calls of `mint` would."""
        made: list[str] = []
        while len(made) < count:
            made.append(self.mint(now))
            if self._tail < _TAIL_SAFE:
                made += self._more(count - len(made))
        return made

    def _more(self, count: int) -> list[str]:
        """Returns up to `count` ids of the same millisecond, as many as there are steps for."""
        steps = [self._steps.pop() for _ in range(min(count, len(self._steps)))]
        numbers = list(accumulate(steps, initial=_VARIANT | self._tail))
        self._tail = numbers[-1] & ~_VARIANT
        head = self._head
        return [head + number.to_bytes(8, "big").hex("-", 6) for number in numbers[1:]]

    def _begin(self, ms: Instant) -> None:
        # The top bit starts clear, so that steps within a millisecond can rise.
        self._ms, self._tail = ms, int.from_bytes(self._random_bytes(8), "big") >> (65 - _TAIL_BITS)
        self._head = f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{self._tag}-"

    def _draw_steps(self) -> list[int]:
        """Draws random steps, for many ids with one system call."""
        random_bytes = self._random_bytes(_STEP_BYTES * _STEPS_AT_ONCE)
        # Padded to eight bytes each, so that one call reads them all as numbers.
        wide = bytearray(8 * _STEPS_AT_ONCE)
        for at in range(_STEP_BYTES):
            wide[8 - _STEP_BYTES + at :: 8] = random_bytes[at::_STEP_BYTES]
        self._steps = [1 + step for step in struct.unpack(f">{_STEPS_AT_ONCE}Q", wide)]
        return self._steps


class KeyedMint(IdMint):
    """Mints the ids of one request: every server makes the same ids of the same key and time.

    So a server that has no answer from the leader can accept a submission that the leader may have
    accepted already.
    """

    def __init__(self, cell: str, key: Key, at: Instant) -> None:
        self._at = at
        self._draws = 0
        self._seed = f"{len(key.key)} {key.key} {key.fingerprint}".encode()
        super().__init__(cell, self._of_key)

    def mint(self, now: Instant) -> str:
        """Returns the next id; it carries the time of the request, whenever it is made."""
        return super().mint(max(self._at, self._ms))

    def _of_key(self, count: int) -> bytes:
        self._draws += 1
        return shake_256(self._seed + self._draws.to_bytes(4, "big")).digest(count)


def key_time(key: str, now: Instant) -> Instant | None:
    """Returns when a key was made, if it is a UUIDv7 of just now, as our own clients send."""
    digits = key.replace("-", "")
    if len(key) != 36 or len(digits) != 32 or digits[12] != "7":
        return None
    try:
        made = int(digits[:12], 16)
    except ValueError:
        return None
    return made if abs(now - made) <= KEY_TIME_MS else None


def mint_key() -> str:
    """Returns an idempotency key for a request that came without one."""
    return f"{_OWN_KEY}{secrets.token_hex(16)}"


def determines_ids(key: str, now: Instant) -> bool:
    """Whether all servers that get this key make the same ids of it."""
    return key.startswith(_OWN_KEY) or key_time(key, now) is not None  # no client sends the former


def mint_token() -> str:
    """Returns a secret of 256 random bits; its prefix tells leak scanners that it is Rota's."""
    return _token_of(secrets.randbits(_TOKEN_BITS))


class TokenSeed:
    """Seed that an idempotency key gives for a token: the end of its id, and its secret text.

    The end of the id depends on the key alone, so that a repeat finds the first token. The text
    depends on the whole id, which begins with its time, so that no repeat makes it again once the
    record is gone. The seed depends on the store's secret, the caller's credential and the key.
    """

    def __init__(self, secret: bytes, proof: str, key: str) -> None:
        of_caller = hmac.digest(secret, b"rota token\x00" + proof.encode(), "sha256")
        self._seed = hmac.digest(of_caller, key.encode(), "sha256")
        tail = int.from_bytes(self._of("id")[:8], "big") >> (64 - _TAIL_BITS)
        self.tail = (_VARIANT | tail).to_bytes(8, "big").hex("-", 6)

    def id_from(self, fresh: str) -> str:
        """Returns a new id with the end that the key determines."""
        return fresh.removesuffix(id_suffix(fresh)) + self.tail

    def token_of(self, token_id: str) -> str:
        """Returns the text of the token with this id."""
        return _token_of(int.from_bytes(self._of(f"token {token_id}"), "big"))

    def _of(self, what: str) -> bytes:
        return hmac.digest(self._seed, what.encode(), "sha256")


def _token_of(number: int) -> str:
    digits = ""
    for _ in range(_TOKEN_DIGITS):
        number, digit = divmod(number, len(_DIGITS))
        digits += _DIGITS[digit]
    return TOKEN_PREFIX + digits


def mint_session() -> str:
    """Returns the name of one registration of a worker."""
    return secrets.token_urlsafe(12)


def mint_request_id() -> str:
    """Returns an id that connects an answer with the server's log lines about it."""
    return secrets.token_hex(8)
