"""Exponential backoff with jitter: how long to wait before a call is repeated; pure.

The jitter is a hash and not chance: each worker and client has a seed of its own, so a thousand of
them do not come back at once, and a simulation repeats itself.
"""

from __future__ import annotations

import hashlib

FIRST_S = 0.1
"""A server that restarts is back within seconds: the first tries come quickly."""
DOUBLINGS_MAX = 20
"""Beyond this the cap has long been reached."""
CLIENT_CAP_S = 5.0
"""Between two tries of a client."""


def delay_s(seed: str, attempt: int, cap_s: float, first_s: float = FIRST_S) -> float:
    """Between half and all of `first_s` doubled `attempt` times, `cap_s` at most."""
    ceiling = min(cap_s, first_s * 2 ** min(attempt, DOUBLINGS_MAX))
    digest = hashlib.blake2b(f"{seed}:{attempt}".encode(), digest_size=4).digest()
    return float(ceiling * (0.5 + int.from_bytes(digest, "big") / 2**33))


def pause_s(failures: int, seed: str, retry_after_s: float | None = None) -> float:
    """A client's wait after so many failures, and never less than the server asked for."""
    return max(delay_s(seed, failures, CLIENT_CAP_S, FIRST_S / 2), retry_after_s or 0.0)
