"""Random numbers from the seed: a stream for each concern, so that none changes another."""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager


class Rng(random.Random):
    """Stream of random numbers."""

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return probability > 0 and self.random() < probability

    def clock_rate(self) -> float:
        """Draws the rate of a clock: within one percent, often just at that bound."""
        return self.choice((0.99, 0.99, 1.01, 1.01, self.uniform(0.99, 1.01)))

    def about(self, middle: float) -> float:
        """Draws a delay: mostly near the middle, sometimes much longer."""
        return middle * (0.5 + self.expovariate(2.0))


def rng_for(seed: int, *concern: object) -> Rng:
    """Returns the stream for one concern."""
    text = ":".join(str(part) for part in (seed, *concern))
    return Rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big"))


@contextmanager
def seeded_secrets(seed: int) -> Iterator[None]:
    """Replaces the functions of `secrets`, so that ids, keys and sessions come from the seed.

    The simulated packages draw random numbers only from `secrets`.
    """
    rng = rng_for(seed, "secrets")

    def token_bytes(size: int = 32) -> bytes:
        return rng.randbytes(size)

    def token_hex(size: int = 32) -> str:
        return rng.randbytes(size).hex()

    drawn = {
        "token_bytes": token_bytes,
        "token_hex": token_hex,
        "token_urlsafe": token_hex,
        "randbits": rng.getrandbits,
    }
    kept = {name: getattr(secrets, name) for name in drawn}
    for name, function in drawn.items():
        setattr(secrets, name, function)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(secrets, name, function)
