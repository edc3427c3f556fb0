"""How long to wait before asking again: exponential, with jitter that is derived, not drawn."""

from __future__ import annotations

import hashlib

FIRST_S = 0.1
"""A server that restarts is back within seconds: the first tries come quickly."""
DOUBLINGS_MAX = 16
"""Beyond this the cap has long been reached."""


def delay_s(seed: str, attempt: int, cap_s: float) -> float:
    """Between half and all of min(cap, 0.1 s doubled `attempt` times), the same for equal input.

    The seed is different for each worker, so a thousand of them do not come back at once.
    """
    ceiling = min(cap_s, FIRST_S * 2 ** min(attempt, DOUBLINGS_MAX))
    digest = hashlib.blake2b(f"{seed}:{attempt}".encode(), digest_size=4).digest()
    return float(ceiling * (0.5 + int.from_bytes(digest, "big") / 2**33))
