"""Exponential backoff with jitter: the delay before a call is repeated; pure.

The jitter is a hash, not a random number: each worker and client has its own seed, so a thousand of
them do not return at once, and a simulation is repeatable.
"""

from __future__ import annotations

import hashlib

FIRST_S = 0.1
"""A server that restarts is back within seconds, so the first retries come quickly."""
DOUBLINGS_MAX = 20
"""After this many doublings the cap has long been reached."""
CLIENT_CAP_S = 5.0
"""The longest delay between two attempts of a client."""


def delay_s(seed: str, attempt: int, cap_s: float, first_s: float = FIRST_S) -> float:
    """Between half and all of `first_s` doubled `attempt` times, `cap_s` at most."""
    ceiling = min(cap_s, first_s * 2 ** min(attempt, DOUBLINGS_MAX))
    digest = hashlib.blake2b(f"{seed}:{attempt}".encode(), digest_size=4).digest()
    return float(ceiling * (0.5 + int.from_bytes(digest, "big") / 2**33))


def pause_s(failures: int, seed: str, retry_after_s: float | None = None) -> float:
    """Delay of a client after this many failures, and never less than the server asked for."""
    return max(delay_s(seed, failures, CLIENT_CAP_S, FIRST_S / 2), retry_after_s or 0.0)
