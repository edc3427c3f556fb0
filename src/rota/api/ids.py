"""Where ids of what comes from outside are minted: UUIDv7, rising within one process."""

from __future__ import annotations

import secrets

from rota.core.model import Instant

_TAIL_BITS = 74
"""What a UUIDv7 leaves free beside time, version and variant."""
_STEP_BYTES = 5
"""Ids of the same millisecond rise by a random step of this size: ordered, yet not guessable."""
_STEPS_AT_ONCE = 256


class IdMint:
    """Makes ids that sort in the order they were made, so the newest job has the largest id."""

    def __init__(self) -> None:
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
        return _as_uuid7(self._ms, self._tail)

    def _step(self) -> int:
        """Random bits, asked of the system for many ids at once."""
        if not self._dice:
            self._dice = secrets.token_bytes(_STEP_BYTES * _STEPS_AT_ONCE)
        step, self._dice = self._dice[:_STEP_BYTES], self._dice[_STEP_BYTES:]
        return int.from_bytes(step, "big")


def _as_uuid7(ms: int, tail: int) -> str:
    value = ms << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | tail & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def mint_session() -> str:
    """Names one registration of a worker."""
    return secrets.token_urlsafe(12)


def mint_request_id() -> str:
    """Joins an answer to the server's log lines about it."""
    return secrets.token_hex(8)
