"""Where ids of what comes from outside are minted: UUIDv7 with the cell in it, ever rising."""

from __future__ import annotations

import secrets
import string

from rota.core.model import Instant
from rota.wire.cells import cell_tag

_TAIL_BITS = 62
"""What a UUIDv7 leaves free beside time, version, variant and the twelve bits of the cell."""
_STEP_BYTES = 5
"""Ids of the same millisecond rise by a random step of this size: ordered, yet not guessable."""
_STEPS_AT_ONCE = 256
TOKEN_PREFIX = "rota_"
_TOKEN_BITS = 256
_TOKEN_DIGITS = 43
"""As many as 256 bits need in the digits below."""
_DIGITS = string.digits + string.ascii_letters


class IdMint:
    """Makes ids that sort in the order they were made, so the newest job has the largest id."""

    def __init__(self, cell: str = "") -> None:
        self._head = 0x7000 | int(cell_tag(cell), 16)
        self._ms = 0
        self._tail = 0
        self._dice = b""

    def mint(self, now: Instant) -> str:
        """One id; later calls give larger ones, even if the clock stands still."""
        if now > self._ms:
            # The top bit starts clear, so that steps within a millisecond have room to rise.
            self._ms, self._tail = now, secrets.randbits(_TAIL_BITS - 1)
        else:
            self._tail += 1 + self._step()
            if self._tail >> _TAIL_BITS:
                self._ms, self._tail = self._ms + 1, secrets.randbits(_TAIL_BITS - 1)
        value = self._ms << 80 | self._head << 64 | 0b10 << 62 | self._tail
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _step(self) -> int:
        """Random bits, asked of the system for many ids at once."""
        if not self._dice:
            self._dice = secrets.token_bytes(_STEP_BYTES * _STEPS_AT_ONCE)
        step, self._dice = self._dice[:_STEP_BYTES], self._dice[_STEP_BYTES:]
        return int.from_bytes(step, "big")


def mint_token() -> str:
    """A secret of 256 random bits. The front tells leak scanners whose it is."""
    number, digits = secrets.randbits(_TOKEN_BITS), ""
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
