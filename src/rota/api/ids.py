"""Where ids of what comes from outside are minted: UUIDv7 with the cell in it, ever rising."""

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
"""What a UUIDv7 leaves free beside time, version, variant and the twelve bits of the cell."""
_VARIANT = 0b10 << _TAIL_BITS
_STEP_BYTES = 5
"""Ids of the same millisecond rise by a random step of this size: ordered, yet not guessable."""
_STEPS_AT_ONCE = 256
_TAIL_SAFE = (1 << _TAIL_BITS) - (_STEPS_AT_ONCE << 8 * _STEP_BYTES)
"""Below it, as many steps as are rolled at once do not lead beyond a millisecond's ids."""
TOKEN_PREFIX = "rota_"
_TOKEN_BITS = 256
_TOKEN_DIGITS = 43
"""As many as 256 bits need in the digits below."""
_DIGITS = string.digits + string.ascii_letters


RandomSource: TypeAlias = Callable[[int], bytes]
"""So many bytes that nobody can guess."""
_OWN_KEY = "rota-"


class IdMint:
    """Makes ids that sort in the order they were made, so the newest job has the largest id."""

    def __init__(self, cell: str = "", dice: RandomSource | None = None) -> None:
        self._tag = cell_tag(cell)
        self._random_bytes = dice or secrets.token_bytes
        self._ms = 0
        self._tail = 0
        self._head = ""
        """What the ids of one millisecond begin with."""
        self._steps: list[int] = []

    def mint(self, now: Instant) -> str:
        """One id; later calls give larger ones, even if the clock stands still."""
        if now > self._ms:
            self._begin(now)
        else:
            self._tail += (self._steps or self._draw_steps()).pop()
            if self._tail >> _TAIL_BITS:
                self._begin(self._ms + 1)
        return self._head + (_VARIANT | self._tail).to_bytes(8, "big").hex("-", 6)

    def mint_many(self, now: Instant, count: int) -> list[str]:
        """The same ids as of so many calls."""
        made: list[str] = []
        while len(made) < count:
            made.append(self.mint(now))
            if self._tail < _TAIL_SAFE:
                made += self._more(count - len(made))
        return made

    def _more(self, count: int) -> list[str]:
        """So many of the same millisecond, or as many as there are steps for."""
        steps = [self._steps.pop() for _ in range(min(count, len(self._steps)))]
        numbers = list(accumulate(steps, initial=_VARIANT | self._tail))
        self._tail = numbers[-1] & ~_VARIANT
        head = self._head
        return [head + number.to_bytes(8, "big").hex("-", 6) for number in numbers[1:]]

    def _begin(self, ms: Instant) -> None:
        # The top bit starts clear, so that steps within a millisecond have room to rise.
        self._ms, self._tail = ms, int.from_bytes(self._random_bytes(8), "big") >> (65 - _TAIL_BITS)
        self._head = f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{self._tag}-"

    def _draw_steps(self) -> list[int]:
        """Random steps, asked of the system for many ids at once."""
        dice = self._random_bytes(_STEP_BYTES * _STEPS_AT_ONCE)
        # Padded to eight bytes each, so that one call reads them all as numbers.
        wide = bytearray(8 * _STEPS_AT_ONCE)
        for at in range(_STEP_BYTES):
            wide[8 - _STEP_BYTES + at :: 8] = dice[at::_STEP_BYTES]
        self._steps = [1 + step for step in struct.unpack(f">{_STEPS_AT_ONCE}Q", wide)]
        return self._steps


class KeyedMint(IdMint):
    """The ids of one request: whichever server makes them, of one key and time they are the same.

    So a server that has no answer from the leader can accept what the leader may have accepted.
    """

    def __init__(self, cell: str, key: Key, at: Instant) -> None:
        self._at = at
        self._draws = 0
        self._seed = f"{len(key.key)} {key.key} {key.fingerprint}".encode()
        super().__init__(cell, self._of_key)

    def mint(self, now: Instant) -> str:
        """The next one; whenever that is, it has the time of the request."""
        return super().mint(max(self._at, self._ms))

    def _of_key(self, count: int) -> bytes:
        self._draws += 1
        return shake_256(self._seed + self._draws.to_bytes(4, "big")).digest(count)


def key_time(key: str, now: Instant) -> Instant | None:
    """When a key was made, if it is a UUIDv7 of just now, as our own clients make them."""
    digits = key.replace("-", "")
    if len(key) != 36 or len(digits) != 32 or digits[12] != "7":
        return None
    try:
        made = int(digits[:12], 16)
    except ValueError:
        return None
    return made if abs(now - made) <= KEY_TIME_MS else None


def mint_key() -> str:
    """An idempotency key for a request that came without one."""
    return f"{_OWN_KEY}{secrets.token_hex(16)}"


def determines_ids(key: str, now: Instant) -> bool:
    """Whether all servers to which a client sends this key make the same ids of it."""
    return key.startswith(_OWN_KEY) or key_time(key, now) is not None  # the former none sends


def mint_token() -> str:
    """A secret of 256 random bits. The front tells leak scanners whose it is."""
    return _token_of(secrets.randbits(_TOKEN_BITS))


class TokenSeed:
    """What an idempotency key makes of a token: how its id ends, and the text that goes with an id.

    The end of the id is the same whenever the key comes: by it the first try is found again. The
    token is of the whole id, which begins with its time: once the record is gone, no try comes to
    the same token any more. It takes the store's secret, what has proven the caller, and the key.
    """

    def __init__(self, secret: bytes, proof: str, key: str) -> None:
        of_caller = hmac.digest(secret, b"rota token\x00" + proof.encode(), "sha256")
        self._seed = hmac.digest(of_caller, key.encode(), "sha256")
        tail = int.from_bytes(self._of("id")[:8], "big") >> (64 - _TAIL_BITS)
        self.tail = (_VARIANT | tail).to_bytes(8, "big").hex("-", 6)

    def id_from(self, fresh: str) -> str:
        """A new id that ends as it has to."""
        return fresh.removesuffix(id_suffix(fresh)) + self.tail

    def token_of(self, token_id: str) -> str:
        """The token whose id this is."""
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
    """Names one registration of a worker."""
    return secrets.token_urlsafe(12)


def mint_request_id() -> str:
    """Joins an answer to the server's log lines about it."""
    return secrets.token_hex(8)
